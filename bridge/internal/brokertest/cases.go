package brokertest

import (
	"fmt"
	"strings"
	"testing"

	"thread/bridge/trigger"
	"thread/engine"
)

// Cases runs what holds for every source whose messages have ids.
func Cases(t *testing.T, open func(t *testing.T) *Broker) {
	for name, run := range map[string]func(*testing.T, *Broker){
		"stored": stored, "redelivered": redelivered, "many": many, "requeue": requeue, "dlq": dlq, "nack": nack, "restart": restart, "probe": probe,
	} {
		t.Run(name, func(t *testing.T) { run(t, open(t)) })
	}
}

// Stored once each and acknowledged; a repeated id is known; what is not JSON goes to
// the dead letter queue, and what comes after it does not wait for that.
func stored(t *testing.T, b *Broker) {
	b.Send(t, `{"n":1}`, "x-message-id", "m-1", "x-event-name", "order", "x-more", "ü €")
	b.Send(t, `oops`, "x-message-id", "m-2")
	b.Send(t, `{"n":1}`, "x-message-id", "m-1")
	b.Send(t, `{"n":3}`, "x-message-id", "m-3")
	r := New(t, b, nil)
	r.Until("four messages", func() bool {
		n := r.Health().Metrics.Consumed
		return n[trigger.StatusStored] == 2 && n[trigger.StatusDuplicate] == 1 && n[trigger.StatusParseError] == 1
	})
	r.Drained()
	es := r.Events(2)
	if len(es) != 2 || es[0].Type != "order" || es[0].Source != b.Adapter+":"+b.Settings.Queue || !strings.Contains(es[0].Content, `"message_id":"m-1"`) ||
		!strings.Contains(es[0].Content, `"x-more":"ü €"`) || !strings.Contains(es[1].Content, `"n":3`) {
		t.Errorf("%v", es)
	}
	body, h := b.Dead(t)
	if body != "oops" || h["x-message-id"] != "m-2" || !strings.Contains(h["x-dlq-reason"], "JSON") || h["x-dlq-status"] != trigger.StatusParseError {
		t.Errorf("%q %v", body, h)
	}
}

// What was stored and never acknowledged is redelivered, and is known.
func redelivered(t *testing.T, b *Broker) {
	for i := range 5 {
		b.Send(t, fmt.Sprintf(`{"n":%d}`, i), "x-message-id", fmt.Sprint("m-", i))
	}
	r := New(t, b, nil)
	r.Stop()
	r.Wrap = func(s trigger.Source) trigger.Source { return Deaf{s} }
	r.Start()
	r.Events(5)
	r.Stop()
	r.Wrap = nil
	r.Start()
	r.Drained()
	if es := r.Events(5); len(es) != 5 {
		t.Errorf("%d events", len(es))
	}
}

// More than a batch, and than may be out at once.
func many(t *testing.T, b *Broker) {
	const n = 350 // more than three batches
	for i := range n {
		b.Send(t, fmt.Sprintf(`{"n":%d}`, i), "x-message-id", fmt.Sprint("m-", i))
	}
	r := New(t, b, nil)
	es := r.Events(n)
	r.Drained()
	for i := range es {
		if !strings.Contains(es[i].Content, fmt.Sprintf(`"n":%d}`, i)) {
			t.Fatalf("event %d: %s", i, es[i].Content)
		}
	}
	if len(es) != n {
		t.Errorf("%d events", len(es))
	}
}

// What fails is redelivered as the same event, and what follows is not lost.
func requeue(t *testing.T, b *Broker) {
	b.Send(t, `{"n":1}`, "x-message-id", "m-1")
	r := New(t, b, Handled(trigger.PolicyRequeue))
	es := r.Handle(engine.Failed, engine.Succeeded)
	if es[0].ID != es[1].ID {
		t.Errorf("%v", es)
	}
	r.Drained()
	b.Send(t, `{"n":2}`, "x-message-id", "m-2")
	if es := r.Handle(engine.Succeeded); !strings.Contains(es[0].Content, `"n":2`) {
		t.Errorf("%v", es)
	}
	r.Drained()
	if es := r.Events(2); len(es) != 2 {
		t.Errorf("%v", es)
	}
}

