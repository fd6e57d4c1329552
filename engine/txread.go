package engine

import (
	"errors"
	"iter"

	"thread/event"
)

// Event returns the event with that id, as a copy, and whether it is stored. One
// that this transaction has pushed may not be found yet.
func (tx *Tx) Event(id int64) (e event.Event, ok bool, err error) {
	if id <= 0 || id > tx.st.head {
		return event.Event{}, false, nil
	}
	return tx.event(id)
}

// Events gives the events with ids above after in id order, those that this
// transaction has pushed too. An event is valid until the next one is asked for,
// and nothing may be pushed before the loop has ended. An error is the last element.
func (tx *Tx) Events(after int64) iter.Seq2[*event.Event, error] {
	return func(yield func(*event.Event, error) bool) {
		if err := tx.groups.flush(); err != nil {
			yield(nil, err)
			return
		}
		err := tx.eventsAfter(after, func(e *event.Event) error {
			if !yield(e, nil) {
				return errEnough
			}
			return nil
		})
		if err != nil && !errors.Is(err, errEnough) {
			yield(nil, err)
		}
	}
}

// errEnough ends a loop that its caller has left.
var errEnough = errors.New("enough")
