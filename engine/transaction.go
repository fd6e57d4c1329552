package engine

import (
	"context"
	"errors"
	"time"

	"thread/event"
	"thread/internal/store"
)

// Tx is one transaction on a thread. It is valid only during the function it was
// given to, and only on that goroutine.
type Tx struct {
	t *Thread
	s store.Tx

	stampAt  int64  // milliseconds since 1970 of
	stampNow string // the latest created_at

	pushes bool // drafts were pushed, if only duplicates
	keyed  int  // dedupe keys added

	readErr error // of the first of the caller's records that could not be read

	ctx context.Context // ends long work in this transaction; nil where there is none
}

func (tx *Tx) now() time.Time {
	if c, ok := tx.s.(store.Clock); ok {
		return c.Now()
	}
	return tx.t.now()
}

// ended returns an error once the call that the transaction works for is called
// off.
func (tx *Tx) ended() error {
	if tx.ctx == nil || tx.ctx.Err() == nil {
		return nil
	}
	return context.Cause(tx.ctx)
}

// stamp returns created_at of an event that is pushed now. Many share one.
func (tx *Tx) stamp() string {
	now := tx.now()
	if ms := now.UnixMilli(); ms != tx.stampAt || tx.stampNow == "" {
		tx.stampAt, tx.stampNow = ms, event.FormatTime(now)
	}
	return tx.stampNow
}

// Head returns the id of the newest event, 0 when there was never one.
func (tx *Tx) Head() int64 { return tx.s.State().Head }

// Stored returns how many events there are that were not dropped.
func (tx *Tx) Stored() int64 { return tx.s.State().Stored }

// Size returns how many bytes the thread takes: of events.db, in a directory.
func (tx *Tx) Size() int64 { return tx.s.Size() }

// Push stores one event in this transaction and returns it. It returns [ErrInvalid]
// for a draft that is out of bounds and [ErrIDsExhausted] after id 2^63-1. For a
// draft whose dedupe key is known, nothing is stored and the first event returned.
// Push is for a few events; [Thread.PushAll] stores many.
func (tx *Tx) Push(d event.Draft) (event.Event, error) {
	if err := d.Validate(); err != nil {
		return event.Event{}, err
	}
	e, duplicate, err := tx.pushOnce(&d, tx.stamp())
	if duplicate && err == nil {
		e, _, err = tx.s.Event(e.ID)
	}
	return e, err
}

// read runs fn in a read transaction, after what has fallen due was released.
// Where that cannot be done, as on a read-only medium, fn reads what is there.
func (t *Thread) read(ctx context.Context, fn func(tx *Tx) error) error {
	err := t.readOnce(ctx, !t.quiet, fn)
	for errors.Is(err, errOverdue) {
		if rerr := t.Update(ctx, func(*Tx) error { return nil }); rerr != nil {
			return t.readOnce(ctx, false, fn)
		}
		err = t.readOnce(ctx, true, fn)
	}
	return err
}

// readOnce runs fn, or with release returns errOverdue when there is something
// to be released first.
func (t *Thread) readOnce(ctx context.Context, release bool, fn func(tx *Tx) error) error {
	return t.s.View(ctx, func(s store.Tx) error {
		tx := &Tx{t: t, s: s}
		if release {
			// What is damaged is the business of writers: the rest can be read.
			if overdue, err := tx.overdue(); overdue && err == nil {
				return errOverdue
			}
		}
		return fn(tx)
	})
}

// logic is what a thread does in the transactions of its store.
type logic struct{ t *Thread }

// Begin implements store.Logic.
func (l logic) Begin(tx store.Tx) store.Session { return &session{tx: Tx{t: l.t, s: tx}} }

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

// session is the thread's part in one write transaction.
type session struct {
	tx       Tx
	released bool
	source   string // of the last event that was released
	tell     bool   // handlers may have to be started
}

// Before implements store.Session.
func (s *session) Before() (err error) {
	s.source, s.released, err = s.tx.release()
	return err
}

// Push implements store.Session.
func (s *session) Push(d *event.Draft, createdAt string) (event.Event, bool, error) {
	return s.tx.pushOnce(d, createdAt)
}

// After implements store.Session.
func (s *session) After() error {
	s.tell = s.released && s.tx.t.onRelease != nil && s.tx.hasSubscriptions()
	if !s.tx.pushes {
		return nil
	}
	if err := s.tx.followClock(); err != nil {
		return err
	}
	return s.tx.sweepKeys()
}

// Ended implements store.Session. It tells of what was released also when the outcome
// is unknown: starting a dispatch too many does no harm.
func (s *session) Ended() {
	if s.tell {
		s.tx.t.onRelease(s.source)
	}
}
