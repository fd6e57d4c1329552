package engine

import (
	"context"
	"errors"
	"math"
	"time"

	"thread/event"
	"thread/internal/store"
	"thread/jsonlog"
)

// Retain drops the events that the thread's [Limits] say are to be dropped, the oldest
// first, and does nothing while none is passed, or while another process does it. Events
// that a consumer waits for, and events of dead letters, stay with all that are newer,
// unless Limits.Force is set; [Thread.Limits] says who it is then. Ids never come back.
// What it takes others to wait is as for [Thread.Prune]. Bytes that the database has and does not
// use count as gone already; where they are enough, it is compacted.
//
// Where events.jsonl has more than 1 MiB and more than an eighth of what the database
// takes then, the next push begins a new one, whatever lines it holds. Afterwards the rotated files of lines whose events are all gone are deleted, and the
// rotated logs that were written last before the oldest event that is left. Its errors
// are the errors of Prune, except for *HeldBackError.
func (t *Thread) Retain(ctx context.Context) (c Compaction, err error) {
	var l *store.Limits
	err = t.Update(ctx, func(tx *Tx) (err error) {
		if l, err = tx.limits(); l == nil || err != nil {
			return err
		}
		moved := follow(l, tx.now())
		if !tx.overLimits() {
			if moved {
				err = tx.putLimits(l)
			}
			l = nil
			return err
		}
		// Others leave it to this call from now on.
		l.TriedAt, l.NextID = tx.now(), tx.Head()+max(retainGrown, tx.s.State().Stored/8)
		return tx.putLimits(l)
	})
	if err != nil || l == nil {
		return c, err
	}
	wanted, loose, err := t.beyondLimits(ctx, l)
	if err != nil {
		return c, err
	}
	if wanted == 0 && loose {
		done, err := t.s.Compact(ctx)
		if err != nil {
			return c, err
		}
		return Compaction(done), t.retained(ctx, 0, false)
	}
	may := func(tx *Tx, through int64) error {
		if l.Force || through == 0 {
			return nil
		}
		return tx.heldBack(through)
	}
	through := wanted
	err = t.read(ctx, func(tx *Tx) error {
		tx.ctx = ctx
		var held *HeldBackError
		for errors.As(may(tx, through), &held) {
			through = held.First - 1
		}
		return may(tx, through)
	})
	if err == nil && through > 0 {
		var done store.Compaction
		done, err = t.s.Prune(ctx, store.Dropping{
			Rotate: true,
			Through: func(s store.Tx) (int64, error) {
				if oldest, err := s.Oldest(); err != nil || oldest == 0 || oldest > through {
					return 0, err // gone already
				}
				return through, nil
			},
			May: func(s store.Tx, id int64) error { return may(&Tx{t: t, s: s, ctx: ctx}, id) },
		})
		c = Compaction(done)
		if held := (*HeldBackError)(nil); errors.As(err, &held) {
			c, err, through = Compaction{}, nil, 0 // it was set back meanwhile
		}
	}
	if err != nil {
		return c, err
	}
	return c, t.retained(ctx, wanted, wanted > through)
}

// retained notes what has become of a try, and deletes files.
func (t *Thread) retained(ctx context.Context, wanted int64, held bool) error {
	var oldest int64
	var since time.Time // created_at of the oldest event
	err := t.Update(ctx, func(tx *Tx) error {
		l, err := tx.limits()
		if err != nil || l == nil {
			return err // ended meanwhile
		}
		now := upTo(l, tx.now())
		if oldest, since, err = tx.oldest(now); err != nil {
			return err
		}
		l.AgeAt = now.Add(l.MaxAge + ageSlack(l))
		if !since.IsZero() {
			l.AgeAt = since.Add(l.MaxAge + ageSlack(l))
		}
		if l.Wanted = 0; held {
			l.Wanted = wanted
		}
		if !held && !tx.over(l) {
			l.NextID = 0
		}
		return tx.putLimits(l)
	})
	if err != nil || oldest == 0 {
		return err
	}
	return jsonlog.DropRotated(t.Dir(), oldest, since)
}

// oldest returns the oldest event, 0 for none, and its created_at, zero where that is
// no time before now.
func (tx *Tx) oldest(now time.Time) (id int64, at time.Time, err error) {
	if id, err = tx.s.Oldest(); id == 0 || err != nil {
		return id, at, err
	}
	e, _, err := tx.s.Event(id)
	if created, ok := createdAt(&e); err == nil && ok && created.Before(now) {
		at = created
	}
	return id, at, err
}

