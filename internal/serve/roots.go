package serve

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"

	"thread/engine"
	"thread/internal/dispatch"
)

// scan serves the thread directories directly below the roots, the roots that are
// thread directories themselves, and those of Options.Threads that were gone and
// are back: who puts another directory in place of one may be seen in between.
// Those that cannot be served are left out; each sweep tries them again.
func (s *Server) scan() {
	for _, dir := range s.opts.Threads {
		s.addFound(dir)
	}
	for _, root := range s.opts.Roots {
		s.notices.add(root)
		s.addFound(root)
		entries, err := os.ReadDir(root)
		if err != nil {
			s.repeats.say(slog.LevelWarn, "root cannot be read", "root", root, "error", err)
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
	if errors.Is(err, dispatch.ErrServed) {
		s.repeats.say(slog.LevelInfo, "thread is served by another process", "thread", dir)
		return
	}
	s.repeats.say(slog.LevelWarn, "thread cannot be served", "thread", dir, "error", err)
}
