package engine

import (
	"thread/filter"
	"thread/internal/store"
)

// Outcome is what has become of an event for one consumer.
type Outcome struct {
	ID    int64
	State DeliveryState
	// Out says that a delivery of it has begun whose result is not stored: its process
	// works on it, or was killed.
	Out bool
	// Failures is what is known of failed attempts, for a dead letter and for an
	// event that waits.
	Failures
}

// Outcome returns what has become of the events with those ids, in their order: like
// [Tx.Standing], and [Unmatched] for what the filter does not select or what was
// dropped before the consumer came to it. It does not matter who ran the consumer's
// handler. An event on which the filter fails is unread.
//
// Outcome returns [ErrNoSubscription] and [*filter.Error].
func (tx *Tx) Outcome(consumer string, ids ...int64) ([]Outcome, error) {
	s, err := tx.subscription(consumer)
	if err != nil {
		return nil, err
	}
	f, err := filter.Compile(s.Where())
	if err != nil {
		return nil, err
	}
	m := f.Matcher()
	list := make([]Outcome, len(ids))
	all := &standings{tx: tx, consumer: consumer}
	for i, id := range ids {
		o := &list[i]
		o.ID = id
		state, l, err := all.of(id)
		if err != nil {
			return nil, err
		}
		o.State, o.Failures = state, failures(&l)
		if o.Out, err = all.out(id); err != nil {
			return nil, err
		}
		if o.State != Unread {
			continue
		}
		e, ok, err := tx.s.Event(id)
		if err != nil {
			return nil, err
		}
		if !ok {
			o.State = Unmatched
			continue
		}
		row := filter.Row{ID: e.ID, CreatedAt: e.CreatedAt, Source: e.Source, Type: e.Type, Content: e.Content}
		if e.Subtype != nil {
			row.Subtype, row.HasSubtype = *e.Subtype, true
		}
		if matches, err := m.Match(&row); err == nil && !matches {
			o.State = Unmatched
		}
	}
	return list, nil
}

// DropDead is [Thread.DropDead] for one letter in this transaction.
func (tx *Tx) DropDead(consumer string, id int64) error {
	return tx.s.Delete(store.Dead, store.LetterKey(consumer, id))
}
