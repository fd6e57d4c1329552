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
	"thread/internal/watch"
	"thread/jsonlog"
)

// ThreadError says which thread cannot be served.
type ThreadError struct {
	Thread string // its address
	Err    error
}

func (e *ThreadError) Error() string { return e.Err.Error() }

// Unwrap returns the cause.
func (e *ThreadError) Unwrap() error { return e.Err }

// streamReads is how many streams of a thread on a server read at once: half of the
// connections of its store, so that a thousand streams keep no other request waiting.
const streamReads = 4

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

func (s *Server) open(dir string, wait time.Duration) (*thread, error) {
	t := &thread{s: s, dir: dir, place: dir, consumers: map[string]*consumer{}, cleared: map[string]bool{}, gone: make(chan struct{})}
	if address.IsURL(dir) {
		return t, t.openURL()
	}
	var err error
	if t.id, err = os.Stat(dir); err != nil {
		return nil, err
	}
	e, err := engine.Open(dir, dispatch.OwnFile(dir), engine.WithOnRelease(func(string) { t.wake(wakeUp{set: true, push: true}) }))
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), wait)
	defer cancel()
	r, err := dispatch.NewServer(ctx, e)
	if err != nil {
		return nil, err
	}
	r.UseStandby(s.standby)
	t.t, t.r, t.local = e, r, r
	if !s.keepOpen() {
		r.Close() // the consumers' locks are enough for handlers to run once
		return t, nil
	}
	if err := t.listen(); err != nil {
		s.giveBack()
		r.Close()
		return nil, err
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

// dropGone forgets the threads whose directories are gone.
func (s *Server) dropGone() {
	for _, t := range s.all() {
		if _, err := t.stamp(); errors.Is(err, os.ErrNotExist) {
			s.drop(t)
		}
	}
}
