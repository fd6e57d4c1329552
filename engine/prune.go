package engine

import (
	"context"
	"errors"
	"fmt"
	"time"

	"thread/event"
	"thread/internal/store"
)

// Compaction is the result of [Thread.Compact] and [Thread.Prune].
type Compaction struct {
	Dropped      int64 // events that were dropped
	Through      int64 // the id up to which they were dropped, 0 when none was
	Kept         int64 // events that are left
	Before, Size int64 // bytes of events.db before and after; the same when nothing was done
}

// Compact rewrites the database without the pages that it does not use, and
// puts the copy in its place in one step. What the thread holds stays as it is.
// The copy is made in slices, like any long read, and what is written meanwhile is
// part of it: others wait for the last step only. The disk needs space for both. The
// new file has the owner, the group and the mode of the old one; Compact returns
// [ErrOwner], having changed nothing, where this account cannot give it those.
//
// Compact returns [ErrBusy], also while another process compacts or prunes, and
// [ErrUnknownOutcome] when the new file has its name but may lose it in a loss of
// power; both files hold the same events then.
func (t *Thread) Compact(ctx context.Context) (Compaction, error) {
	c, err := t.s.Compact(ctx)
	return Compaction(c), err
}

// Retention says which events [Thread.Prune] drops. Exactly one of KeepLast,
// OlderThan, Acked and Through is set, or the first two: then what either keeps is
// kept, and a clock that is ahead drops no more than KeepLast allows. Events are
// dropped from the oldest on, never out of the middle.
type Retention struct {
	// KeepLast keeps the newest that many events. Zero keeps none; nil is not set.
	KeepLast *int64
	// OlderThan drops the oldest events whose created_at lies before that moment,
	// up to the first one that is younger or has a created_at that is not a time. One
	// whose created_at lies in the future was stored while the clock was ahead: it
	// keeps nothing, and goes with the next event that is older.
	OlderThan time.Time
	// Acked drops what every consumer has acked; nothing when there is none.
	Acked bool
	// Through drops the events up to and including that id, which may not be above
	// the newest.
	Through int64

	// Force drops events that a consumer has not acked, too.
	Force bool
	// Lines deletes rotated files of lines and logs with the events, as [Thread.Retain] does.
	Lines bool
	// DryRun only says what would be dropped.
	DryRun bool
}

// HeldBackError says that a consumer has not acked an event that [Thread.Prune] would
// drop, or has it as a dead letter, which could not be sent back any more.
type HeldBackError struct {
	Consumer  string
	LastAcked int64 // everything up to here is acked or a dead letter
	First     int64 // the first event that waits for the consumer
	Through   int64 // what Prune would drop reaches up to here
	Dead      bool  // that event is a dead letter; the consumer need not be subscribed
}

func (e *HeldBackError) Error() string {
	if e.Dead {
		return fmt.Sprintf("event %d is a dead letter of consumer %q", e.First, e.Consumer)
	}
	return fmt.Sprintf("consumer %q has not acked event %d", e.Consumer, e.First)
}

func (r *Retention) validate() error {
	set := 0
	for _, is := range []bool{r.KeepLast != nil || !r.OlderThan.IsZero(), r.Acked, r.Through != 0} {
		if is {
			set++
		}
	}
	if set != 1 {
		return invalidf("one of keep last, older than, acked and through, or the first two")
	}
	if r.Through < 0 {
		return invalidf("through is negative")
	}
	if r.KeepLast != nil && *r.KeepLast < 0 {
		return invalidf("keep last is negative")
	}
	return nil
}

// through returns the id up to which events are to be dropped, 0 for none.
func (r *Retention) through(tx *Tx) (int64, error) {
	switch {
	case r.Acked:
		return tx.ackedThrough()
	case r.Through > tx.Head():
		return 0, invalidf("through %d is above the newest id, %d", r.Through, tx.Head())
	case r.Through > 0:
		return r.Through, nil
	case r.OlderThan.IsZero():
		return tx.s.BeforeNewest(*r.KeepLast)
	}
	last, most := int64(0), tx.Head()
	if r.KeepLast != nil {
		var err error
		if most, err = tx.s.BeforeNewest(*r.KeepLast); err != nil {
			return 0, err
		}
	}
	wrong := tx.now().Add(clockSkew)
	err := tx.s.EventsAfter(0, func(e *event.Event) error {
		at, err := time.Parse(time.RFC3339, e.CreatedAt)
		switch {
		case e.ID > most:
			return errYoung
		case err == nil && at.Before(r.OlderThan):
			last = e.ID
		case err != nil || !at.After(wrong):
			return errYoung
		}
		return nil
	})
	if errors.Is(err, errYoung) {
		err = nil
	}
	return last, err
}

var errYoung = fmt.Errorf("an event that is kept")

// ackedThrough returns the id up to which every consumer has acked, 0 when no
// event is left there.
func (tx *Tx) ackedThrough() (int64, error) {
	list, err := tx.subscriptionList()
	if err != nil || len(list) == 0 {
		return 0, err
	}
	upto := tx.Head()
	for _, s := range list {
		p, _, err := tx.Progress(s.Consumer)
		if err != nil {
			return 0, err
		}
		upto = min(upto, p.From())
	}
	first, err := tx.s.Oldest()
	if err != nil || first == 0 || first > upto {
		return 0, err // they are gone already
	}
	return upto, nil
}

// storedThrough returns how many events with an id up to through there are.
func (tx *Tx) storedThrough(through int64) (n int64, err error) {
	if through == 0 {
		return 0, nil
	}
	_, err = tx.s.Scan(store.Scan{Selection: store.NewSelection(nil, nil), Upto: through}, func(int64) (bool, error) {
		n++
		return true, nil
	})
	return n, err
}

// heldBack returns a *HeldBackError for the first consumer, in the order of
// subscription, with an unread event up to through that matches. A filter that
// cannot say holds everything back.
func (tx *Tx) heldBack(through int64) error {
	list, err := tx.subscriptionList()
	if err != nil {
		return err
	}
	for _, s := range list {
		d, err := tx.due(s, 0)
		if err != nil {
			return err
		}
		from := d.Progress.From()
		if d.Err != nil && from < through {
			d.First = from + 1
		}
		if d.First != 0 && d.First <= through {
			return &HeldBackError{Consumer: s.Consumer, LastAcked: from, First: d.First, Through: through}
		}
	}
	for _, table := range []store.Table{store.Dead, store.Retries} {
		if err := tx.lettersThrough(table, through); err != nil {
			return err
		}
	}
	return nil
}

// lettersThrough returns a *HeldBackError for the first letter of a stored event up
// to through.
func (tx *Tx) lettersThrough(table store.Table, through int64) error {
	return tx.s.Ascend(table, nil, func(k, _ []byte) (bool, error) {
		consumer, id, err := store.SplitLetterKey(k)
		if err != nil || id > through {
			return true, err
		}
		if stored, err := tx.s.Has(id); !stored {
			return err == nil, err // gone already
		}
		p, _, err := tx.Progress(consumer)
		if err != nil {
			return false, err
		}
		return false, &HeldBackError{Consumer: consumer, LastAcked: p.From(), First: id, Through: through, Dead: true}
	})
}
