package brokertest

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"thread/bridge/trigger"
	"thread/engine"
	"thread/event"
)

// Intake is a trigger with a separate thread.
type Intake struct {
	T        *testing.T
	Thread   *engine.Thread
	Tr       *trigger.Trigger // the one that was started last
	Config   trigger.Config
	Options  trigger.Options
	Patience time.Duration // of Until
}

// NewIntake makes the thread, and its configuration as Configure does.
func NewIntake(t *testing.T, change func(*trigger.Config)) *Intake {
	t.Helper()
	th, err := engine.Init(t.TempDir() + "/t")
	if err != nil {
		t.Fatal(err)
	}
	i := &Intake{T: t, Thread: th, Options: trigger.Options{Drain: time.Second}, Patience: 30 * time.Second}
	i.Configure(change)
	return i
}

// Configure makes the configuration as change leaves it, with the subscription that it
// needs.
func (i *Intake) Configure(change func(*trigger.Config)) {
	i.T.Helper()
	i.Config = trigger.NewConfig()
	c := &i.Config
	c.BackoffBase = 0.001
	change(c)
	c.Complete()
	if c.Settle != trigger.SettleHandled {
		return
	}
	err := i.Thread.Subscribe(context.Background(), engine.Subscription{Consumer: c.Consumer, Handler: "true"})
	if err != nil && !errors.Is(err, engine.ErrSubscriptionExists) {
		i.T.Fatal(err)
	}
}

// Start starts a trigger on src, also after a Stop. It is stopped at the test's end.
func (i *Intake) Start(src trigger.Source) {
	i.T.Helper()
	if err := i.TryStart(src); err != nil {
		i.T.Fatal(err)
	}
}

// TryStart is Start with its error.
func (i *Intake) TryStart(src trigger.Source) error {
	tr, err := trigger.New(i.Thread, src, i.Config, i.Options)
	if err != nil {
		return err
	}
	i.Tr = tr
	if err := tr.Start(context.Background()); err != nil {
		return err
	}
	i.T.Cleanup(func() { _ = tr.Stop() }) // it may be stopped
	return nil
}

// Stop stops the trigger.
func (i *Intake) Stop() {
	i.T.Helper()
	if err := i.Tr.Stop(); err != nil {
		i.T.Fatal(err)
	}
}

// Until waits until ok.
func (i *Intake) Until(what string, ok func() bool) {
	i.T.Helper()
	Until(i.T, i.Tr, i.Patience, what, ok)
}

// Events waits for at least n events and returns those that there are.
func (i *Intake) Events(n int) (es []event.Event) {
	i.T.Helper()
	i.Until(fmt.Sprintf("%d events", n), func() bool {
		var err error
		if es, err = i.Thread.Peek(context.Background(), engine.Query{}); err != nil {
			i.T.Fatal(err)
		}
		return len(es) >= n
	})
	return es
}
