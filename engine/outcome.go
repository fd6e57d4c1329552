package engine

import (
	"thread/filter"
	"thread/index"
)

// Outcome is what has become of an event for one consumer.
type Outcome struct {
	ID    int64
	State OutcomeState
	// Failures is what is known of failed attempts, for a dead letter and for an
	// event that waits.
	Failures
}

// OutcomeState says where a consumer is with an event.
type OutcomeState int

// An event that was dropped before the consumer came to it, and one that its filter
// does not select, will never be given out.
const (
	Waiting   OutcomeState = iota // unread, or out, or to be tried again
	Passed                        // acked, or below what was acked
	Dead                          // a dead letter
	Unmatched                     // will never be given out
)

// Outcome returns what has become of the events with those ids, in their order. It
// does not matter who ran the consumer's handler. An event on which the filter
// fails waits.
//
// Outcome returns ErrNoSubscription and *filter.Error.
func (tx *Tx) Outcome(consumer string, ids ...int64) ([]Outcome, error) {
	s, err := tx.subscription(consumer)
	if err != nil {
		return nil, err
	}
	p, _, err := tx.Progress(consumer)
	if err != nil {
		return nil, err
	}
	d, err := tx.delivery(consumer)
	if err != nil {
		return nil, err
	}
	f, err := filter.Compile(s.Where())
	if err != nil {
		return nil, err
	}
	m := f.Matcher()
	list := make([]Outcome, len(ids))
	for i, id := range ids {
		o := &list[i]
		o.ID = id
		if found, err := tx.letterOf(bucketDead, consumer, id, o); err != nil || found {
			o.State = Dead
			if err != nil {
				return nil, err
			}
			continue
		}
		if found, err := tx.letterOf(bucketRetries, consumer, id, o); err != nil || found {
			if err != nil {
				return nil, err
			}
			continue
		}
		if id <= p.From() {
			o.State = Passed
			continue
		}
		o.Failures = d.failuresOf(id)
		e, ok, err := tx.event(id)
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

func (tx *Tx) letterOf(name []byte, consumer string, id int64, o *Outcome) (bool, error) {
	b, err := index.Bucket(tx.b, name)
	if b == nil {
		return false, err
	}
	key := letterKey(consumer, id)
	v, err := index.Get(b, key)
	if v == nil || err != nil {
		return false, err
	}
	o.Failures, err = decodeLetter(key, v)
	return true, err
}

// Subscribed reports whether the thread has a subscription, so that there may be
// handlers to start.
func (tx *Tx) Subscribed() bool { return tx.hasSubscriptions() }

// RetryDead is Thread.RetryDead for one letter in this transaction. It reports
// whether there was one whose event is stored.
func (tx *Tx) RetryDead(consumer string, id int64) (bool, error) { return tx.retryDead(consumer, id) }

// DropDead is Thread.DropDead for one letter in this transaction.
func (tx *Tx) DropDead(consumer string, id int64) error {
	dead, err := index.Bucket(tx.b, bucketDead)
	if dead == nil {
		return err
	}
	return index.Delete(dead, letterKey(consumer, id))
}
