package trigger

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"thread/engine"
)

// Dead messages that the dead letter queue refuses are parked: their records are in the
// transaction that lets the broker forget them, so that the others pass. The loop sends
// them again, in their order, and deletes a record once the broker has confirmed it.

const (
	sendDeadWithin  = 5 * time.Second // one attempt, and a second more for each MiB
	parkedAtMost    = 10_000
	parkedMostBytes = 256 << 20
	sentAtOnce      = 100 // parked messages that one round sends
	refusedAtMost   = 3   // after which a round ends
)

func (p *parkedRecord) message() Message {
	return Message{ID: p.ID, Body: p.Body, Headers: p.Headers, At: p.At, Key: p.Key}
}

// parking is what is known of parked messages. Of the loop only.
type parking struct {
	count int
	bytes int
	next  int64 // number of the next record
	wait  int   // ticks until the next round
	pause int   // the wait after that
}

func (p *parking) fits(m *Message, most int) bool {
	return p.count < most && (p.count == 0 || p.bytes+len(m.Body) <= parkedMostBytes)
}

func (c *Config) parkedKey(number int64) []byte { return numbered(key(kindParked, c.Name), number) }

// loadParked counts what earlier processes have parked.
func (t *Trigger) loadParked(ctx context.Context) error {
	defer func() { t.countParked(0, 0) }()
	return t.th.View(ctx, func(tx *engine.Tx) error {
		r, err := tx.Records(table)
		if err != nil {
			return err
		}
		t.parking = parking{}
		prefix := key(kindParked, t.cfg.Name)
		for rec, err := range r.Ascend(prefix, after(prefix)) {
			if err != nil {
				return err
			}
			t.parking.count++
			t.parking.bytes += len(rec.Value)
			t.parking.next = numberOf(rec.Key) + 1
		}
		return nil
	})
}

// bury sends a message to the dead letter queue. When that refuses it, or others wait
// for it, bury returns a record for the next transaction. It waits only while there are
// too many of those.
func (t *Trigger) bury(ctx context.Context, m Message, r Reason) (*parkedRecord, error) {
	var err error
	if t.parking.count == 0 {
		if err = t.sendDead(ctx, m, r); err == nil {
			return nil, nil
		}
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
	}
	if t.parking.fits(&m, t.parkMost) {
		return t.park(&m, r, err), nil
	}
	return nil, t.again(ctx, "sending to the dead letter queue, for which too many messages wait", func() error {
		if err := t.sendParked(ctx); err != nil {
			return err
		}
		return t.sendDead(ctx, m, r)
	})
}

