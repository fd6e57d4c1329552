//go:build linux

package main

import (
	"debug/elf"
	"encoding/binary"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// What goes wrong in a schedule, once.
const (
	faultKill  = "kill"  // of a program
	faultCall  = "call"  // fails, of a program that the scenario has started
	faultPower = "power" // is lost: every program ends, and writes that were not synced may be missing
	faultClock = "clock" // jumps; nothing may come of it
)

// write is one into the database or its journal, since the last sync of that file.
type write struct {
	object string
	at     int64
	before []byte
}

// planFault chooses the fault of the schedule, if there is one.
func (s *schedule) planFault(sc *scenario) {
	s.plan.victim, s.plan.fault = sc.victim, sc.fault
	if s.plan.fault == "" {
		s.plan.fault = []string{"", "", "", faultKill, faultKill, faultCall, faultPower, faultClock}[s.random.IntN(8)]
	}
	s.plan.chance = []float64{0.05, 0.02, 0.01}[s.random.IntN(3)]
	s.jump = []time.Duration{-1, 1}[s.random.IntN(2)] * []time.Duration{time.Second, time.Hour, 400 * 24 * time.Hour}[s.random.IntN(3)]
}

// goesWrong lets the fault happen before a call, perhaps, and reports whether the call is gone.
func (s *schedule) goesWrong(c *call) bool {
	chance := s.plan.chance
	switch s.plan.fault {
	case "":
		return false
	case faultPower:
		if chance /= 10; len(s.unsynced) > 0 {
			chance = 0.1
		}
	case faultCall:
		if !c.p.root || !c.canFail() {
			return false
		}
		chance *= 3
	}
	if s.random.Float64() >= chance {
		return false
	}
	switch s.plan.fault {
	case faultKill:
		return s.kill() == c.p
	case faultCall:
		return s.fail(c)
	case faultPower:
		return s.losePower()
	}
	s.plan.fault, s.ahead = "", s.jump
	s.trace = append(s.trace, "CLOCK "+s.jump.String())
	return false
}

func (s *schedule) kill() *process {
	var list []*process
	for _, p := range s.processes {
		if p.product && !p.ended && p.calls > 0 && strings.HasPrefix(p.name, s.plan.victim) {
			list = append(list, p)
		}
	}
	if len(list) == 0 {
		return nil
	}
	p := list[s.random.IntN(len(list))]
	s.faults, s.plan.fault = 1, ""
	s.trace = append(s.trace, "KILL "+p.name)
	p.hurt, p.held = true, nil
	_ = syscall.Kill(p.pid, syscall.SIGKILL)
	return p
}

func (c *call) canFail() bool {
	return slices.Contains([]string{"openat", "pwrite", "write", "ftruncate", "fsync", "fdatasync", "renameat"}, c.name)
}

// fail answers a call with an error.
func (s *schedule) fail(c *call) bool {
	errno := []syscall.Errno{syscall.EIO, syscall.ENOSPC}[s.random.IntN(2)]
	s.faults, s.plan.fault = 1, ""
	s.trace = append(s.trace, "FAIL "+c.String())
	c.p.hurt, c.p.held = true, slices.Delete(c.p.held, 0, 1)
	s.send(answer{id: c.id, errno: -int32(errno)})
	return true
}

// losePower ends every program. Each write that was not synced is lost or not, as a disk
// may reorder them; the mark of what is synced belongs to the boot.
func (s *schedule) losePower() bool {
	s.faults, s.plan.fault = 1, ""
	s.trace = append(s.trace, "POWER LOSS")
	s.reap()
	for _, p := range s.processes {
		if !p.ended {
			p.hurt, p.ended, p.held, p.status = true, true, nil, syscall.WaitStatus(syscall.SIGKILL)
		}
	}
	killChildren()
	clear(s.born)
	for _, w := range slices.Backward(s.unsynced) {
		if s.random.IntN(2) == 0 {
			continue
		}
		if f, err := os.OpenFile(s.dir+"/t/"+w.object, os.O_RDWR, 0); err == nil {
			_, _ = f.WriteAt(w.before, w.at)
			f.Close()
		}
	}
	_ = os.Remove(s.dir + "/t/run/.synced")
	return true
}

// note keeps what a loss of power would bring back.
func (s *schedule) note(c *call) {
	if c.object != "events.db" && c.object != "events.journal" {
		return
	}
	switch c.name {
	case "pwrite":
		before := make([]byte, c.args[2])
		if f, err := os.Open(s.dir + "/t/" + c.object); err == nil {
			_, _ = f.ReadAt(before, int64(c.args[3]))
			f.Close()
		}
		s.unsynced = append(s.unsynced, write{c.object, int64(c.args[3]), before})
	case "fsync", "fdatasync", "renameat":
		s.unsynced = slices.DeleteFunc(s.unsynced, func(w write) bool { return w.object == c.object })
	}
}

// clockSymbol is where the Go runtime keeps the address of the function that reads the clock
// without a system call.
const clockSymbol = "runtime.vdsoClockgettimeSym"

// askKernel makes a program that has just begun read the clock by system calls.
func (s *schedule) askKernel(tid int) {
	path, _ := os.Readlink("/proc/" + strconv.Itoa(tid) + "/exe")
	at, ok := s.clocks[path]
	if !ok {
		if f, err := elf.Open(path); err == nil {
			symbols, _ := f.Symbols()
			f.Close()
			for _, symbol := range symbols {
				if symbol.Name == clockSymbol {
					at = symbol.Value
				}
			}
		}
		s.clocks[path] = at
	}
	if at != 0 {
		writeMemory(tid, at, make([]byte, 8))
	}
}

// answerTime answers a program that reads the clock, which has jumped.
func (s *schedule) answerTime(n *notification) {
	now := time.Now().Add(s.ahead)
	var b [16]byte
	binary.NativeEndian.PutUint64(b[:], uint64(now.Unix()))
	binary.NativeEndian.PutUint64(b[8:], uint64(now.Nanosecond()))
	writeMemory(int(n.tid), n.args[1], b[:])
	s.send(answer{id: n.id})
}