// A failed message stands in the dead letter queue with its history, and no longer
// in the thread; an endless one ends there, too.
func dlq(t *testing.T, b *Broker) {
	b.Send(t, `{"n":1}`, "x-message-id", "m-1", "x-more", "1")
	r := New(t, b, Handled(trigger.PolicyDLQ))
	r.Handle(engine.Failed)
	r.Drained()
	body, h := b.Dead(t)
	if body != `{"n":1}` || h["x-message-id"] != "m-1" || h["x-more"] != "1" || h["x-dlq-attempts"] != "1" || h["x-dlq-first-error"] != "boom" {
		t.Errorf("%q %v", body, h)
	}
	r.Stop()
	r.Config.AckPolicy, r.Config.DeliveryLimit = trigger.PolicyRequeue, 2
	r.Start()
	b.Send(t, `{"n":2}`, "x-message-id", "m-2")
	r.Handle(engine.Failed, engine.Failed)
	r.Drained()
	r.Until("the dead letter", func() bool { body, h = b.Dead(t); return body == `{"n":2}` })
	if h["x-dlq-deliveries"] != "2" {
		t.Errorf("%q %v", body, h)
	}
}

// A refused message is gone from the queue, and a dead letter in the thread.
func nack(t *testing.T, b *Broker) {
	b.Send(t, `{"n":1}`, "x-message-id", "m-1")
	r := New(t, b, Handled(trigger.PolicyNack))
	r.Handle(engine.Failed)
	r.Drained()
	n := 0
	for d, err := range r.Thread.DeadLetters(t.Context(), engine.DeadLetterQuery{Consumer: r.Config.Consumer}) {
		if n++; err != nil || d.LastError != "boom" {
			t.Errorf("%+v %v", d, err)
		}
	}
	if n != 1 {
		t.Errorf("%d dead letters", n)
	}
}

// A dead letter queue that is not there yet is a warning, and none once it is.
func probe(t *testing.T, b *Broker) {
	r := New(t, b, nil)
	p, ok := r.src.(trigger.Prober)
	if !ok {
		t.Skip("the broker has no such question")
	}
	if warning, err := p.ProbeDLQ(t.Context()); err != nil || warning != "" && !strings.Contains(warning, "does not exist yet") {
		t.Errorf("%q %v", warning, err)
	}
	b.Send(t, `oops`, "x-message-id", "m-1")
	r.Until("the dead message", func() bool { return r.Health().Metrics.Consumed[trigger.StatusParseError] == 1 })
	if warning, err := p.ProbeDLQ(t.Context()); err != nil || warning != "" || r.Health().Metrics.Parked != 0 {
		t.Errorf("%q %v", warning, err)
	}
}

// What is being handled when the process ends is settled by the next one.
func restart(t *testing.T, b *Broker) {
	for i := range 3 {
		b.Send(t, fmt.Sprintf(`{"n":%d}`, i), "x-message-id", fmt.Sprint("m-", i))
	}
	b.Settings.Concurrency = 3
	r := New(t, b, Handled(trigger.PolicyDLQ))
	r.Events(3)
	r.Stop()
	r.Start()
	r.Handle(engine.Succeeded, engine.Failed, engine.Succeeded)
	r.Until("two successes and a failure", func() bool {
		n := r.Health().Metrics.Consumed
		return n[trigger.StatusSuccess] == 2 && n[trigger.StatusFailed] == 1
	})
	r.Drained()
	if body, h := b.Dead(t); body != `{"n":1}` || h["x-dlq-last-error"] != "boom" {
		t.Errorf("%q %v", body, h)
	}
	if es := r.Events(3); len(es) != 3 {
		t.Errorf("%v", es)
	}
}
