package serve

import (
	"errors"
	"os"
	"path/filepath"

	"thread/dispatch"
	"thread/engine"
)

// scan serves the thread directories directly below the roots, the roots that are
// thread directories themselves, and those of Options.Threads that were gone and
// are back: who puts another directory in place of one may be seen in between.
// Those that cannot be served are left out; each sweep tries them again, and logs
// it only the first time.
func (s *Server) scan() {
	for _, dir := range s.opts.Threads {
		s.addFound(dir)
	}
	for _, root := range s.opts.Roots {
		s.notices.add(root)
		s.addFound(root)
		entries, err := os.ReadDir(root)
		if err != nil {
			s.log.Warn("root cannot be read", "root", root, "error", err)
		}
		for _, e := range entries {
			s.addFound(filepath.Join(root, e.Name()))
		}
	}
}

// addFound serves dir if it is a thread directory.
func (s *Server) addFound(dir string) {
	if s.thread(dir) != nil || !engine.Exists(dir) {
		return
	}
	t, err := s.add(dir, 0)
	if t != nil {
		t.begin()
	}
	if err == nil {
		return
	}
	s.mu.Lock()
	told := s.refused[dir]
	s.refused[dir] = true
	s.mu.Unlock()
	switch {
	case told:
	case errors.Is(err, dispatch.ErrServed):
		s.log.Info("thread is served by another process", "thread", dir)
	default:
		s.log.Warn("thread cannot be served", "thread", dir, "error", err)
	}
}
