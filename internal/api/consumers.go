package api

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"thread/engine"
	"thread/event"
	"thread/internal/dispatch"
)

const (
	maxEvents  = 100                  // of one delivery
	maxLease   = 366 * 24 * time.Hour // as thread next
	maxTimeout = 2 * time.Minute      // for which a request for events may wait
	leastPause = 10 * time.Millisecond
)

// taking is a request for the next events of a consumer.
type taking struct {
	Limit   int64  `json:"limit"`
	Lease   string `json:"lease"`
	Timeout string `json:"timeout"`
	Ack     bool   `json:"ack"`
}

// settling is a request about a delivery.
type settling struct {
	Delivery any    `json:"delivery"` // the text that next answered
	Error    string `json:"error"`    // of retry
	Lease    string `json:"lease"`    // of extend
}

func (r *taking) options() (o engine.NextOptions, timeout time.Duration, err error) {
	if r.Limit < 0 || r.Limit > maxEvents {
		return o, 0, badRequest("limit is not from 1 to %d", maxEvents)
	}
	o = engine.NextOptions{Limit: r.Limit, Ack: r.Ack}
	if o.Lease, err = leaseOf(r.Lease, false); err != nil {
		return o, 0, err
	}
	if r.Lease != "" && r.Ack {
		return o, 0, badRequest("lease and ack exclude each other")
	}
	timeout, err = wait("timeout", r.Timeout, maxTimeout)
	return o, timeout, err
}

func leaseOf(text string, needed bool) (time.Duration, error) {
	d, err := wait("lease", text, maxLease)
	if err == nil && d < time.Millisecond && (needed || text != "") {
		err = badRequest("lease is not from 1ms to 366d")
	}
	return d, err
}

// next takes the next events of a consumer, for which it waits so long. It answers 204
// when there are none.
func (a *API) next(rw http.ResponseWriter, q *http.Request) error {
	t, err := a.host.Thread(q.PathValue("name"))
	if err != nil {
		return err
	}
	var r taking
	if err := decode(q, &r); err != nil {
		return err
	}
	o, timeout, err := r.options()
	if err != nil {
		return err
	}
	consumer := q.PathValue("consumer")
	sign, err := a.signing(q.Context(), t)
	if err != nil {
		return err
	}
	l, err := a.await(q, t, consumer, o, timeout)
	answering(rw)
	if err != nil {
		return err
	}
	if len(l.Events) == 0 {
		if q.Context().Err() != nil {
			return errGone
		}
		rw.WriteHeader(http.StatusNoContent)
		return nil
	}
	if err := writeLease(rw, &l, sign, consumer); err != nil && !o.Ack {
		// No process got them. When that fails, too, they are redelivered after the lease.
		_, _ = t.Engine().SettleDelivery(context.WithoutCancel(q.Context()), consumer, l.Number(), engine.Result{Verdict: engine.Returned})
		return errGone
	}
	return nil
}

// await takes events, for which it waits so long.
func (a *API) await(q *http.Request, t Thread, consumer string, o engine.NextOptions, timeout time.Duration) (l engine.Lease, err error) {
	end := time.Now().Add(timeout)
	waits, ctx := false, q.Context()
	for {
		changed := t.Changed() // before the look: a change during it leads to another one
		// What is begun is brought to an end: a lease that no process hears of is lost time.
		l, err = dispatch.TakeNext(context.WithoutCancel(ctx), t.Engine(), consumer, o)
		left := time.Until(end)
		if err != nil || len(l.Events) > 0 || left <= 0 || ctx.Err() != nil {
			return l, err
		}
		if !waits {
			release, err := a.host.Wait(q)
			if err != nil {
				return l, err
			}
			defer release()
			waits = true
		}
		if !l.NotBefore.IsZero() {
			left = min(left, max(time.Until(l.NotBefore), leastPause))
		}
		timer := time.NewTimer(left)
		select {
		case <-changed:
		case <-timer.C:
		case <-ctx.Done():
		case <-t.Gone():
			end = time.Time{}
		case <-a.host.Done():
			end = time.Time{}
		}
		timer.Stop()
		if ctx.Err() != nil {
			return engine.Lease{}, errGone
		}
	}
}

// writeLease answers with a delivery, and returns an error when no process takes it.
func writeLease(rw http.ResponseWriter, l *engine.Lease, sign signing, consumer string) error {
	rw.Header().Set("Content-Type", "application/json")
	out := bufio.NewWriterSize(rw, 32<<10)
	delivery, attempt, until := "null", "null", "null"
	if !l.Until.IsZero() {
		delivery, until = `"`+sign.Text(l.Number(), sign.owner, consumer)+`"`, `"`+event.FormatTime(l.Until)+`"`
		if l.Attempt > 0 {
			attempt = fmt.Sprint(l.Attempt)
		}
	}
	_, _ = fmt.Fprintf(out, `{"delivery":%s,"attempt":%s,"lease_until":%s,"events":[`, delivery, attempt, until)
	err := writeEvents(out, l.Events)
	_, _ = out.WriteString("]}\n")
	return errors.Join(err, out.Flush(), http.NewResponseController(rw).Flush())
}