// again calls fn until it succeeds or ctx ends, with a growing wait in between, and
// notes what is wrong. While the trigger stops, it gives up after giveUpAfter.
func (t *Trigger) again(ctx context.Context, what string, fn func() error) error {
	wait, stopped := 100*time.Millisecond, time.Time{}
	for {
		t.beats()
		err := fn()
		if err == nil {
			t.noteTrouble(troubleStore, nil)
			return nil
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if errors.Is(err, engine.ErrCorrupt) || errors.Is(err, engine.ErrClosed) || errors.Is(err, errGivenUp) {
			return fmt.Errorf("%s: %w", what, err)
		}
		t.noteTrouble(troubleStore, fmt.Errorf("%s: %w", what, err))
		t.log.Warn("tried again later, nothing was acknowledged", "stage", what, "error", err, "wait", wait)
		if err := t.sleepOrStop(ctx, wait, &stopped); err != nil {
			return err
		}
		wait = min(2*wait, 30*time.Second)
	}
}

func (t *Trigger) park(m *Message, r Reason, why error) *parkedRecord {
	p := &parkedRecord{number: t.parking.next, ID: m.ID, Body: m.Body, Headers: m.Headers, At: m.At, Key: m.Key, Reason: r}
	t.parking.next++
	t.countParked(1, len(m.Body))
	if why != nil {
		t.parking.wait, t.parking.pause = 1, 2
		t.dlqTrouble(why)
	}
	t.log.Error("parked in the thread until the dead letter queue takes it", "trace_id", r.TraceID, "parked", t.parking.count, "error", why)
	return p
}

func (t *Trigger) dlqTrouble(err error) {
	t.noteTrouble(troubleDLQ, fmt.Errorf("%d messages are parked until the dead letter queue takes them: %w", t.parking.count, err))
}

func (t *Trigger) putParked(r *engine.Records, p *parkedRecord) error {
	if p == nil {
		return nil
	}
	return putJSON(r, t.cfg.parkedKey(p.number), p)
}

// retryParked is called once in a tick: it sends what is parked, with growing waits
// while that is refused.
func (t *Trigger) retryParked(ctx context.Context) {
	p := &t.parking
	if p.count == 0 {
		return
	}
	if p.wait--; p.wait >= 0 {
		return
	}
	if err := t.sendParked(ctx); err != nil {
		p.pause = min(max(2*p.pause, 1), 30)
		p.wait = p.pause
		t.dlqTrouble(err)
		t.log.Warn("the dead letter queue takes no parked messages, tried again", "parked", p.count, "error", err, "wait_seconds", p.wait)
		return
	}
	p.wait, p.pause = 0, 0
	if p.count == 0 {
		t.noteTrouble(troubleDLQ, nil)
		t.log.Info("the dead letter queue has what was parked")
	}
}

// noteTrouble notes what is wrong, nil for nothing.
func (t *Trigger) noteTrouble(what trouble, err error) {
	defer t.signal()
	t.metrics.set(func(m *Metrics) {
		w := &m.wrong[what]
		if w.err == nil {
			w.since = time.Now()
		}
		w.err = err
	})
}

// sendParked sends the oldest of the parked messages and deletes their records.
func (t *Trigger) sendParked(ctx context.Context) error {
	var list []*parkedRecord
	prefix := key(kindParked, t.cfg.Name)
	err := t.th.View(ctx, func(tx *engine.Tx) error {
		list = nil
		r, err := tx.Records(table)
		if err != nil {
			return err
		}
		size := 0
		for rec, err := range r.Ascend(prefix, after(prefix)) {
			if err != nil {
				return err
			}
			if len(list) == sentAtOnce || size > maxBatchBytes {
				return nil
			}
			v, err := checked(rec.Key, rec.Value)
			if err != nil {
				return err
			}
			p := &parkedRecord{number: numberOf(rec.Key)}
			if err := json.Unmarshal(v, p); err != nil {
				return fmt.Errorf("%w: record %x of triggers: %w", engine.ErrCorrupt, rec.Key, err)
			}
			list = append(list, p)
			size += len(rec.Value)
		}
		return nil
	})
	if err != nil {
		return err
	}
	if len(list) == 0 {
		t.countParked(-t.parking.count, -t.parking.bytes)
		return nil
	}
	var sent []*parkedRecord
	var refused []error
	for _, p := range list { // those behind one that is refused may be taken
		err := t.sendDead(ctx, p.message(), p.Reason)
		if err == nil {
			sent = append(sent, p)
			continue
		}
		refused = append(refused, err)
		if len(refused) == refusedAtMost || errors.Is(err, context.DeadlineExceeded) {
			break
		}
	}
	if len(sent) > 0 {
		refused = append(refused, t.dropParked(ctx, sent))
	}
	return errors.Join(refused...)
}

// countParked notes that more messages are parked, or fewer.
func (t *Trigger) countParked(messages, bytes int) {
	p := &t.parking
	p.count, p.bytes = max(p.count+messages, 0), max(p.bytes+bytes, 0)
	t.metrics.set(func(m *Metrics) { m.parked = p.count })
}

func (t *Trigger) dropParked(ctx context.Context, sent []*parkedRecord) error {
	err := t.th.Update(ctx, func(tx *engine.Tx) error {
		r, err := tx.Records(table)
		if err != nil {
			return err
		}
		for _, p := range sent {
			if err := r.Delete(t.cfg.parkedKey(p.number)); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	for _, p := range sent {
		t.countParked(-1, -len(p.Body))
	}
	return nil
}

// keptOfDead are the bytes that are left of the body of a message that is too large
// for the dead letter queue, from one attempt to the next.
var keptOfDead = []int{64 << 10, 1 << 10, 0}

// sendDead sends a message to the dead letter queue. One that is too large goes there
// with the beginning of its body, and at last without its headers: it would stop all
// others.
func (t *Trigger) sendDead(ctx context.Context, m Message, r Reason) error {
	ctx, cancel := context.WithTimeout(ctx, sendDeadWithin+time.Duration(len(m.Body)>>20)*time.Second)
	defer cancel()
	whole := len(m.Body)
	err := t.src.SendToDLQ(ctx, m, r)
	for _, n := range keptOfDead {
		if errors.Is(err, ErrTooLarge) && len(m.Body) > n {
			t.log.Error("too large for the dead letter queue: it gets the beginning", "trace_id", r.TraceID, "bytes", whole, "kept", n, "error", err)
			r.BodyBytes, m.Body = whole, m.Body[:n]
			err = t.src.SendToDLQ(ctx, m, r)
		}
	}
	if errors.Is(err, ErrTooLarge) && len(m.Headers) > 0 {
		t.log.Error("too large for the dead letter queue: it gets none of the headers", "trace_id", r.TraceID, "headers", len(m.Headers), "error", err)
		m.Headers = nil
		err = t.src.SendToDLQ(ctx, m, r)
	}
	return err
}
