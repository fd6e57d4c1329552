package trigger

import (
	"errors"
	"testing"
	"time"

	"thread/event"
)

// Case 83: each retry waits for longer than the one before, by the policy's factor;
// then the message is in the dead letter queue, once, with what happened.
func TestRetriesDelaysThenDLQ(t *testing.T) {
	r := newRig(t, t.TempDir()+"/t", func(c *Config, _ *Options) {
		c.Settle, c.AckPolicy, c.MaxRetries, c.BackoffBase, c.Multiplier = SettleHandled, PolicyDLQ, 3, 0.02, 3
	})
	r.start()
	r.send("m-1", `{"n":1}`)
	r.until("the event", func() bool { return len(r.events()) == 1 })
	var at []time.Time
	if n := r.handle(func(event.Event, int64) error { at = append(at, time.Now()); return errors.New("no") }); n != 4 {
		t.Fatalf("%d attempts", n)
	}
	for i, least := range []time.Duration{20, 60, 180} {
		if wait := at[i+1].Sub(at[i]); wait < least*time.Millisecond {
			t.Errorf("wait %d is %s, less than %d ms", i+1, wait, least)
		}
	}
	r.acked(1)
	r.stop()
	dead := r.mock.Dead()
	if len(dead) != 1 || dead[0].Message.ID != "m-1" || dead[0].Reason.Attempts != 4 || dead[0].Reason.FirstError == "" || !dead[0].Reason.LastAt.After(dead[0].Reason.FirstAt) {
		t.Errorf("%+v", dead)
	}
	if rows := r.ledger(); len(rows) != 1 || rows[0].Status != StatusFailed || rows[0].RetryCount != 3 {
		t.Errorf("%+v", rows)
	}
}
