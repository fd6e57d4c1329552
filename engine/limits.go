package engine

import (
	"context"
	"errors"
	"time"

	"thread/event"
	"thread/internal/store"
	"thread/internal/store/bolt"
)

// Limits is what a thread keeps by itself. Zero is not a limit.
//
// They hold once [Thread.Retain] has run after they were passed: thread serve calls it,
// and so does a push of the program or of a library user with package
// [thread/handlers], after its own commit and in another process. Where MaxBytes or
// MaxEvents is passed, an eighth more is dropped, and events are dropped for their age
// when the oldest is a 32nd of MaxAge too old, at most a day: the database is rewritten
// each time.
type Limits struct {
	MaxAge    time.Duration // by created_at
	MaxBytes  int64         // of events.db, at least MinLimitBytes
	MaxEvents int64
	// Force drops unread events and the events of dead letters as well.
	Force bool
}

// MinLimitBytes is the least that Limits.MaxBytes may be: an empty database takes
// bytes, too.
const MinLimitBytes = 1 << 20

// LimitsState is what holds and how it stands.
type LimitsState struct {
	Limits
	// Over is set when a limit is passed, and events are about to be dropped.
	Over bool
	// Held says who keeps events from being dropped that exceed the limits, nil when
	// no process does.
	Held *HeldBackError
	// Doubted is since when the clock has shown another time than the one up to which
	// age counts, Trusted; zero when it has not. Trusted follows it after a day.
	Doubted, Trusted time.Time
}

const (
	// A clock that jumps on by more, or by more than a quarter of MaxAge, is doubted:
	// what it makes too old was perhaps pushed a minute before.
	clockJump = 24 * time.Hour
	// It is followed after that time.
	clockDoubt = 24 * time.Hour
	// A thread that was not pushed to for so long is one that was put away.
	putAway = 365 * 24 * time.Hour
	// After a try that left the thread over its limits, the next one comes after that
	// time, or when the thread has grown by an eighth.
	retainPause = 10 * time.Minute
	retainGrown = 64
)

// SetLimits stores what the thread is to keep from now on; the zero Limits end that.
// Nothing is dropped before the next Retain. It returns [ErrInvalid] for a limit that
// is negative or too small.
func (t *Thread) SetLimits(ctx context.Context, l Limits) error {
	switch {
	case l.MaxAge < 0 || l.MaxBytes < 0 || l.MaxEvents < 0:
		return invalidf("a limit is negative")
	case l.MaxAge != 0 && l.MaxAge < time.Millisecond:
		return invalidf("the age is below a millisecond")
	case l.MaxBytes != 0 && l.MaxBytes < MinLimitBytes:
		return invalidf("%d bytes are fewer than %d", l.MaxBytes, MinLimitBytes)
	}
	return t.Update(ctx, func(tx *Tx) error {
		if l.MaxAge == 0 && l.MaxBytes == 0 && l.MaxEvents == 0 {
			return tx.s.Drop(store.LimitsTable)
		}
		now := tx.now()
		r := store.Limits{MaxAge: l.MaxAge, MaxBytes: l.MaxBytes, MaxEvents: l.MaxEvents, Force: l.Force, Trusted: now}
		if head := tx.Head(); head > 0 {
			e, stored, err := tx.s.Event(head)
			if err != nil {
				return err
			}
			if at, err := time.Parse(time.RFC3339, e.CreatedAt); stored && err == nil && now.Sub(at) > putAway {
				r.Trusted, r.Doubted = at, now // or the clock is ahead by years
			}
			r.AgeAt = r.Trusted // Retain finds when it is
		}
		return tx.putLimits(&r)
	})
}

// Limits returns the limits and how the thread stands, nil when there are none.
func (t *Thread) Limits(ctx context.Context) (s *LimitsState, err error) {
	err = t.read(ctx, func(tx *Tx) error {
		s, err = tx.limitsState()
		return err
	})
	return s, err
}

func (tx *Tx) limitsState() (*LimitsState, error) {
	l, err := tx.limits()
	if err != nil || l == nil {
		return nil, err
	}
	now := tx.now()
	s := &LimitsState{Limits: Limits{l.MaxAge, l.MaxBytes, l.MaxEvents, l.Force}, Over: tx.over(l), Trusted: upTo(l, now), Doubted: l.Doubted}
	if inStep(l, now) {
		s.Doubted = time.Time{}
	} else if s.Doubted.IsZero() {
		s.Doubted = now
	}
	if l.Wanted != 0 && !l.Force {
		if err = tx.heldBack(l.Wanted); errors.As(err, &s.Held) {
			return s, nil
		}
	}
	return s, err
}

