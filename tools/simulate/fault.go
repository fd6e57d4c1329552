//go:build linux

package main

import (
	"cmp"
	"math/rand/v2"
	"os"
	"slices"
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
	faultNone  = "none"  // except what a script does
)

// write is one into the database or its journal, since the last sync of that file.
type write struct {
	object string
	at     int64
	before []byte
}

// planFault chooses the fault of the schedule, if there is one.
func (s *schedule) planFault(sc *scenario, random *rand.Rand) {
	s.plan.victim, s.plan.fault = sc.victim, sc.fault
	if s.plan.fault == "" {
		s.plan.fault = []string{"", "", "", faultKill, faultKill, faultCall, faultPower, faultClock}[random.IntN(8)]
	}
	if s.plan.fault == faultNone {
		s.plan.fault = ""
	}
	s.plan.chance = []float64{0.05, 0.02, 0.01}[random.IntN(3)]
	s.jump = []time.Duration{-1, 1}[random.IntN(2)] * []time.Duration{time.Second, time.Hour, 400 * 24 * time.Hour}[random.IntN(3)]
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
	random := s.drawAt("fault ", c)
	if random.Float64() >= chance {
		return false
	}
	switch s.plan.fault {
	case faultKill:
		return s.kill(random) == c.p
	case faultCall:
		return s.fail(c, random)
	case faultPower:
		return s.losePower(random)
	}
	s.plan.fault, s.clock.ahead = "", s.jump
	s.trace = append(s.trace, "CLOCK "+s.jump.String())
	return false
}

func (s *schedule) kill(random *rand.Rand) *process {
	var list []*process
	for _, p := range s.processes {
		if p.product && !p.ended && p.calls > 0 && strings.HasPrefix(p.name, s.plan.victim) {
			list = append(list, p)
		}
	}
	if len(list) == 0 {
		return nil
	}
	slices.SortFunc(list, func(a, b *process) int { return cmp.Compare(a.name, b.name) })
	p := list[random.IntN(len(list))]
	s.killNow(p)
	return p
}

func (s *schedule) killNow(p *process) {
	s.faults, s.plan.fault = 1, ""
	s.trace = append(s.trace, "KILL "+p.name)
	p.hurt, p.ending, p.held = true, true, nil
	_ = syscall.Kill(p.pid, syscall.SIGKILL)
}

func (c *call) canFail() bool {
	return slices.Contains([]string{"openat", "pwrite", "write", "ftruncate", "fsync", "fdatasync", "renameat"}, c.name)
}

// fail answers a call with an error.
func (s *schedule) fail(c *call, random *rand.Rand) bool {
	errno := []syscall.Errno{syscall.EIO, syscall.ENOSPC}[random.IntN(2)]
	s.faults, s.plan.fault = 1, ""
	s.trace = append(s.trace, "FAIL "+c.String())
	c.p.hurt, c.p.held = true, slices.Delete(c.p.held, 0, 1)
	s.failed = true
	s.send(answer{id: c.id, errno: -int32(errno)})
	return true
}

// losePower ends every program. Each write that was not synced is lost or not, as a disk
// may reorder them; the mark of what is synced belongs to the boot.
func (s *schedule) losePower(random *rand.Rand) bool {
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
		if random.IntN(2) == 0 {
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
