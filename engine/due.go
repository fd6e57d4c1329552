package engine

import (
	"context"
	"errors"
	"math"
	"time"

	"thread/filter"
	"thread/index"
)

// Due says whether a consumer has work.
type Due struct {
	Subscription
	Progress Progress
	First    int64 // id of the first unread event that matches, 0 when there is none
	Newest   int64 // the newest id at the time of the look
	Err      error // the filter is not one, or it failed on an event; First is 0
	// Retried is how often something was handed back to the consumer: a dead letter,
	// or whatever Seek went back over. A letter that is to be given out again counts
	// as unread for Due and for DueFor with after = 0: First is then its id.
	Retried int64
}

// Due returns, in the order of subscription, every consumer that has an unread
// event that matches, or whose filter cannot say, and is not paused. Events are read only where the
// series leave the answer open, and what was read is remembered, so that no
// event is read for the same filter twice.
func (t *Thread) Due(ctx context.Context) ([]Due, error) {
	var list []*Subscription
	err := t.read(ctx, func(tx *Tx) (err error) {
		list, err = tx.subscriptionList()
		return err
	})
	var looks []*look
	for _, s := range list {
		looks = append(looks, &look{sub: s})
	}
	if err == nil {
		err = t.look(ctx, looks)
	}
	var due []Due
	for _, l := range looks {
		if l.due.First != 0 || l.due.Err != nil {
			due = append(due, l.due)
		}
	}
	return due, err
}

// DueFor is Due for one consumer. First is the first unread match with an id
// above after. It returns ErrNoSubscription for an unknown consumer.
func (t *Thread) DueFor(ctx context.Context, consumer string, after int64) (Due, error) {
	l := &look{after: after}
	err := t.read(ctx, func(tx *Tx) (err error) {
		l.sub, err = tx.subscription(consumer)
		return err
	})
	if err == nil {
		err = t.look(ctx, []*look{l})
	}
	return l.due, err
}

// look is one consumer's search for its first unread event. It goes in slices,
// so that writers get their turn beside it.
type look struct {
	sub   *Subscription
	after int64 // ids up to this one do not interest
	due   Due

	reading
	from int64 // where the search began
	seen int   // events it read
}

// look carries out several looks, as many in one transaction as its time allows.
func (t *Thread) look(ctx context.Context, looks []*look) error {
	var spare index.Answers // of the look before
	for todo := looks; len(todo) > 0; {
		err := t.read(ctx, func(tx *Tx) error {
			deadline := time.Now().Add(sliceTime)
			for first := true; len(todo) > 0 && (first || time.Now().Before(deadline)); first = false {
				l := todo[0]
				done, err := l.step(tx, spare)
				if err != nil {
					return err
				}
				if !done {
					return nil
				}
				if l.verdicts != nil {
					spare, l.verdicts.answers = l.verdicts.answers, index.Answers{}
				}
				todo = todo[1:]
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	t.rememberLooks(ctx, looks)
	return nil
}

// due is a whole look in this transaction.
func (tx *Tx) due(s *Subscription, after int64) (Due, error) {
	l := &look{sub: s, after: after}
	for {
		if done, err := l.step(tx, index.Answers{}); done || err != nil {
			return l.due, err
		}
		if err := tx.ended(); err != nil {
			return l.due, err
		}
	}
}

// step searches on for a while. Progress may have moved since the last step.
func (l *look) step(tx *Tx, spare index.Answers) (done bool, err error) {
	l.due = Due{Subscription: *l.sub, Newest: tx.st.head}
	if l.due.Progress, _, err = tx.Progress(l.sub.Consumer); err != nil {
		return false, err
	}
	if l.sub.Paused {
		return true, nil
	}
	if err := tx.dueRetries(&l.due, l.after); err != nil || l.due.First != 0 {
		return true, err
	}
	after := max(l.after, l.due.Progress.From())
	if after >= tx.st.head {
		return true, nil
	}
	if l.verdicts == nil {
		if tx.checkedUpTo(l.sub, after) == tx.st.head {
			return true, nil
		}
		f, err := filter.Compile(l.sub.Where())
		if err != nil {
			l.due.Err = err
			return true, nil
		}
		l.reading = reading{verdicts: newVerdictsIn(f, spare), limit: math.MaxInt64}
		l.from = math.MaxInt64
	}
	if after < l.from { // the first step, or the consumer went back
		l.from = after
		l.reading.after = after
		if upto := tx.checkedUpTo(l.sub, after); upto > after {
			l.reading.after = upto
		}
	}
	s := l.search(tx)
	at := max(l.reading.after, after)
	l.reading.after, err = s.run(at, tx.st.head, func(h *hit) (bool, error) {
		l.due.First = h.id
		return false, nil
	})
	l.seen += s.read
	if errors.Is(err, filter.ErrRuntime) {
		l.due.First, l.due.Err = 0, err
		return true, nil
	}
	return l.due.First != 0 || l.reading.after >= tx.st.head, err
}
