package engine

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"time"

	"thread/internal/store"
	"thread/lock"
)

// A feed holds the lock run/<consumer>.feed from its first delivery until Close, and
// Thread.Next shares it during the call: two feeds would take each other's deliveries for
// the locks of a process that was killed. The lock dies with the process. A thread on a server
// has no such lock; a host works for a consumer while it has the consumer's turn.

// feedWait is how long a feed waits for the lock: a killed process has it until all its
// descriptors are closed, and a call of Next for as long as it takes.
const feedWait = 250 * time.Millisecond

// newFeedLock returns the lock of a feed, which the collector releases if the feed is not
// closed; nil for a thread on a server.
func newFeedLock[F any](t *Thread, f *F, consumer string) *feedLock {
	if t.url != "" {
		return nil
	}
	l := &feedLock{of: t.feeds, path: t.place.Path(store.RunName, lock.Name(consumer)+".feed")}
	runtime.AddCleanup(f, (*feedLock).release, l)
	return l
}

// take takes the lock, unless it is held already under that name, and returns
// ErrConsumerBusy when another feed holds it.
func (l *feedLock) take(ctx context.Context, m lock.Mode) error {
	if l == nil {
		return nil
	}
	if l.stillHeld() {
		return nil
	}
	limited, cancel := context.WithTimeout(ctx, feedWait)
	defer cancel()
	held, err := lock.Open(limited, l.path, m)
	if errors.Is(err, os.ErrNotExist) { // run/ may be deleted at any time
		if err = lock.Mkdir(filepath.Dir(l.path)); err == nil {
			held, err = lock.Open(limited, l.path, m)
		}
	}
	switch {
	case errors.Is(err, lock.ErrHeld) && ctx.Err() != nil:
		return context.Cause(ctx)
	case errors.Is(err, lock.ErrHeld):
		return ErrConsumerBusy
	case err != nil:
		return fmt.Errorf("the lock of the consumer: %w", err)
	}
	l.of.mu.Lock()
	defer l.of.mu.Unlock()
	if l.held = held; l.of.held == nil {
		l.of.held = map[*feedLock]bool{}
	}
	l.of.held[l] = true
	return nil
}

// Feeding reports whether a process holds the consumer's lock for a [Feed] or
// [ParallelFeed]. For a thread on a server, whose feeds have no such lock, it reports true.
func (t *Thread) Feeding(consumer string) (bool, error) {
	if t.url != "" {
		return true, nil
	}
	path := t.place.Path(store.RunName, lock.Name(consumer)+".feed")
	if _, err := os.Stat(path); errors.Is(err, os.ErrNotExist) {
		return false, nil // to try it would make it
	}
	l, err := lock.Try(path, lock.Shared)
	if errors.Is(err, lock.ErrHeld) {
		return true, nil
	}
	if err != nil {
		return false, err
	}
	return false, l.Close()
}

// stillHeld reports whether the lock is held on the file that has its name.
func (l *feedLock) stillHeld() bool {
	l.of.mu.Lock()
	held := l.held
	l.of.mu.Unlock()
	if held == nil {
		return false
	}
	if named, _ := lock.Names(l.path, held.File()); named {
		return true
	}
	l.release()
	return false
}

// release releases the lock if it is held.
func (l *feedLock) release() {
	if l == nil {
		return
	}
	l.of.mu.Lock()
	defer l.of.mu.Unlock()
	if l.held != nil {
		l.held.Close()
	}
	l.held = nil
	delete(l.of.held, l)
}

// Close is [Feed.Close] for a ParallelFeed.
func (f *ParallelFeed) Close() error {
	f.lock.release()
	return nil
}
