package engine

import (
	"context"
	"fmt"
	"iter"
	"math"
	"slices"
	"time"

	"thread/event"
	"thread/internal/store"
)

// The widths of the windows, in ids, through which events are read newest first:
// each is searched forward, in one short transaction.
const (
	firstWindow  = 256
	windowEvents = 512              // at most that many are returned of one
	quickWindow  = time.Millisecond // one that took less is followed by a wider one
)

// newestFirst yields the selected events from the newest to the oldest.
func (t *Thread) newestFirst(ctx context.Context, v *store.Selection, after, limit int64, canFail bool, yield func(event.Event, error) bool) {
	if canFail {
		// An error is to stand alone, so all that would be read is tried first.
		for _, err := range t.backward(ctx, v, after, limit, false) {
			if err != nil {
				yield(event.Event{}, err)
				return
			}
		}
	}
	for e, err := range t.backward(ctx, v, after, limit, true) {
		if !yield(e, err) {
			return
		}
	}
}

// backward goes through the windows. Without load, events have nothing but ids.
func (t *Thread) backward(ctx context.Context, v *store.Selection, after, limit int64, load bool) iter.Seq2[event.Event, error] {
	return func(yield func(event.Event, error) bool) {
		upto, width := int64(-1), int64(firstWindow)
		for limit > 0 && upto != 0 {
			var found []event.Event
			err := t.read(ctx, func(tx *Tx) (err error) {
				if upto < 0 {
					upto = tx.Head()
				}
				start := time.Now()
				from := after
				if width < upto-after {
					from = upto - width
				}
				found, upto, err = tx.window(v, from, upto, limit, load)
				if time.Since(start) < quickWindow && width <= math.MaxInt64/2 {
					width *= 2 // imported ids may lie far apart
				}
				if upto <= after {
					upto = 0
				}
				return err
			})
			if err != nil {
				yield(event.Event{}, err)
				return
			}
			for _, e := range found {
				limit--
				if !yield(e, nil) {
					return
				}
			}
		}
	}
}

// window returns the last matching events in (from, upto], newest first: at most
// limit, and fewer when they are large. What is older than the last one, down to
// rest, was not read; rest is from when everything was.
func (tx *Tx) window(v *store.Selection, from, upto, limit int64, load bool) (events []event.Event, rest int64, err error) {
	limit = min(limit, windowEvents)
	var hits []int64
	rest = from
	if _, err := tx.s.Scan(store.Scan{Selection: v, After: from, Upto: upto}, func(id int64) (bool, error) {
		if int64(len(hits)) == 2*limit {
			hits = append(hits[:0], hits[limit:]...)
			rest = hits[0] - 1
		}
		hits = append(hits, id)
		return true, nil
	}); err != nil {
		return nil, 0, err
	}
	if n := int64(len(hits)) - limit; n > 0 {
		hits = hits[n:]
		rest = hits[0] - 1
	}
	size := 0
	for _, id := range slices.Backward(hits) {
		e := event.Event{ID: id}
		if load {
			var ok bool
			v.Reads.Events++
			if e, ok, err = tx.s.Event(id); err == nil && !ok {
				err = fmt.Errorf("%w: event %d", ErrCorrupt, id)
			}
			if err != nil {
				return nil, 0, err
			}
		}
		events = append(events, e)
		if size += len(e.Content); size > resultBytes {
			return events, e.ID - 1, nil
		}
	}
	return events, rest, nil
}
