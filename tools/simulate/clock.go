//go:build linux

package main

import (
	"debug/elf"
	"encoding/binary"
	"os"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// clockSymbol is where the Go runtime keeps the address of the function that reads the clock
// without a system call.
const clockSymbol = "runtime.vdsoClockgettimeSym"

// stepTime is how far the clock of the programs moves with each call that continues.
const stepTime = 100 * time.Microsecond

// clock is what the Go programs of a schedule read. It stops while a program computes, is
// started, or waits for the CPU: limits and pauses pass after the same calls in each run. While
// all programs sleep it moves as the real one does, because the kernel ends their sleep.
type clock struct {
	real, monotonic time.Duration // at the start of the schedule
	slept           time.Duration // until now
	since           time.Time     // when the programs were found asleep; zero when they are not
	ahead           time.Duration // the jump of the real one
}

func newClock() clock {
	return clock{real: read(unix.CLOCK_REALTIME), monotonic: read(unix.CLOCK_MONOTONIC)}
}

func read(id int32) time.Duration {
	var t unix.Timespec
	_ = unix.ClockGettime(id, &t)
	return time.Duration(t.Nano())
}

// sleep notes that every program sleeps.
func (c *clock) sleep() {
	if c.since.IsZero() {
		c.since = time.Now()
	}
}

// wake notes that a program continues.
func (c *clock) wake() {
	if !c.since.IsZero() {
		c.slept, c.since = c.slept+time.Since(c.since), time.Time{}
	}
}

// passed returns the time since the start of the schedule.
func (s *schedule) passed() time.Duration {
	t := time.Duration(len(s.trace))*stepTime + s.clock.slept
	if !s.clock.since.IsZero() {
		t += time.Since(s.clock.since)
	}
	return t
}

// answerTime answers a program that reads the clock.
func (s *schedule) answerTime(n *notification) {
	now := s.passed() + s.clock.monotonic
	if n.args[0] == unix.CLOCK_REALTIME {
		now += s.clock.real - s.clock.monotonic + s.clock.ahead
	}
	var b [16]byte
	binary.NativeEndian.PutUint64(b[:], uint64(now/time.Second))
	binary.NativeEndian.PutUint64(b[8:], uint64(now%time.Second))
	writeMemory(int(n.tid), n.args[1], b[:])
	s.send(answer{id: n.id})
}

// isMonitor reports whether a thread is the monitor of the Go runtime, see [process.time].
func (s *schedule) isMonitor(tid uint32) bool {
	return slices.ContainsFunc(s.processes, func(p *process) bool {
		return p.product && len(p.threads) > 1 && p.threads[1].id == int(tid)
	})
}

// answerMonitors lets the monitors continue. They ask for the time all the time, so they wait
// until there is nothing else to do, or until another thread seems to wait for one of them.
func (s *schedule) answerMonitors() {
	for i := range s.monitors {
		s.answerTime(&s.monitors[i])
	}
	s.monitors = s.monitors[:0]
}

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
