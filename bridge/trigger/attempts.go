package trigger

import (
	"context"

	"thread/engine"
)

// noteAttempts logs the attempts that have begun and those that have failed since the
// latest look, and stores these in the ledger: the consumer forgets them with the
// attempt that succeeds. A process that is killed between both logs them again.
func (t *Trigger) noteAttempts(ctx context.Context, outcomes []engine.Outcome) error {
	busy := 0
	failed := map[*waitingEvent][]Attempt{}
	for i := range outcomes {
		o := &outcomes[i]
		w := t.open[o.ID]
		if list := attemptsOf(&o.Failures, w.attempts); len(list) > 0 {
			failed[w] = list
			t.logRetries(w, o, list)
		}
		if o.Out && !w.running {
			t.log.Info("executing", "trace_id", w.TraceID, "event", w.event, "attempt", o.Attempts+1)
		}
		if w.running = o.Out; o.Out {
			busy++
		}
	}
	t.metrics.set(func(m *Metrics) { m.busy = min(busy, t.cfg.Concurrency) })
	if len(failed) == 0 {
		return nil
	}
	err := t.again(ctx, "noting attempts", func() error {
		return t.th.Update(ctx, func(tx *engine.Tx) error {
			r, err := tx.Records(table)
			if err != nil {
				return err
			}
			book := &ledger{r: r, prefix: key(kindLedger, t.cfg.Name)}
			for w, list := range failed {
				if w.Row == 0 {
					continue
				}
				err := book.update(w.Row, func(row *Row) { row.addAttempts(list) })
				if err != nil {
					return err
				}
			}
			return nil
		})
	})
	if err != nil {
		return err
	}
	for w, list := range failed {
		w.attempts = list[len(list)-1].Number
	}
	return nil
}

func (r *Row) addAttempts(list []Attempt) {
	r.Attempts = append(r.Attempts, list...)
	r.Attempts = r.Attempts[max(0, len(r.Attempts)-engine.MaxHistory):]
	r.RetryCount = list[len(list)-1].Number
}

// attemptsOf returns the failed attempts after the first n. Of those that the engine does
// not keep one by one, only the first and the last one are known.
func attemptsOf(f *engine.Failures, n int64) (list []Attempt) {
	oldest := f.Attempts - int64(len(f.History)) // attempts without a separate history
	for n++; n <= f.Attempts; n++ {
		switch {
		case n > oldest:
			h := &f.History[n-oldest-1]
			list = append(list, Attempt{n, h.At.UTC(), Redact(h.Error)})
		case n == 1:
			list = append(list, Attempt{n, f.FirstAt.UTC(), Redact(f.FirstError)})
		case n == f.Attempts:
			list = append(list, Attempt{n, f.LastAt.UTC(), Redact(f.LastError)})
		}
	}
	return list
}

// logRetries logs failed attempts, except for the last one of a dead letter, after which
// there is no retry.
func (t *Trigger) logRetries(w *waitingEvent, o *engine.Outcome, list []Attempt) {
	for _, a := range list {
		if o.State == engine.Dead && a.Number == o.Attempts {
			continue
		}
		t.metrics.set(func(m *Metrics) { m.retries++ })
		t.log.Warn("trigger retry", "trace_id", w.TraceID, "event", w.event, "attempt", a.Number, "limit", t.cfg.MaxRetries+1,
			"delay", t.cfg.Delay(a.Number), "reason", a.Error, "at", a.At.Format(receivedLayout))
	}
}
