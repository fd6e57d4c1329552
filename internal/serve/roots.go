package serve

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"time"

	"thread/engine"
	"thread/internal/address"
	"thread/internal/dispatch"
)

// Runner runs the handlers of one thread. [dispatch.Server] is the one of a directory.
type Runner interface {
	// Due returns the consumers that are to run, see [dispatch.Server.Due].
	Due(ctx context.Context) ([]engine.Due, error)
	// Run runs a consumer once, see [dispatch.Server.Run].
	Run(ctx context.Context, consumer string, onlyNew bool, hooks *dispatch.Hooks) (dispatch.Outcome, error)
	// Resume runs the consumer of a retry, see [dispatch.Server.Resume].
	Resume(ctx context.Context, retry *dispatch.Retry, hooks *dispatch.Hooks) (dispatch.Outcome, error)
	// Pending reports whether the standby has something to run.
	Pending(ctx context.Context) (bool, error)
	// Close is called when no run begins any more. Those that are in progress continue.
	Close()
}

// Remote is the Runner of a thread on a server.
type Remote interface {
	Runner
	// Watch calls look whenever the thread may have changed, until Close, and answer for each
	// request of another process.
	Watch(look func(), answer func(ctx context.Context, request []byte) []byte)
	// Finish is called after Close, when the last run has ended.
	Finish()
}

// ThreadError says which thread cannot be served.
type ThreadError struct {
	Thread string // its address
	Err    error
}

func (e *ThreadError) Error() string { return e.Err.Error() }

// Unwrap returns the cause.
func (e *ThreadError) Unwrap() error { return e.Err }

// openURL opens a thread on a server.
func (t *thread) openURL() error {
	if t.s.opts.Remote == nil {
		return address.ErrNoDriver
	}
	e, err := address.Open(t.dir, engine.WithOnRelease(func(string) { t.wake(wakeUp{set: true, push: true}) }))
	if err != nil {
		return err
	}
	t.remote = t.s.opts.Remote(e, t.s.log.With("thread", t.dir))
	t.t, t.r, t.place, t.reads = e, t.remote, e.Dir(), make(chan struct{}, streamReads)
	if _, err = t.r.Due(context.Background()); err != nil {
		_ = e.Close() // nothing was written
		return err
	}
	return nil
}

// directories reports whether some of what is served may be a directory.
func (o *Options) directories() bool {
	return len(o.Roots) > 0 || slices.ContainsFunc(o.Threads, func(dir string) bool { return !address.IsURL(dir) })
}

// scan serves the thread directories directly below the roots, the roots that are
// thread directories themselves, and the directories of Options.Threads that were gone and
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
			dir := filepath.Join(root, e.Name())
			if _, err := os.Lstat(filepath.Join(dir, "copied.json")); err == nil {
				continue // a backup: its consumers would do again what the thread's have done
			}
			s.addFound(dir)
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

// add takes in one more thread, which has not begun. It returns nil for one that
// is there already.
func (s *Server) add(dir string, wait time.Duration) (*thread, error) {
	if s.serves(dir) {
		return nil, nil
	}
	t, err := s.open(dir, wait)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	if s.ending || s.threads[dir] != nil {
		s.mu.Unlock()
		t.close()
		return nil, nil
	}
	s.threads[dir] = t
	s.mu.Unlock()
	if t.local != nil {
		s.standby.Add(dir)
		s.notices.add(dir)
	}
	return t, nil
}

// serves reports whether the thread in dir is served, also by another path, or none
// is to be added.
func (s *Server) serves(dir string) bool {
	info, err := os.Stat(dir)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.threads[dir] != nil || s.ending {
		return true
	}
	for _, t := range s.threads {
		if err == nil && os.SameFile(t.id, info) {
			return true
		}
	}
	return false
}

// all returns the threads, by directory.
func (s *Server) all() []*thread {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := make([]*thread, 0, len(s.threads))
	for _, t := range s.threads {
		list = append(list, t)
	}
	slices.SortFunc(list, func(a, b *thread) int {
		if a.dir < b.dir {
			return -1
		}
		return 1
	})
	return list
}

// addresses returns the addresses of the threads.
func (s *Server) addresses() (list []string) {
	for _, t := range s.all() {
		list = append(list, t.dir)
	}
	return list
}

func (s *Server) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.threads)
}

func (s *Server) countDirectories() (n int) {
	for _, t := range s.all() {
		if t.local != nil {
			n++
		}
	}
	return n
}

func (s *Server) thread(dir string) *thread {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.threads[dir]
}

// drop forgets a thread whose directory is gone.
func (s *Server) drop(t *thread) {
	s.mu.Lock()
	delete(s.threads, t.dir)
	s.mu.Unlock()
	s.notices.remove(t.dir)
	t.close()
	s.log.Info("thread is gone", "thread", t.dir)
}
