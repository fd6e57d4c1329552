package engine

import (
	"context"
	"errors"
	"iter"
	"time"

	"thread/event"
	"thread/internal/store"
	"thread/internal/watch"
)

// How long Follow waits at most before it reads again: where file notices come they
// are only its safety net, and where there are none to be had they are the way.
// Variables for the tests.
var (
	followSweep = 30 * time.Second
	followPoll  = time.Second
	newWatcher  = watch.New
)

// Follow is [Thread.Events] without an end: first the events after the given id that
// match the filter ("" for all), then new ones as they are pushed, in id order, each
// exactly once, until ctx ends. It is not a consumer and stores no progress: to continue
// later, pass the id of the last event received.
//
//	for e, err := range t.Follow(ctx, last, "type = 'message'") { … }
//
// Nothing is open or locked while the caller has an event. Waiting costs nothing
// where the system notifies of written files, except for a read every 30 s in case a
// notice was lost; where the system has no more notices to give, Follow reads every
// second. Scheduled events are released when they fall due, as by any call. A
// database that others hold for too long ([ErrBusy]) is waited for.
//
// The last pair has an error, unless the caller ends the loop. It is the cause of the
// end of ctx, [*filter.Error], an error that wraps [filter.ErrRuntime] when the filter
// fails on an event, [ErrInvalid] for a negative id, or [ErrClosed] when the handle was
// closed. Reads return further errors, as [ErrNotThread] when the directory is gone.
func (t *Thread) Follow(ctx context.Context, after int64, filter string) iter.Seq2[event.Event, error] {
	return func(yield func(event.Event, error) bool) {
		f := follower{t: t, filter: filter, after: after, seen: -1}
		// The watcher comes first: then nothing falls between the first read and it.
		if w, err := t.watch(ctx); err == nil {
			defer w.Close()
			f.watcher = w
		}
		for {
			more, err := f.read(ctx, yield)
			if !more {
				return
			}
			if err == nil || errors.Is(err, ErrBusy) {
				err = f.wait(ctx)
			}
			if err != nil && !errors.Is(err, ErrBusy) {
				yield(event.Event{}, err)
				return
			}
		}
	}
}

// Watcher waits for what is written in a thread.
type Watcher = store.Watcher

// Watch returns what waits for writes to the thread, from now on. It is for the programs
// of this module, and not part of the promised API.
func (t *Thread) Watch() (Watcher, error) { return t.watch(context.Background()) }

func (t *Thread) watch(ctx context.Context) (Watcher, error) {
	if s, ok := t.s.(store.Watching); ok {
		return s.Watch(ctx), nil
	}
	w, err := newWatcher(t.Dir())
	if err != nil {
		return nil, err
	}
	return w, nil
}

// follower is a Follow under way.
type follower struct {
	t       *Thread
	filter  string
	after   int64   // the id that was yielded or passed over last
	seen    int64   // the newest id at the last read, -1 before the first
	watcher Watcher // nil: there is none to be had
}

// read yields what has come. It returns false when the caller has enough.
func (f *follower) read(ctx context.Context, yield func(event.Event, error) bool) (more bool, err error) {
	head := int64(0)
	if err := f.t.View(ctx, func(tx *Tx) error { head = tx.Head(); return nil }); err != nil {
		return true, err
	}
	if head == f.seen {
		return true, nil
	}
	for e, err := range f.t.Events(ctx, Query{After: f.after, Filter: f.filter}) {
		if err != nil {
			return true, err
		}
		f.after = e.ID
		if !yield(e, nil) {
			return false, nil
		}
	}
	// What did not match up to there need not be read again.
	f.after, f.seen = max(f.after, head), head
	return true, nil
}

// wait returns when something may have come.
func (f *follower) wait(ctx context.Context) error {
	pause := followSweep
	if f.watcher == nil {
		pause = followPoll
	}
	until := time.Now().Add(pause)
	next, err := f.t.NextScheduled(ctx)
	if err != nil && !errors.Is(err, ErrBusy) {
		return err
	}
	if err != nil {
		until = time.Now().Add(followPoll)
	} else if !next.IsZero() && next.Before(until) {
		until = next
	}
	if f.watcher != nil {
		return f.watcher.Wait(ctx, until)
	}
	timer := time.NewTimer(time.Until(until))
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-timer.C:
		return nil
	}
}
