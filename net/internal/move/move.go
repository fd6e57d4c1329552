// Package move copies whole threads between directories and PostgreSQL: events with their
// ids and times, subscriptions, positions, deliveries, dead letters, dedupe keys, schedules
// and what is settled.
package move

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"

	"thread/engine"
	"thread/event"
	"thread/internal/store"
	"thread/internal/store/bolt"
	"thread/net/pgstore"
)

// Report says what was copied.
type Report struct {
	Events    int64
	Resumed   int64 // events that an earlier try had stored
	Dropped   bool  // what an earlier try had stored was of another thread
	Consumers int64 // with a subscription
	Digest    [sha256.Size]byte
}

// Progress is told how many events are copied, and of how many.
type Progress func(done, total int64)

// ErrChanged says that the source was written meanwhile.
var ErrChanged = errors.New("the thread was written while it was copied")

// A batch is durable when it is stored, and not read again.
const (
	batchEvents = 2000
	batchBytes  = 4 << 20
)

// source is what is copied: everything but the events, and these.
type source struct {
	t    *engine.Thread
	snap *store.Snapshot
	each func(after int64, fn func(e *event.Event) error) error
}

// read calls fn with what a thread holds.
func read(ctx context.Context, t *engine.Thread, fn func(s *source) error) error {
	if of, ok := t.Store().(*pgstore.Store); ok {
		return of.Read(ctx, func(snap *store.Snapshot, each func(int64, func(e *event.Event) error) error) error {
			return fn(&source{t, snap, each})
		})
	}
	// The events that are there stay as they are, so that no process has to wait for the copy.
	if err := t.View(ctx, func(*engine.Tx) error { return nil }); err != nil {
		return err
	}
	snap, err := store.TakeSnapshot(ctx, t.Store())
	if err != nil {
		return err
	}
	return fn(&source{t, &snap, func(after int64, fn func(e *event.Event) error) error {
		for e, err := range t.Events(ctx, engine.Query{After: after}) {
			if err == nil && e.ID <= snap.Head {
				err = fn(&e)
			}
			if err != nil || e.ID >= snap.Head {
				return err
			}
		}
		return nil
	}})
}

// ToServer copies a thread into one in PostgreSQL that is not there yet. One that was
// interrupted continues where it was. The thread is there when all of it is, and its digest
// equals the digest of from.
func ToServer(ctx context.Context, from *engine.Thread, to *pgstore.Address, progress Progress) (r Report, err error) {
	from = from.WithoutRelease()
	for {
		err := read(ctx, from, func(s *source) error {
			r.Events, r.Consumers = s.snap.Stored, int64(len(s.snap.Subscriptions))
			return s.toServer(ctx, to, &r, progress)
		})
		if !errors.Is(err, pgstore.ErrOther) || r.Dropped {
			return r, err
		}
		if err := pgstore.Abandon(ctx, to); err != nil {
			return r, err
		}
		r.Dropped = true
	}
}

func (s *source) toServer(ctx context.Context, to *pgstore.Address, r *Report, progress Progress) (err error) {
	dst, err := pgstore.StartRestore(ctx, to, s.snap)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, dst.Close()) }()
	r.Resumed = dst.Stored()
	var batch []event.Event
	size := 0
	add := func() error {
		err := dst.Add(ctx, batch)
		batch, size = batch[:0], 0
		progress(dst.Stored(), r.Events)
		return err
	}
	same := r.Resumed == 0 // the newest that is stored is the source's
	err = s.each(max(s.snap.Floor, dst.Last()-1), func(e *event.Event) error {
		if !same {
			same = true
			return dst.Same(ctx, e)
		}
		batch, size = append(batch, *e), size+len(e.Content)+100
		if len(batch) < batchEvents && size < batchBytes {
			return nil
		}
		return add()
	})
	if err == nil && !same {
		err = pgstore.ErrOther
	}
	if err == nil && len(batch) > 0 {
		err = add()
	}
	if err != nil {
		return err
	}
	if err = dst.Finish(ctx, s.snap); err != nil {
		return err
	}
	built := engine.OpenStore(to.URL, store.Place{}, dst.Store)
	if r.Digest, err = built.WithoutRelease().Digest(ctx); err != nil {
		return err
	}
	if sum, err := s.t.Digest(ctx); err != nil {
		return err
	} else if sum != r.Digest {
		return ErrChanged
	}
	return dst.Publish(ctx)
}

// ToDirectory copies a thread into a directory that is missing or empty, where it
// appears complete or not at all.
func ToDirectory(ctx context.Context, from *engine.Thread, dir string, progress Progress) (r Report, err error) {
	from = from.WithoutRelease()
	err = read(ctx, from, func(s *source) error {
		r.Events, r.Consumers = s.snap.Stored, int64(len(s.snap.Subscriptions))
		return s.toDirectory(dir, progress)
	})
	if err != nil {
		return r, err
	}
	built, err := engine.Open(dir)
	if err != nil {
		return r, err
	}
	defer built.Close()
	r.Digest, err = built.WithoutRelease().Digest(ctx)
	return r, err
}

func (s *source) toDirectory(dir string, progress Progress) (err error) {
	dst, err := bolt.StartRestore(dir, false)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, dst.Close()) }()
	done := int64(0)
	err = s.each(0, func(e *event.Event) error {
		done++
		progress(done, s.snap.Stored)
		return dst.Event(e)
	})
	if err != nil {
		return err
	}
	for i := range s.snap.Subscriptions {
		sub := &s.snap.Subscriptions[i]
		if err := dst.Subscription(*sub, sub.Ordinal, sub.Options()); err != nil {
			return err
		}
	}
	for _, p := range s.snap.Progress {
		if err := dst.Progress(p.Consumer, p.ProgressRecord); err != nil {
			return err
		}
	}
	for _, x := range s.snap.Extras {
		if err := dst.Extra(x); err != nil {
			return fmt.Errorf("table %q: %w", x.Bucket, err)
		}
	}
	if err := dst.Finish(s.snap.LastID, s.snap.Pruned); err != nil {
		return err
	}
	return dst.Publish()
}
