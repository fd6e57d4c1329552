// Package watch tells when something is written in a thread directory, without
// polling and without holding its database. It is internal to this program and
// makes no promise to library users.
package watch

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"time"

	"github.com/fsnotify/fsnotify"
)

// Watcher watches one thread directory from the moment it is made. Make it
// before the first look at the thread: then nothing falls between.
type Watcher struct{ w *fsnotify.Watcher }

// New returns a watcher of the thread directory dir.
func New(dir string) (*Watcher, error) {
	w, err := fsnotify.NewWatcher()
	if err != nil {
		return nil, err
	}
	if err := w.Add(dir); err != nil {
		w.Close()
		return nil, err
	}
	return &Watcher{w}, nil
}

// Wait returns nil when the database was written since the last call, or may
// have been, or is gone, and when until is reached, unless that is zero. It
// returns the cause of the end of ctx.
//
// A reader then waits for the writer's lock, and so sees what it wrote.
func (w *Watcher) Wait(ctx context.Context, until time.Time) error {
	var timeout <-chan time.Time
	var timer *time.Timer
	if !until.IsZero() {
		timer = time.NewTimer(Nap(until))
		defer timer.Stop()
		timeout = timer.C
	}
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-timeout:
			nap := Nap(until)
			if nap <= 0 {
				return nil
			}
			timer.Reset(nap)
		case e, ok := <-w.w.Events:
			if !ok {
				return ErrClosed
			}
			if !e.Has(fsnotify.Chmod) && isThreadFile(e.Name) {
				w.drain()
				return nil
			}
		case _, ok := <-w.w.Errors:
			if !ok {
				return ErrClosed
			}
			return nil // an overflow: anything may have been written
		}
	}
}

// longestNap is a variable for the tests.
var longestNap = time.Minute

// Nap returns how long to sleep at once while waiting for until, 0 or less when it
// is reached. A timer does not notice that the clock is set: a host that begins
// without one sets it forward by years.
func Nap(until time.Time) time.Duration { return min(time.Until(until), longestNap) }

// ErrClosed says that the watcher is closed.
var ErrClosed = errors.New("the watcher is closed")

// drain takes what is there: one look answers all of it.
func (w *Watcher) drain() {
	for {
		select {
		case _, ok := <-w.w.Events:
			if !ok {
				return
			}
		default:
			return
		}
	}
}

func isThreadFile(path string) bool {
	name := filepath.Base(path)
	return name == "events.db" || name == "events.journal" || name == "events.jsonl"
}

// Written returns the size of the database of a thread directory, and when the database or
// its journal was last written. A journalled commit leaves the database as it is.
func Written(dir string) (at time.Time, size int64, err error) {
	info, err := os.Stat(filepath.Join(dir, "events.db"))
	if err != nil {
		return at, 0, err
	}
	at = info.ModTime()
	if journal, err := os.Stat(filepath.Join(dir, "events.journal")); err == nil && journal.ModTime().After(at) {
		at = journal.ModTime()
	}
	return at, info.Size(), nil
}

// Close ends the watching.
func (w *Watcher) Close() error { return w.w.Close() }
