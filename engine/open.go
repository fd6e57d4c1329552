package engine

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"thread/event"
	"thread/internal/store"
	"thread/internal/store/bolt"
)

// newThread returns a handle on what open opens.
func newThread(open func(o bolt.Options) (*bolt.Store, error), opts []Option) (*Thread, error) {
	o := options{Options: bolt.Options{Now: time.Now}}
	for _, set := range opts {
		set(&o)
	}
	t := &Thread{now: o.Now, onRelease: o.onRelease, feeds: new(feedLocks), counts: &lastCounts{of: map[string]Backlog{}, parts: map[string]keptParts{}}}
	o.Logic, o.Now = logic{t}, func() time.Time { return t.now() }
	b, err := open(o.Options)
	if err != nil {
		return nil, err
	}
	t.place, t.s = b.Place, b
	return t, nil
}

// Open returns a handle on the thread directory dir.
//
// Open returns [ErrNotThread] when dir is not a directory or has no events.db;
// [ErrSQLite], [ErrNotDatabase] ([ErrEmpty] for an empty file), [ErrByteOrder] or
// [ErrCorrupt] when events.db is not a thread's database; and [ErrNetwork]. Errors
// that show only inside the database, such as [ErrNewerFormat], come from the first
// call that uses it.
func Open(dir string, opts ...Option) (*Thread, error) {
	return newThread(func(o bolt.Options) (*bolt.Store, error) { return bolt.Open(dir, o) }, opts)
}

// OpenOrCreate is [Open], and [Init] where there is no thread yet.
func OpenOrCreate(dir string, opts ...Option) (*Thread, error) {
	t, err := Open(dir, opts...)
	if !errors.Is(err, ErrNotThread) {
		return t, err
	}
	if t, err = Init(dir, opts...); errors.Is(err, ErrExists) {
		return Open(dir, opts...) // another process was faster
	}
	return t, err
}

// Init makes dir a thread directory, with its parents where they are missing,
// and returns a handle on it. What is in dir already stays, an events.jsonl too.
// The database appears complete or not at all: a crash leaves a directory that
// Init can be run on again.
//
// Init returns [ErrExists] when dir has an events.db already, whatever that is,
// [ErrNotDir] when dir or one of its parents is a file, and [ErrNetwork], having made
// nothing.
func Init(dir string, opts ...Option) (*Thread, error) {
	return newThread(func(o bolt.Options) (*bolt.Store, error) { return bolt.Init(dir, o) }, opts)
}

// OpenStore returns a handle on a thread that is in a store of another kind, which
// open opens. url is its address, and place where this host keeps what is its own. It is
// for the programs of this module, and not part of the promised API.
func OpenStore(url string, place store.Place, open func(l store.Logic, lockWait time.Duration) store.Store, opts ...Option) *Thread {
	o := options{Options: bolt.Options{Now: time.Now}}
	for _, set := range opts {
		set(&o)
	}
	t := &Thread{place: place, url: url, now: o.Now, onRelease: o.onRelease, feeds: new(feedLocks), counts: &lastCounts{of: map[string]Backlog{}, parts: map[string]keptParts{}}}
	t.s = open(logic{t}, o.LockTimeout)
	return t
}

// Exists reports whether dir is a thread directory: a directory with an
// events.db in it, of whatever kind.
func Exists(dir string) bool {
	info, err := os.Stat(filepath.Join(dir, bolt.DatabaseName))
	return err == nil && !info.IsDir()
}

// Destroy deletes the thread directory dir with everything in it; nothing of a thread
// is kept elsewhere. It returns [ErrNotThread], deleting nothing, for a directory
// that is not a thread, and [ErrNotDir] for a symbolic link to one, because the link
// and the directory may have different owners. Links in it are deleted, what they
// lead to stays. Handles on it, and handlers that are running, get errors.
func Destroy(dir string) error {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return err
	}
	if !Exists(abs) {
		return fmt.Errorf("%w: %s", ErrNotThread, abs)
	}
	if info, err := os.Lstat(abs); err != nil {
		return err
	} else if !info.IsDir() {
		return fmt.Errorf("%w: %s is a symbolic link", ErrNotDir, abs)
	}
	// The database goes first: half a deleted directory is not a thread.
	if err := os.Remove(filepath.Join(abs, bolt.DatabaseName)); err != nil {
		return err
	}
	return os.RemoveAll(abs)
}

// Write implements store.Logic. Of what was released it tells also when the outcome is
// unknown: starting a dispatch too many does no harm.
func (l logic) Write(tx store.Tx, batch bool, fn func(s store.Session) error) (w store.Written, err error) {
	s := &session{tx: Tx{t: l.t, s: tx}}
	var source string // of the last event that was released
	released := false
	if !batch {
		if source, released, err = s.tx.release(); err != nil {
			return w, err
		}
	}
	if err := fn(s); err != nil {
		return w, err
	}
	if released && l.t.onRelease != nil && s.tx.hasSubscriptions() {
		w.Ended = func() { l.t.onRelease(source) }
	}
	if !s.tx.pushes {
		return w, nil
	}
	w.Subscribed = l.Subscribed(tx)
	if err := s.tx.followClock(); err != nil {
		return w, err
	}
	return w, s.tx.sweepKeys()
}

// BeforeBatch implements store.Logic.
func (l logic) BeforeBatch(ctx context.Context) error {
	return l.t.read(ctx, func(*Tx) error { return nil })
}

// Subscribed implements store.Logic.
//
// Old events that the thread is to drop by itself are dropped by the process that starts the
// handlers.
func (l logic) Subscribed(tx store.Tx) bool {
	t := &Tx{t: l.t, s: tx}
	return t.hasSubscriptions() || t.overLimits()
}

// DropAfter implements store.Logic.
func (l logic) DropAfter(tx store.Tx, head int64, most int) (more bool, err error) {
	return (&Tx{t: l.t, s: tx}).dropKeysAfter(head, most)
}

// Push implements store.Session.
func (s *session) Push(d *event.Draft, createdAt string) (event.Event, bool, error) {
	return s.tx.pushOnce(d, createdAt)
}
