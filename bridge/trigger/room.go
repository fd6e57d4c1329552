package trigger

import (
	"context"
	"fmt"
	"time"

	"thread/engine"
)

// recount is after how long a full backlog is counted again though the consumer
// has not moved on: its events may have been settled in another order.
const recount = 30 * time.Second

// room returns how many messages may be taken now, 0 for none.
func (t *Trigger) room(ctx context.Context) int {
	most := t.cfg.MaxBatch
	if c := t.src.Capabilities(); c.MaxBatch > 0 {
		most = min(most, c.MaxBatch)
	}
	t.mu.Lock()
	paused := t.paused
	t.mu.Unlock()
	if paused {
		return 0
	}
	if out := t.src.Capabilities().MaxOut; out > 0 && len(t.open)+t.backlog.storing >= out && t.waitingOpen(isOut)+t.backlog.storing >= out {
		return 0
	}
	if t.cfg.MaxBacklog == 0 {
		return most
	}
	waiting := int64(len(t.open) + t.backlog.storing)
	if waiting >= t.cfg.MaxBacklog {
		waiting = int64(t.waitingOpen(waitsForConsumer) + t.backlog.storing)
	}
	if t.cfg.Settle == SettleStored {
		var err error
		if waiting, err = t.waiting(ctx); err != nil {
			t.noteTrouble(troubleConsumer, fmt.Errorf("backlog of '%s': %w", t.cfg.Consumer, err))
			return 0
		}
		t.noteTrouble(troubleConsumer, nil)
		t.metrics.set(func(m *Metrics) { m.backlog = waiting })
	}
	left := max(t.cfg.MaxBacklog-waiting, 0)
	t.mu.Lock()
	before := t.full
	t.full = left == 0
	t.mu.Unlock()
	switch {
	case !before && left == 0:
		t.log.Warn("max_backlog is reached: no messages are taken until the consumer continues", "consumer", t.cfg.Consumer, "backlog", waiting, "max_backlog", t.cfg.MaxBacklog)
	case before && left > 0:
		t.log.Info("messages are taken again", "backlog", waiting)
	}
	return int(min(int64(most), left))
}

// waitingOpen counts the events to be settled that are so.
func (t *Trigger) waitingOpen(so func(*waitingEvent) bool) (n int) {
	for _, w := range t.open {
		if so(w) {
			n++
		}
	}
	return n
}

// An event of before a restart has no message out on this connection, and one whose
// consumer is through with it may wait for its redelivery, to refuse that: neither may
// keep the redelivery out.
func isOut(w *waitingEvent) bool { return w.handle }

func waitsForConsumer(w *waitingEvent) bool { return w.handle || !w.final }

// waiting returns how many events wait for the consumer, or more than that while
// there is room all the same.
func (t *Trigger) waiting(ctx context.Context) (int64, error) {
	b := &t.backlog
	if b.counted && b.count+b.taken < t.cfg.MaxBacklog {
		return b.count + b.taken, nil
	}
	var at int64
	err := t.th.View(ctx, func(tx *engine.Tx) error {
		p, _, err := tx.Progress(t.cfg.Consumer)
		at = p.LastAcked
		return err
	})
	if err != nil || b.counted && b.taken == int64(b.storing) && at == b.through && t.now().Sub(b.at).Abs() < recount {
		return b.count + b.taken, err
	}
	n, _, err := t.th.Backlog(ctx, t.cfg.Consumer)
	if err != nil {
		return n, err
	}
	b.counted, b.count, b.through, b.at = true, n, at, t.now()
	b.taken = int64(b.storing) // they may be stored or not
	n += b.taken
	return n, nil
}
