//go:build linux

package main

import (
	"bytes"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// rest reports whether every thread of every program sleeps or is held, or at least the threads of
// the current process when its next call does not depend on the others.
func (s *schedule) rest(current *process) bool {
	if current != nil && !current.ended {
		for i := range 2 { // one that sleeps for a moment runs in the second look
			if current.runs() || i == 0 && len(current.threads) > 1 && s.take(pause) {
				return false
			}
		}
	}
	if current == nil || len(current.held) == 0 || s.switches > 0 && current.held[0].weight() > 0 {
		if len(s.born) > 0 && time.Since(s.lastCall) < time.Second {
			return false
		}
		for range 2 { // one that was seen asleep may have been woken by one seen later
			for _, p := range s.processes {
				if !p.ended && p.runs() {
					return false
				}
			}
		}
	}
	return !s.take(0)
}

// runs reports whether a thread of the process runs, or is about to.
func (p *process) runs() bool {
	if p.ended {
		return false
	}
	var b [512]byte
	for range 10 {
		held := len(p.held) // their threads are D, as one is that waits for the start of a child
		for i, fd := range p.threads {
			if i == 1 && p.product {
				continue // the monitor of the Go runtime, which looks at the others all the time
			}
			n, err := unix.Pread(fd, b[:], 0)
			if err != nil && i > 0 {
				break // a thread has ended
			}
			state, threads := parseStat(b[:max(n, 0)])
			switch {
			case err != nil || state == 'X':
				return false // reap takes it
			case state == 'Z':
				return threads > 1
			case state == 'D' && held > 0:
				held--
			case state != 'S':
				return true
			}
			if i == 0 && threads != len(p.threads) {
				break
			}
			if i == len(p.threads)-1 || i == 0 && threads == 2 && p.product {
				return false
			}
		}
		p.forget()
		dir := "/proc/" + strconv.Itoa(p.pid) + "/task/"
		tasks, err := os.ReadDir(dir)
		if err != nil {
			return false
		}
		for _, task := range tasks {
			if fd, err := unix.Open(dir+task.Name()+"/stat", unix.O_RDONLY|unix.O_CLOEXEC, 0); err == nil {
				p.threads = append(p.threads, fd)
			}
		}
		if len(p.threads) == 0 {
			return false
		}
	}
	return true // threads come and go
}

func (p *process) forget() {
	for _, fd := range p.threads {
		unix.Close(fd)
	}
	p.threads = nil
}

// parseStat returns the state of a thread and how many there are in its process.
func parseStat(line []byte) (state byte, threads int) {
	i := bytes.LastIndexByte(line, ')')
	fields := bytes.Fields(line[i+1:])
	if i < 0 || len(fields) < 18 {
		return 'X', 0
	}
	threads, _ = strconv.Atoi(string(fields[17]))
	return fields[0][0], threads
}