// SetLines turns events.jsonl off, or on again. Without it a push writes fewer bytes, grep
// finds no events, and Repair has no lines to save events from. The file of the time
// before gets the name of a rotated one. It returns [ErrInvalid] for a thread on a server,
// which has no such file.
func (t *Thread) SetLines(ctx context.Context, on bool) error {
	s, ok := t.s.(*bolt.Store)
	if !ok {
		return invalidf("a thread on a server has no events.jsonl")
	}
	return s.SetLines(ctx, on)
}

// limits returns the record, nil when there is none.
func (tx *Tx) limits() (*store.Limits, error) {
	v, err := tx.s.Get(store.LimitsTable, store.LimitsKey)
	if v == nil || err != nil {
		return nil, err
	}
	l, err := store.DecodeLimits(v)
	return &l, err
}

func (tx *Tx) putLimits(l *store.Limits) error {
	return tx.s.Put(store.LimitsTable, store.LimitsKey, l.Encode())
}

// inStep reports whether the clock has gone on from Trusted without a jump.
func inStep(l *store.Limits, now time.Time) bool {
	d := now.Sub(l.Trusted)
	return d >= -clockSkew && d <= max(clockJump, l.MaxAge/4)
}

// upTo returns the time at which age is counted.
func upTo(l *store.Limits, now time.Time) time.Time {
	if inStep(l, now) || now.Before(l.Trusted) {
		return now
	}
	return l.Trusted
}

// follow lets Trusted follow the clock and reports whether the record is to be stored.
func follow(l *store.Limits, now time.Time) bool {
	switch {
	case inStep(l, now):
		if l.Doubted.IsZero() && now.Sub(l.Trusted) < clockJump/8 {
			return false
		}
		l.Doubted = time.Time{}
		if now.After(l.Trusted) {
			l.Trusted = now
		}
	case l.Doubted.IsZero() || now.Before(l.Doubted):
		l.Doubted = now
	case now.Sub(l.Doubted) < clockDoubt:
		return false
	default:
		l.Trusted, l.Doubted = now, time.Time{}
		l.AgeAt = now // perhaps it was computed by another clock
	}
	return true
}

// followClock is the part of a push in it. A record that is damaged keeps no process from
// pushing.
func (tx *Tx) followClock() error {
	l, err := tx.limits()
	if l == nil || err != nil || !follow(l, tx.now()) {
		if errors.Is(err, ErrCorrupt) {
			err = nil
		}
		return err
	}
	return tx.putLimits(l)
}

// overLimits reports whether Retain is to be called.
func (tx *Tx) overLimits() bool {
	l, err := tx.limits()
	if l == nil || err != nil || !tx.over(l) {
		return false
	}
	if l.NextID == 0 || tx.Head() >= l.NextID {
		return true
	}
	since := tx.now().Sub(l.TriedAt)
	return since < -clockSkew || since >= retainPause
}

// over reports whether a limit is passed.
func (tx *Tx) over(l *store.Limits) bool {
	st := tx.s.State()
	return st.Stored > 0 && (l.MaxEvents > 0 && st.Stored > l.MaxEvents || l.MaxBytes > 0 && tx.s.Size() > l.MaxBytes ||
		l.MaxAge > 0 && !upTo(l, tx.now()).Before(l.AgeAt))
}

// RetainDue reports whether [Thread.Retain] has something to do, if only to note the
// time. It takes one short read.
func (t *Thread) RetainDue(ctx context.Context) (due bool, err error) {
	err = t.View(ctx, func(tx *Tx) error {
		l, err := tx.limits()
		due = l != nil && err == nil && (follow(l, tx.now()) || tx.overLimits())
		return err
	})
	return due, err
}

// createdAt returns when an event was created; not ok where created_at is not a time.
func createdAt(e *event.Event) (at time.Time, ok bool) {
	at, err := time.Parse(time.RFC3339, e.CreatedAt)
	return at, err == nil
}
