package history

import (
	"context"
	"iter"
	"time"

	"thread/engine"
	"thread/event"
	"thread/internal/watch"
)

// Changes gives the history events with ids above after that match the filter, in
// order; a filter is a SQL condition on the event, as "type = 'run'", and "" all.
func (h *History) Changes(ctx context.Context, after int64, filter string) iter.Seq2[Change, error] {
	return func(yield func(Change, error) bool) {
		t, err := h.thread(false)
		if err != nil {
			yield(Change{}, err)
			return
		}
		if t == nil {
			return
		}
		for e, err := range t.Events(ctx, engine.Query{After: after, Filter: filter}) {
			if !give(&e, err, yield) {
				return
			}
		}
	}
}

func give(e *event.Event, err error, yield func(Change, error) bool) bool {
	var c Change
	if err == nil {
		c, err = ParseChange(e)
	}
	return yield(c, err) && err == nil
}

// Follow is [History.Changes] that goes on with what is written later, until ctx
// ends, whose cause is then the last element. Nothing is left out between the two,
// and nothing comes twice.
func (h *History) Follow(ctx context.Context, after int64, filter string) iter.Seq2[Change, error] {
	return func(yield func(Change, error) bool) {
		t, err := h.thread(true)
		if err != nil {
			yield(Change{}, err)
			return
		}
		w, err := watch.New(h.dir) // before the first look: nothing falls between
		if err != nil {
			yield(Change{}, err)
			return
		}
		defer w.Close()
		for {
			for e, err := range t.Events(ctx, engine.Query{After: after, Filter: filter}) {
				if !give(&e, err, yield) {
					return
				}
				after = e.ID
			}
			if err := w.Wait(ctx, time.Time{}); err != nil {
				yield(Change{}, err)
				return
			}
		}
	}
}
