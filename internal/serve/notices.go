package serve

import (
	"errors"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"thread/internal/watch"
	"thread/jsonlog"
)

// notices turns file notices into passes. They are a safety net, so a system that
// gives no more watches is told of once and done without.
type notices struct {
	s    *Server
	dirs *watch.Dirs // nil: none to be had

	mu      sync.Mutex
	warned  bool
	touched map[string]bool // directories in which something was written
}

// noticeDelay is how long after the first notice a pass is made. A push that sends a
// ping has been seen by then, and a burst of writes costs one pass.
const noticeDelay = 50 * time.Millisecond

func newNotices(s *Server) *notices {
	n := &notices{s: s, touched: map[string]bool{}}
	var err error
	if n.dirs, err = watch.NewDirs(); err != nil {
		n.dirs = nil
		n.warn(err)
		return n
	}
	go n.loop()
	return n
}

func (n *notices) close() {
	if n.dirs != nil {
		n.dirs.Close()
	}
}

func (n *notices) warn(err error) {
	n.mu.Lock()
	told := n.warned
	n.warned = true
	n.mu.Unlock()
	if !told {
		n.s.log.Warn("no file notices, at least for some threads", "error", err)
	}
}

// add watches a thread directory or a root. It may be called again.
func (n *notices) add(dir string) {
	if n.dirs != nil {
		if err := n.dirs.Add(dir); err != nil {
			n.warn(err)
		}
	}
}

func (n *notices) remove(dir string) {
	if n.dirs != nil {
		n.dirs.Remove(dir)
	}
}

func (n *notices) loop() {
	for {
		at, err := n.dirs.Next()
		switch {
		case errors.Is(err, watch.ErrClosed):
			return
		case err != nil:
			n.warn(err) // an overflow: the sweep finds what was lost
		default:
			n.take(at)
		}
	}
}

// take marks the directory that a notice is about. Only pushes write
// events.jsonl; the database is written by pops too, and is watched in a thread
// whose lines are off.
func (n *notices) take(at watch.Notice) {
	dir := at.Dir
	switch {
	case at.Name == "events.jsonl":
	case at.Name == "events.db" && at.Created:
	case (at.Name == "events.db" || at.Name == "events.journal") && jsonlog.Off(dir):
	case at.Created && slices.Contains(n.s.opts.Roots, dir):
		dir = filepath.Join(dir, at.Name)
		n.add(dir) // to be told of its events.db; a file does no harm
	default:
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.touched) == 0 {
		time.AfterFunc(noticeDelay, n.flush)
	}
	n.touched[dir] = true
}

func (n *notices) flush() {
	n.mu.Lock()
	touched := n.touched
	n.touched = map[string]bool{}
	n.mu.Unlock()
	for dir := range touched {
		if n.s.thread(dir) == nil { // perhaps one that had another name before
			n.s.dropGone()
			break
		}
	}
	for dir := range touched {
		if t := n.s.thread(dir); t != nil {
			t.wake(wakeNew)
		} else {
			n.s.addFound(dir)
		}
	}
}
