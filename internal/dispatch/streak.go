package dispatch

import "time"

// Ended is what a server of a thread that is not a directory knows when a handler has
// ended.
type Ended struct {
	OK      bool // exit code 0
	Moved   bool // progress is further than at the start
	Pending bool // there are unread matching events
	Fresh   bool // some of them were pushed after the start
}

// Streak decides what follows the endings in a row of one consumer's handler, as for one in
// a directory.
type Streak struct{ s streak }

// After reports whether the handler is to be run again, and after which delay; otherwise the
// next event starts it.
func (s *Streak) After(e Ended) (run bool, delay time.Duration) {
	v, delay := decide(ending{ok: e.OK, moved: e.Moved, pending: e.Pending, fresh: e.Fresh}, &s.s)
	if v == stalled {
		s.s = streak{} // what comes next starts afresh
	}
	return v == again || v == retry, delay
}
