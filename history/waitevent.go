package history

import (
	"context"
	"strings"
	"time"

	"thread/engine"
	"thread/event"
)

// eventWaits returns the runs that wait for an event.
func (h *History) eventWaits(ctx context.Context) (rows []RunRow, err error) {
	err = h.View(ctx, func(tx *Tx) error {
		rows = nil
		for _, id := range tx.ids([]byte{byWaitEvent}) {
			var row RunRow
			if err := tx.must(&row, id); err != nil {
				return err
			}
			rows = append(rows, row)
		}
		return nil
	})
	return rows, err
}

// answerEvents queues the runs whose events have come, before their time has. It returns the ids
// of the steps of all runs that waited for an event.
func (h *History) answerEvents(ctx context.Context) (asked map[string]bool, err error) {
	rows, err := h.eventWaits(ctx)
	if err != nil || len(rows) == 0 {
		return nil, err
	}
	t, done, err := h.parentThread()
	if err != nil {
		return nil, err
	}
	defer done()
	asked = map[string]bool{}
	for i := range rows {
		job, _ := JobOf(&rows[i])
		asked[job.Wait.Step] = true
		q := engine.Query{After: h.lookedFrom(job.Wait), Filter: job.Wait.Filter, Limit: 1}
		var head int64
		if err := t.View(ctx, func(tx *engine.Tx) error { head = tx.Head(); return nil }); err != nil {
			return nil, err
		}
		found := false
		for e, err := range t.Events(ctx, q) {
			if err != nil {
				return nil, err
			}
			found = true
			if err := h.answerEvent(ctx, rows[i].ID, job.Wait.Step, &e); err != nil {
				return nil, err
			}
		}
		h.looked(job.Wait, head, found)
	}
	return asked, nil
}

// answerEvent stores that the event has come, if the run waits and its time has not come before.
func (h *History) answerEvent(ctx context.Context, run, step string, e *event.Event) error {
	ms, _ := event.ParseTime(e.CreatedAt)
	a := Answer{Result: Happened, EventID: e.ID}
	if len(e.Content) <= MaxAnswer {
		a.Content = strings.Clone(e.Content)
	}
	return h.Update(ctx, func(tx *Tx) error {
		var row RunRow
		if there, err := tx.Get(&row, run); err != nil || !there || row.Status != Waiting {
			return err
		}
		job, _ := JobOf(&row)
		if job.Wait == nil || job.Wait.Step != step || !job.Due.IsZero() && ms > job.Due.UnixMilli() {
			return nil
		}
		return tx.answer(&row, &a)
	})
}

// lookedFrom returns the event up to which this handle has looked for what a run waits for.
func (h *History) lookedFrom(w *Wait) int64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	return max(w.After, h.lookedTo[w.Step])
}

// looked stores that, until the event is found.
func (h *History) looked(w *Wait, to int64, found bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.lookedTo == nil {
		h.lookedTo = map[string]int64{}
	}
	if h.lookedTo[w.Step] = to; found {
		delete(h.lookedTo, w.Step)
	}
}

// queuePlaces are where release and take begin to look in the indexes.
var queuePlaces = [][]byte{{byReady}, {byDue}, {byReadyOld}, {byWaitEvent}}

// release queues the runs that have become due, and returns when the next one is, the zero
// time where there is none, and whether a run may be ready. The event that a run waits for is
// looked for after the moment at which the time of the wait has come: an event that came
// before is the answer.
func (h *History) release(ctx context.Context) (next time.Time, ready bool, err error) {
	for first := true; ; first = false {
		var upto time.Time
		todo, waits := false, false
		err = h.View(h.wantsIndexes(ctx, nil, queuePlaces...), func(tx *Tx) error {
			upto = tx.now
			ids, at, old := tx.toRelease(upto)
			next, todo, waits = at, len(ids) > 0 || old, tx.any([]byte{byWaitEvent})
			ready = tx.any([]byte{byReady})
			return nil
		})
		h.mu.Lock()
		h.eventsWaited = waits
		h.mu.Unlock()
		var asked map[string]bool // the waits for events that were looked for
		if err == nil && waits && (first || todo) {
			asked, err = h.answerEvents(ctx)
			ready = true // with an answer
		}
		if err != nil || !todo {
			return next, ready, err
		}
		err = h.Update(ctx, func(tx *Tx) error {
			ids, _, old := tx.toRelease(upto)
			if old {
				if err := tx.readyOld(); err != nil {
					return err
				}
			}
			for _, id := range ids {
				if err := tx.due(id, asked); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return next, false, err
		}
	}
}

// eventWatch wakes a worker when an event comes that a run may wait for.
type eventWatch struct {
	h    *History
	done func()
	w    engine.Watcher // nil: no run has waited for an event yet
}

// context returns a context that ends with ctx, or when something is pushed into the thread while
// a run waits for an event. It returns false where the watch has just begun: what came before is
// to be looked for.
func (e *eventWatch) context(ctx context.Context) (_ context.Context, stop func(), watched bool, err error) {
	e.h.mu.Lock()
	waits := e.h.eventsWaited
	e.h.mu.Unlock()
	if !waits {
		return ctx, func() {}, true, nil
	}
	if e.w == nil {
		t, done, err := e.h.parentThread()
		if err != nil {
			return nil, nil, false, err
		}
		if e.w, err = t.Watch(); err != nil {
			done()
			return nil, nil, false, err
		}
		e.done = done
		return nil, nil, false, nil
	}
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		defer cancel()
		_ = e.w.Wait(ctx, time.Time{}) // after an error, the worker looks again
	}()
	return ctx, func() { cancel(); <-ended }, true, nil
}

func (e *eventWatch) close() {
	if e.w != nil {
		e.h.leaveWatch(e.w)
		e.done()
	}
}
