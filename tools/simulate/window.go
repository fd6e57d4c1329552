//go:build linux

package main

import (
	"strings"
	"syscall"
	"time"
)

// window holds the first process that makes a call before that call, as a test point in the
// product would. When nothing else can continue, it opens by itself.
type window struct {
	hold  string // as a trace has it, without the number of the process: "wake flock run/c.lock UN"
	until string // another process of this name has ended since
	after int    // or that window of the script has been reached, from 1
	same  int    // hold only the process that was held by that window
	kill  int    // kill the process before its call of this number, from 1, in place of holding it

	p      *process
	step   int
	isOpen bool
}

// ready returns the processes that can continue.
func (s *schedule) ready() (ready []*process) {
	for _, p := range s.processes {
		if len(p.held) > 0 && !s.isHeld(p) {
			ready = append(ready, p)
		}
	}
	return ready
}

// isHeld reports whether a window of the script holds the next call of the process.
func (s *schedule) isHeld(p *process) bool {
	line := strings.Fields(p.held[0].String())
	name, _, _ := strings.Cut(line[0], ".")
	text := strings.Join(append([]string{name}, line[1:]...), " ")
	for i := range s.windows {
		w := &s.windows[i]
		if w.kill > 0 {
			if w.p == nil && text == w.hold && p.made[p.held[0].text] == w.kill-1 {
				w.p, w.isOpen = p, true
				s.killNow(p)
				return true
			}
			continue
		}
		if w.p == nil && text == w.hold && (w.same == 0 || s.windows[w.same-1].p == p) {
			w.p, w.step = p, len(s.trace)
			s.trace = append(s.trace, "HOLD "+p.held[0].String())
		}
		if w.p == p && text == w.hold && !w.isOpen {
			if w.isOpen = s.hasHappened(w); !w.isOpen {
				return true
			}
		}
	}
	return false
}

func (s *schedule) hasHappened(w *window) bool {
	if w.after > 0 {
		return s.windows[w.after-1].p != nil
	}
	s.reap()
	for _, p := range s.processes {
		if p != w.p && strings.HasPrefix(p.name, w.until+".") && p.lastStep >= w.step && !p.isAlive() {
			return true
		}
	}
	return false
}

// openWindow opens the first window that holds a process or, if another one has been reached
// meanwhile, what that one lets continue. It reports whether there was any.
func (s *schedule) openWindow() bool {
	for _, now := range []bool{false, true} {
		for i := range s.windows {
			if w := &s.windows[i]; w.p != nil && !w.isOpen && (now || s.hasHappened(w)) {
				w.isOpen = true
				return true
			}
		}
	}
	return false
}

func (p *process) isAlive() bool { return !p.ended && syscall.Kill(p.pid, 0) == nil }

// endServers ends the servers of the scenario when nothing is left for them to do. A handler that
// was killed may have left an event until the next push or dispatch, so after a fault they are
// ended also when nothing happens any more.
func (s *schedule) endServers() {
	var servers []*process
	for _, p := range s.processes {
		switch {
		case p.server && p.isAlive() && !p.asked:
			servers = append(servers, p)
		case p.root && p.isAlive():
			return
		}
	}
	slept := time.Since(s.clock.since)
	if len(servers) > 0 && slept > settleTime && (s.idle() || s.faults > 0 && slept > retryTime) {
		for _, p := range servers {
			p.asked = true
			_ = syscall.Kill(p.pid, syscall.SIGTERM)
		}
	}
}
