package trigger

import (
	"context"
	"log/slog"
)

// loggedEach is up to how many messages of one transaction are logged one by one. A line
// for each message of a large one takes as long as to store it: --verbose has them, and
// the ledger has a row for each.
const loggedEach = 16

// noteStored counts and logs what the transaction did, and wakes handlers.
func (t *Trigger) noteStored(items []*item) {
	now := t.now()
	source := ""
	each := t.log.Enabled(context.Background(), slog.LevelDebug) || len(items) <= loggedEach
	var batch []*item // stored, and not logged one by one
	stored, begun := 0, now
	for _, i := range items {
		took := now.Sub(i.begun)
		switch {
		case i.known:
			t.log.Info("duplicate", "trace_id", i.env.TraceID, "event", i.event)
			t.metrics.done(StatusDuplicate, took)
		case i.err != nil:
			t.log.Error("parse failure", "trace_id", i.env.TraceID, "error", i.err)
			t.metrics.done(StatusParseError, took)
		case i.rejected != nil:
			t.log.Warn("rejected", "trace_id", i.env.TraceID, "reason", *i.rejected, "policy", t.cfg.AckPolicy)
			t.metrics.done(StatusRejected, took)
		default:
			if each {
				t.log.Info("stored", "trace_id", i.env.TraceID, "event", i.event, "deliveries", i.deliver)
			} else {
				batch = append(batch, i)
			}
			if i.traced != nil {
				i.traced(i.event)
			}
			source = i.draft.Source
			stored, begun = stored+1, i.begun // all of a batch have begun at once
		}
	}
	if len(batch) > 0 {
		first, last := batch[0], batch[len(batch)-1]
		t.log.Info("stored", "messages", len(batch), "trace_id", first.env.TraceID, "event", first.event, "last_trace_id", last.env.TraceID, "last_event", last.event)
	}
	if stored > 0 && t.cfg.Settle == SettleStored {
		t.metrics.doneAll(StatusStored, now.Sub(begun), int64(stored))
	}
	if last := items[len(items)-1]; !last.m.At.IsZero() {
		t.metrics.set(func(m *Metrics) { m.delay = now.Sub(last.m.At).Seconds() })
	}
	if source != "" && t.onStored != nil {
		t.onStored(source, t.subscribed)
	}
}
