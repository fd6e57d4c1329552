// Package brokertest is what the tests of adapters share: a trigger that runs on a
// real broker, and the cases that hold for each. Only tests import it.
package brokertest

import (
	"context"
	"errors"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"thread/bridge/adapter"
	"thread/bridge/trigger"
	"thread/engine"
	"thread/event"
)

// Broker is one queue of a broker.
type Broker struct {
	Settings *adapter.Settings
	Adapter  string
	// Send sends a message with pairs of header names and values.
	Send func(t *testing.T, body string, headers ...string)
	// Pending returns how many messages the broker holds that were not acknowledged,
	// while the source runs.
	Pending func(t *testing.T, src trigger.Source) int
	// Dead returns the last message of the dead letter queue.
	Dead func(t *testing.T) (body string, headers map[string]string)
}

// Needed ends the test when nothing listens at an address: it fails with
// THREAD_BRIDGE_BROKERS, else it is skipped.
func Needed(t *testing.T, name, address string) {
	t.Helper()
	c, err := net.DialTimeout("tcp", address, 30*time.Second) // on a busy host; none that listens refuses at once
	if err == nil {
		c.Close()
		return
	}
	if os.Getenv("THREAD_BRIDGE_BROKERS") != "" {
		t.Fatalf("%s must run: %v", name, err)
	}
	t.Skipf("%s does not run: %v", name, err)
}

// Run is an intake from a broker.
type Run struct {
	*Intake
	B *Broker
	// Wrap may put something around the source.
	Wrap func(trigger.Source) trigger.Source
	src  trigger.Source // not wrapped
}

// New starts a trigger. Change may be nil.
func New(t *testing.T, b *Broker, change func(*trigger.Config)) *Run {
	t.Helper()
	r := &Run{B: b, Intake: NewIntake(t, func(c *trigger.Config) {
		c.Name, c.Queue, c.Group, c.Adapter, c.MaxBatch = b.Settings.Name, b.Settings.Queue, b.Settings.Group, b.Adapter, b.Settings.MaxBatch
		if change != nil {
			change(c)
		}
	})}
	r.Patience = 60 * time.Second
	r.Start()
	return r
}

// Handled makes the policy decide about failures after one attempt.
func Handled(policy string) func(*trigger.Config) {
	return func(c *trigger.Config) { c.Settle, c.AckPolicy, c.MaxRetries = trigger.SettleHandled, policy, 0 }
}

// Start starts the trigger, again after a Stop.
func (r *Run) Start() {
	r.T.Helper()
	if err := r.TryStart(); err != nil {
		r.T.Fatal(err)
	}
}

// TryStart is Start with its error.
func (r *Run) TryStart() error {
	s := *r.B.Settings
	s.Handled, s.Concurrency = r.Config.Settle == trigger.SettleHandled, max(s.Concurrency, 1)
	spec, err := adapter.Find(r.B.Adapter)
	if err != nil {
		return err
	}
	src, err := spec.Source(&s)
	if err != nil {
		return err
	}
	r.src = src
	if r.Wrap != nil {
		src = r.Wrap(src)
	}
	return r.Intake.TryStart(src)
}

// Health is the trigger's.
func (r *Run) Health() trigger.Status { return r.Tr.Health(context.Background()) }

// Drained waits until the broker holds nothing any more.
func (r *Run) Drained() {
	r.T.Helper()
	r.Until("the acknowledgements", func() bool { return r.B.Pending(r.T, r.src) == 0 })
}

// Handle handles events as the trigger's consumer would, and gives these verdicts.
func (r *Run) Handle(verdicts ...engine.Verdict) (got []event.Event) {
	r.T.Helper()
	feed := r.Thread.Feed(r.Config.Consumer, r.Config.Policy())
	defer feed.Close()
	for _, v := range verdicts {
		r.Until("something to handle", func() bool {
			d, err := feed.Next(context.Background(), nil)
			if err != nil {
				r.T.Fatal(err)
			}
			if len(d.Events) == 1 {
				got = append(got, d.Events[0])
			}
			return len(d.Events) == 1
		})
		if _, err := feed.Settle(context.Background(), engine.Result{Verdict: v, Error: "boom"}); err != nil {
			r.T.Fatal(err)
		}
	}
	return got
}

// Deaf is a source whose acknowledgements fail.
type Deaf struct{ trigger.Source }

// Ack implements trigger.Source.
func (Deaf) Ack(context.Context, []trigger.Message) error { return errors.New("no connection") }

// Contains counts the events whose content contains text.
func Contains(es []event.Event, text string) (n int) {
	for i := range es {
		if strings.Contains(es[i].Content, text) {
			n++
		}
	}
	return n
}
