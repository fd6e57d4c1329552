//go:build linux

package main

import (
	"cmp"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// weight says how much the order of this call and calls of other processes matters.
func (c *call) weight() float64 {
	object := strings.TrimPrefix(strings.TrimPrefix(c.object, "r/"), "history/")
	switch c.name {
	case "flock":
		switch {
		case strings.HasPrefix(object, "run/.gate"):
			return 0.2
		case object == "events.db":
			return 1
		case c.how == "UN":
			return 4
		}
		return 2
	case "renameat", "unlinkat", "linkat", "exit", "kill", "connect":
		return 1
	case "write", "pwrite", "ftruncate", "fdatasync":
		if object == "events.jsonl" || object == "events.journal" || strings.HasPrefix(object, "run/") && object != "run/.synced" || strings.HasSuffix(object, ".run") {
			return 1
		}
	}
	return 0
}

// choose returns the call that is next, or nil when no process is held. The current process
// continues until it sleeps or ends, except for a few switches at calls that conflict.
func (s *schedule) choose(current *process) *call {
	ready := s.ready()
	for len(ready) == 0 && s.openWindow() {
		ready = s.ready()
	}
	if len(ready) == 0 {
		return nil
	}
	first := slices.MaxFunc(ready, func(a, b *process) int { return cmp.Compare(a.priority, b.priority) })
	if !slices.Contains(ready, current) {
		return first.held[0]
	}
	c := current.held[0]
	if s.switches == 0 || len(ready) == 1 {
		return c
	}
	w := c.weight()
	if !strings.HasPrefix(c.object, s.plan.focus) {
		w /= 10
	}
	if w == 0 {
		return c
	}
	random := s.drawAt("switch ", c)
	if random.Float64() >= s.plan.switching*w {
		return c
	}
	s.switches--
	if s.plan.back {
		current.priority -= 2
	}
	others := slices.DeleteFunc(ready, func(p *process) bool { return p == current })
	slices.SortFunc(others, func(a, b *process) int { return cmp.Compare(a.name, b.name) })
	return others[random.IntN(len(others))].held[0]
}

// release lets a call continue, perhaps after something has gone wrong.
func (s *schedule) release(c *call) {
	if s.plan.fault != "" && s.goesWrong(c) {
		return
	}
	s.note(c)
	c.p.held = slices.Delete(c.p.held, 0, 1)
	c.p.made[c.text]++
	c.p.lastStep, c.p.ending = len(s.trace), c.name == "exit"
	if c.name == "kill" && (c.args[1] == uint64(unix.SIGKILL) || c.args[1] == uint64(unix.SIGTERM)) {
		for _, p := range s.processes {
			p.suspect = true
		}
	}
	s.trace = append(s.trace, c.text)
	s.send(answer{id: c.id, flags: keepCall})
}
