package engine

import (
	"context"
	"errors"
	"math"

	"thread/filter"
	"thread/internal/store"
)

// Due says whether a consumer has work.
type Due struct {
	Subscription
	Progress Progress
	First    int64 // id of the first unread event that matches, 0 when there is none
	Newest   int64 // the newest id at the time of the look
	Err      error // the filter is invalid, or it failed on an event; First is 0
	// Retried is how often something was handed back to the consumer: a dead letter,
	// or whatever Seek went back over. A letter that is to be given out again counts
	// as unread for Due and for DueFor with after = 0: First is then its id.
	Retried int64
}

// Due returns, in the order of subscription, every consumer that has an unread
// event that matches, or whose filter cannot say, and is not paused, but those with
// Pull. Events are read only where the
// series leave the answer open, and what was read is remembered, so that no
// event is read for the same filter twice.
func (t *Thread) Due(ctx context.Context) ([]Due, error) {
	var due []Due
	searches, err := t.searchDue(ctx, func(tx *Tx) (searches []*dueSearch, err error) {
		list, err := tx.subscriptionList()
		for _, s := range list {
			if !s.Pull { // nothing is started for that one
				searches = append(searches, &dueSearch{sub: s})
			}
		}
		return searches, err
	})
	for _, l := range searches {
		if l.due.First != 0 || l.due.Err != nil {
			due = append(due, l.due)
		}
	}
	return due, err
}

// DueFor is [Thread.Due] for one consumer. First is the first unread match with an id
// above after. It returns [ErrNoSubscription] for an unknown consumer.
func (t *Thread) DueFor(ctx context.Context, consumer string, after int64) (Due, error) {
	l := &dueSearch{after: after}
	_, err := t.searchDue(ctx, func(tx *Tx) (_ []*dueSearch, err error) {
		l.sub, err = tx.subscription(consumer)
		return []*dueSearch{l}, err
	})
	return l.due, err
}

// dueSearch is the search for a consumer's first unread event. It goes in slices,
// so that writers get their turn next to it.
type dueSearch struct {
	sub   *store.Subscription
	after int64 // ids up to this one do not interest
	due   Due

	reading
	from int64 // where the search began
}

// searchDue carries out the searches that list returns in the first transaction, as
// many in one transaction as its time allows.
func (t *Thread) searchDue(ctx context.Context, list func(tx *Tx) ([]*dueSearch, error)) (searches []*dueSearch, err error) {
	var spare *store.Selection // of the search before
	var todo []*dueSearch
	for listed := false; !listed || len(todo) > 0; {
		err := t.read(ctx, func(tx *Tx) (err error) {
			if !listed {
				if searches, err = list(tx); err != nil {
					return err
				}
				todo, listed = searches, true
			}
			if ahead, ok := tx.s.(store.Ahead); ok {
				todo, err = tx.rounds(ahead, todo)
				return err
			}
			for first := true; len(todo) > 0 && (first || !tx.s.Yield()); first = false {
				l := todo[0]
				done, err := l.step(tx, spare)
				if err != nil {
					return err
				}
				if !done {
					return nil
				}
				if l.selection != nil {
					spare = l.selection
				}
				todo = todo[1:]
			}
			return nil
		})
		if err != nil {
			return searches, err
		}
	}
	t.rememberChecked(ctx, searches)
	return searches, nil
}

// mostAbreast bounds the memory of searches that continue side by side.
const mostAbreast = 512

// rounds searches for many consumers side by side, so that what a store reads for all of them
// at once is one way to a server, and not one for each. It returns those that have not ended
// when the slice ends.
func (tx *Tx) rounds(ahead store.Ahead, todo []*dueSearch) ([]*dueSearch, error) {
	for first := true; len(todo) > 0 && (first || !tx.s.Yield()); first = false {
		n := min(len(todo), mostAbreast)
		left, err := tx.round(ahead, todo[:n])
		if err != nil {
			return todo, err
		}
		todo = append(left, todo[n:]...)
	}
	return todo, nil
}

func (tx *Tx) round(ahead store.Ahead, all []*dueSearch) (left []*dueSearch, err error) {
	var searching []*dueSearch
	var scans []store.Scan
	for _, l := range all {
		done, err := l.begin(tx, nil)
		if err != nil {
			return nil, err
		}
		if !done {
			searching, scans = append(searching, l), append(scans, l.scan(tx.Head()))
		}
	}
	if err := ahead.ReadAhead(scans); err != nil {
		return nil, err
	}
	for _, l := range searching {
		done, err := l.search(tx)
		if err != nil {
			return nil, err
		}
		if !done {
			left = append(left, l)
		}
	}
	return left, nil
}

// due is a whole search in this transaction.
func (tx *Tx) due(s *store.Subscription, after int64) (Due, error) {
	l := &dueSearch{sub: s, after: after}
	for {
		if done, err := l.step(tx, nil); done || err != nil {
			return l.due, err
		}
		if err := tx.ended(); err != nil {
			return l.due, err
		}
	}
}

// step searches on for a while.
func (l *dueSearch) step(tx *Tx, spare *store.Selection) (done bool, err error) {
	if done, err = l.begin(tx, spare); done || err != nil {
		return done, err
	}
	return l.search(tx)
}

// begin comes before each part of the search, because progress may have moved since the last
// one. It ends the search where no event has to be looked at.
func (l *dueSearch) begin(tx *Tx, spare *store.Selection) (done bool, err error) {
	head := tx.s.State().Head
	l.due = Due{Subscription: subscriptionOf(l.sub), Newest: head}
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
	if after >= head {
		return true, nil
	}
	if l.selection == nil {
		if tx.checkedUpTo(l.sub, after) == head {
			return true, nil
		}
		f, err := filter.Compile(l.sub.Where())
		if err != nil {
			l.due.Err = err
			return true, nil
		}
		l.reading = reading{selection: store.NewSelection(f, spare), limit: math.MaxInt64}
		l.from = math.MaxInt64
	}
	if after < l.from { // the first step, or the consumer went back
		l.from = after
		l.reading.after = after
		if upto := tx.checkedUpTo(l.sub, after); upto > after {
			l.reading.after = upto
		}
	}
	l.reading.after = max(l.reading.after, after)
	l.skip, err = tx.settledOf(l.sub.Consumer, l.due.Progress.From())
	return false, err
}

func (l *dueSearch) search(tx *Tx) (done bool, err error) {
	head := tx.s.State().Head
	l.reading.after, err = tx.s.Scan(l.scan(head), func(id int64) (bool, error) {
		if _, settled := l.skip.find(id); settled {
			return true, nil
		}
		l.due.First = id
		return false, nil
	})
	if errors.Is(err, filter.ErrRuntime) {
		l.due.First, l.due.Err = 0, err
		return true, nil
	}
	return l.due.First != 0 || l.reading.after >= head, err
}