// settling reads a request about a delivery.
func (a *API) settling(q *http.Request) (t Thread, r settling, err error) {
	if t, err = a.host.Thread(q.PathValue("name")); err != nil {
		return t, r, err
	}
	return t, r, decode(q, &r)
}

// delivery returns the number of the delivery that a request is about.
func (a *API) delivery(q *http.Request, t Thread, r *settling) (int64, error) {
	text, ok := r.Delivery.(string)
	if !ok {
		return 0, badRequest("delivery is missing, or is not a string: send the text that next answered")
	}
	sign, err := a.signing(q.Context(), t)
	if err != nil {
		return 0, err
	}
	number, ok := sign.Number(text, sign.owner, q.PathValue("consumer"))
	if !ok {
		return 0, errNotGiven
	}
	return number, nil
}

// ack says that the events of a delivery are processed.
func (a *API) ack(rw http.ResponseWriter, q *http.Request) error {
	return a.settle(rw, q, func(r *settling) (engine.Result, error) {
		if r.Error != "" || r.Lease != "" {
			return engine.Result{}, badRequest("ack takes delivery only")
		}
		return engine.Result{Verdict: engine.Succeeded}, nil
	})
}

// retry says that they are not: an attempt is counted, and they are redelivered later.
func (a *API) retry(rw http.ResponseWriter, q *http.Request) error {
	return a.settle(rw, q, func(r *settling) (engine.Result, error) {
		if r.Lease != "" {
			return engine.Result{}, badRequest("retry takes delivery and error only")
		}
		return engine.Result{Verdict: engine.Failed, ExitCode: -1, Error: r.Error}, nil
	})
}

func (a *API) settle(rw http.ResponseWriter, q *http.Request, result func(r *settling) (engine.Result, error)) error {
	t, r, err := a.settling(q)
	if err != nil {
		return err
	}
	how, err := result(&r)
	if err != nil {
		return err
	}
	number, err := a.delivery(q, t, &r)
	if err != nil {
		return err
	}
	consumer := q.PathValue("consumer")
	settled, err := t.Engine().SettleDelivery(q.Context(), consumer, number, how)
	if err != nil {
		return err
	}
	var p engine.Progress
	err = t.Engine().View(q.Context(), func(tx *engine.Tx) (err error) {
		p, _, err = tx.Progress(consumer)
		return err
	})
	if err != nil {
		return err
	}
	t.Pushed() // for others who wait for this consumer's events
	putJSON(rw, http.StatusOK, struct {
		Settled   bool  `json:"settled"`
		LastAcked int64 `json:"last_acked_id"`
	}{settled, p.From()})
	return nil
}

// extend makes the lease of a delivery end later.
func (a *API) extend(rw http.ResponseWriter, q *http.Request) error {
	t, r, err := a.settling(q)
	if err != nil {
		return err
	}
	if r.Error != "" {
		return badRequest("extend takes delivery and lease only")
	}
	d, err := leaseOf(r.Lease, true)
	if err != nil {
		return err
	}
	number, err := a.delivery(q, t, &r)
	if err != nil {
		return err
	}
	until, err := t.Engine().ExtendDelivery(q.Context(), q.PathValue("consumer"), number, d)
	if err != nil {
		return err
	}
	putJSON(rw, http.StatusOK, struct {
		Until string `json:"lease_until"`
	}{event.FormatTime(until)})
	return nil
}

func (a *API) pause(rw http.ResponseWriter, q *http.Request) error {
	return a.steer(rw, q, (*engine.Thread).Pause)
}

func (a *API) resume(rw http.ResponseWriter, q *http.Request) error {
	return a.steer(rw, q, (*engine.Thread).Resume)
}

// steer is pause and resume.
func (a *API) steer(rw http.ResponseWriter, q *http.Request, do func(t *engine.Thread, ctx context.Context, consumer string) error) error {
	t, err := a.host.Thread(q.PathValue("name"))
	if err != nil {
		return err
	}
	if err := decode(q, &struct{}{}); err != nil {
		return err
	}
	if err := do(t.Engine(), q.Context(), q.PathValue("consumer")); err != nil {
		return err
	}
	t.Pushed()
	rw.WriteHeader(http.StatusNoContent)
	return nil
}