// dropRotated deletes the files that have gone with their events, as Retain does.
func (t *Thread) dropRotated(ctx context.Context) error {
	var oldest int64
	var since time.Time
	err := t.read(ctx, func(tx *Tx) (err error) {
		oldest, since, err = tx.oldest(tx.now())
		return err
	})
	if err != nil || oldest == 0 {
		return err
	}
	return jsonlog.DropRotated(t.Dir(), oldest, since)
}

// ageSlack is how much too old the oldest event becomes. With it the age is still a
// duration.
func ageSlack(l *store.Limits) time.Duration {
	return min(l.MaxAge/32, 24*time.Hour, math.MaxInt64-l.MaxAge)
}

// beyondLimits returns the id up to which events exceed the limits, 0 for none, and
// whether the thread takes too many bytes only because it does not use them all. It reads
// in slices.
func (t *Thread) beyondLimits(ctx context.Context, l *store.Limits) (through int64, loose bool, err error) {
	var old time.Time   // what is created before is too old
	var wrong time.Time // what is created later was, while the clock was ahead
	var excess int64    // bytes to drop
	var most int64
	err = t.read(ctx, func(tx *Tx) (err error) {
		st := tx.s.State()
		most = st.Head
		now := upTo(l, tx.now())
		if l.MaxAge > 0 {
			old, wrong = now.Add(-l.MaxAge), now.Add(clockSkew)
		}
		if size := tx.s.Size(); l.MaxBytes > 0 && size > l.MaxBytes {
			size -= tx.s.Unused() // goes without any event
			excess = size - (l.MaxBytes - l.MaxBytes/8)
			loose = excess <= 0
		}
		if l.MaxEvents > 0 && st.Stored > l.MaxEvents {
			through, err = tx.s.BeforeNewest(l.MaxEvents - l.MaxEvents/8)
		}
		return err
	})
	young := l.MaxAge == 0
	for at, more := int64(0), err == nil; more; {
		err = t.read(ctx, func(tx *Tx) error {
			more = false
			from := at
			return tx.s.EventsAfter(at, func(e *event.Event) error {
				if at > from && tx.s.Yield() {
					more = true
					return errYoung
				}
				created, ok := createdAt(e)
				switch {
				case young:
				case ok && created.Before(old):
					through = max(through, e.ID)
				case !ok || !created.After(wrong):
					young = true
				}
				if excess > 0 {
					excess -= eventBytes(e)
					through = max(through, e.ID)
				}
				if at = e.ID; young && excess <= 0 || at >= most {
					return errYoung
				}
				return nil
			})
		})
		if errors.Is(err, errYoung) {
			err = nil
		}
		more = more && err == nil
	}
	return through, loose, err
}

// Prune drops old events by rewriting the database without them; see [Thread.Compact]
// for what that means to others. Ids never come back, the count of events ever stored
// stays, and so does events.jsonl, except for Retention.Lines.
//
// Prune returns a *HeldBackError, and drops nothing, when a subscribed consumer has
// an unread event among them that matches its filter, or any consumer a dead letter,
// unless Force is set. Dead letters of events that were dropped by force stay,
// without their events. Other errors are [ErrInvalid] for an invalid [Retention], and
// the errors of Compact.
func (t *Thread) Prune(ctx context.Context, r Retention) (Compaction, error) {
	if err := r.validate(); err != nil {
		return Compaction{}, err
	}
	may := func(tx *Tx, through int64) error {
		if r.Force || through == 0 {
			return nil
		}
		return tx.heldBack(through)
	}
	through := func(tx *Tx) (int64, error) {
		id, err := r.through(tx)
		if err != nil {
			return id, err
		}
		return id, may(tx, id)
	}
	if !r.DryRun {
		c, err := t.s.Prune(ctx, store.Dropping{
			Rotate:  r.Lines,
			Through: func(s store.Tx) (int64, error) { return through(&Tx{t: t, s: s, ctx: ctx}) },
			May:     func(s store.Tx, id int64) error { return may(&Tx{t: t, s: s, ctx: ctx}, id) },
		})
		if err == nil && c.Dropped > 0 && r.Lines {
			err = t.dropRotated(ctx)
		}
		return Compaction(c), err
	}
	var c Compaction
	err := t.read(ctx, func(tx *Tx) (err error) {
		tx.ctx = ctx
		if c.Through, err = through(tx); err != nil {
			return err
		}
		c.Dropped, err = tx.storedThrough(c.Through)
		c.Kept = tx.s.State().Stored - c.Dropped
		c.Before = tx.s.Size()
		c.Size = c.Before
		return err
	})
	return c, err
}

// eventBytes is about what an event takes in the database.
func eventBytes(e *event.Event) int64 { return int64(len(e.Content)) + 32 }
