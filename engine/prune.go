package engine

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"thread/event"
	"thread/index"
)

// Retention says which events Prune drops. Exactly one of KeepLast, OlderThan,
// Acked and Through is set, or the first two: then what either keeps is kept, and a
// clock that is ahead drops no more than KeepLast allows. Events are dropped from the
// oldest on, never out of the middle.
type Retention struct {
	// KeepLast keeps the newest so many events. Zero keeps none; nil is not set.
	KeepLast *int64
	// OlderThan drops the oldest events whose created_at lies before that moment,
	// up to the first one that is younger or has a created_at that is no time. One
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
	// DryRun only says what would be dropped.
	DryRun bool
}

// HeldBackError says that a consumer has not acked an event that Prune would
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

// Prune drops old events by writing the database anew without them; see Compact
// for what that means to others. Ids never come back, the count of events ever
// stored stays, and so does events.jsonl.
//
// Prune returns a *HeldBackError, and drops nothing, when a subscribed consumer
// has an unread event among them that matches its filter, or any consumer a dead
// letter, unless Force is set. Dead letters of events that were dropped by force
// stay, without their events. Other errors are ErrInvalid for a Retention that is not one; and the errors of Compact.
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
		if err == nil {
			err = may(tx, id)
		}
		return id, err
	}
	if !r.DryRun {
		return t.rewrite(ctx, &dropping{through: through, may: may})
	}
	var c Compaction
	err := t.read(ctx, func(tx *Tx) (err error) {
		tx.ctx = ctx
		if c.Through, err = through(tx); err != nil {
			return err
		}
		c.Dropped, err = tx.storedThrough(c.Through)
		c.Kept = tx.st.stored - c.Dropped
		c.Before = tx.b.Size()
		c.Size = c.Before
		return err
	})
	return c, err
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
	case r.Through > tx.st.head:
		return 0, invalidf("through %d is above the newest id, %d", r.Through, tx.st.head)
	case r.Through > 0:
		return r.Through, nil
	case r.OlderThan.IsZero():
		return tx.beforeNewest(*r.KeepLast)
	}
	last, most := int64(0), tx.st.head
	if r.KeepLast != nil {
		var err error
		if most, err = tx.beforeNewest(*r.KeepLast); err != nil {
			return 0, err
		}
	}
	wrong := tx.t.now().Add(clockSkew)
	err := tx.eventsAfter(0, func(e *event.Event) error {
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
	upto := tx.st.head
	for _, s := range list {
		p, _, err := tx.Progress(s.Consumer)
		if err != nil {
			return 0, err
		}
		upto = min(upto, p.From())
	}
	if err := index.CheckPath(tx.events, nil); err != nil {
		return 0, err
	}
	first, _ := tx.events.Cursor().First()
	if first == nil || mustID(first) > upto {
		return 0, nil // they are gone already
	}
	return upto, nil
}

// beforeNewest returns the id of the event before the newest n, 0 when there
// are not more than n.
func (tx *Tx) beforeNewest(n int64) (int64, error) {
	if n >= tx.st.stored {
		return 0, nil
	}
	if err := index.CheckTree(tx.events); err != nil {
		return 0, err
	}
	if err := tx.groups.flush(); err != nil {
		return 0, err
	}
	c := tx.events.Cursor()
	var ids []int64 // of a group
	last := int64(math.MaxInt64)
	for k, v := c.Last(); k != nil; k, v = c.Prev() {
		g, err := openUnchecked(k, v)
		if err != nil {
			return 0, err
		}
		var r record
		for ids = ids[:0]; ; ids = append(ids, g.id) {
			if more, err := g.next(&r); err != nil {
				return 0, err
			} else if !more {
				break
			}
		}
		if ids[len(ids)-1] > last {
			return 0, corruptEvent(k)
		}
		last = ids[0] - 1
		for _, id := range slices.Backward(ids) {
			if id > tx.st.head {
				continue // of a batch that did not end
			}
			if n == 0 {
				return id, nil
			}
			n--
		}
	}
	return 0, nil
}

// mustID is eventID, 0 for what is no id.
func mustID(key []byte) int64 {
	id, err := eventID(key)
	if err != nil {
		return 0
	}
	return id
}

// storedThrough returns how many events with an id up to through there are.
func (tx *Tx) storedThrough(through int64) (n int64, err error) {
	if through == 0 {
		return 0, nil
	}
	_, err = tx.search(newVerdicts(nil)).run(0, through, func(*hit) (bool, error) {
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
	for _, bucket := range [][]byte{bucketDead, bucketRetries} {
		if err := tx.lettersThrough(bucket, through); err != nil {
			return err
		}
	}
	return nil
}

// lettersThrough returns a *HeldBackError for the first letter of a stored event up
// to through.
func (tx *Tx) lettersThrough(bucket []byte, through int64) error {
	b, err := index.Bucket(tx.b, bucket)
	if b == nil {
		return err
	}
	return index.Range(b, nil, func(k, _ []byte) (bool, error) {
		consumer, id, err := splitLetterKey(k)
		if err != nil || id > through {
			return true, err
		}
		if stored, err := tx.has(id); !stored {
			return err == nil, err // gone already
		}
		p, _, err := tx.Progress(consumer)
		if err != nil {
			return false, err
		}
		return false, &HeldBackError{Consumer: consumer, LastAcked: p.From(), First: id, Through: through, Dead: true}
	})
}
