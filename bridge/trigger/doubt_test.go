package trigger

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"thread/engine"
	"thread/event"
)

// unsettledKeys counts the keys that are so.
func (r *rig) unsettledKeys() (n int) {
	r.tb.Helper()
	err := r.th.View(context.Background(), func(tx *engine.Tx) error {
		rs, err := tx.Records(table)
		if err != nil {
			return err
		}
		n = 0
		return eachWith(rs, []byte{kindKey}, func(_, v []byte) error {
			k, err := decodeKey(v)
			if k.state == unsettled {
				n++
			}
			return err
		})
	})
	if err != nil {
		r.tb.Fatalf("keys: %v", err)
	}
	return n
}

// doubting makes a rig whose broker keeps nothing back for longer than 20 ticks.
func doubting(t *testing.T, change func(*Config, *Options)) *rig {
	r := newRig(t, t.TempDir()+"/t", change)
	r.tr.tickEvery, r.tr.keptBack = 2*time.Millisecond, 40*time.Millisecond
	return r
}

// A key whose message the broker has not got any more is settled in the end, though no
// acknowledgement of it has succeeded; one that it still has is settled by it.
func TestDoubtsEnd(t *testing.T) {
	t.Run("ack", func(t *testing.T) {
		r := doubting(t, nil)
		r.start()
		r.mock.FailNext("ack", errors.New("connection reset"))
		r.send("m-1", `{}`)
		r.until("the end of the doubt", func() bool { return r.log.count("were not redelivered") == 1 })
		if n := r.unsettledKeys(); n != 0 {
			t.Errorf("%d unsettled", n)
		}
		r.send("m-1", `{}`) // the window has only begun
		r.acked(1)
		r.stop()
		if n := len(r.events()); n != 1 {
			t.Errorf("%d events", n)
		}
	})
	t.Run("nack", func(t *testing.T) {
		r := doubting(t, func(c *Config, o *Options) { handled(c, o); c.AckPolicy, c.MaxRetries = PolicyNack, 0 })
		r.start()
		for n := range 3 {
			r.send(fmt.Sprint("m-", n), `{}`)
		}
		r.until("the events", func() bool { return len(r.events()) == 3 })
		r.handle(func(event.Event, int64) error { return errors.New("no") })
		r.until("the refusals", func() bool { return len(r.mock.Nacked()) == 3 })
		r.until("the end of the doubts", func() bool { return r.log.count("were not redelivered") > 0 && r.unsettledKeys() == 0 })
		r.stop()
	})
}

// notYet are a broker's ways of still having the message.
func TestDoubtsLast(t *testing.T) {
	for name, c := range map[string]struct {
		asking, idle, ok bool
	}{"not asked": {false, false, true}, "busy": {true, false, true}, "not well": {true, true, false}} {
		t.Run(name, func(t *testing.T) {
			r := doubting(t, nil)
			r.tr.tickEvery = time.Hour
			r.start()
			r.mock.FailNext("ack", errors.New("connection reset"))
			r.send("m-1", `{}`)
			r.until("the warning", func() bool { return r.log.count("could not be told") == 1 })
			r.stop()
			r.mock.connected = c.ok
			look := func(asking, idle bool) {
				if err := r.tr.lookForDoubts(t.Context(), asking, idle); err != nil {
					t.Fatal(err)
				}
			}
			for range 100 {
				look(c.asking, c.idle)
			}
			if n := r.unsettledKeys(); n != 1 {
				t.Fatalf("%d unsettled", n)
			}
			r.mock.connected = true
			look(true, true)
			look(true, true)
			if n := r.unsettledKeys(); n != 0 {
				t.Errorf("%d unsettled after it", n)
			}
		})
	}
}

// An event that waits for its handler is none, however long.
func TestNoDoubtWhileHandled(t *testing.T) {
	r := doubting(t, handled)
	r.start()
	r.send("m-1", `{}`)
	r.until("the event", func() bool { return len(r.events()) == 1 })
	for range 200 {
		<-r.tr.Changed()
	}
	if n := r.unsettledKeys(); n != 1 {
		t.Errorf("%d unsettled", n)
	}
	r.handle(func(event.Event, int64) error { return nil })
	r.acked(1)
	r.stop()
	if r.log.count("were not redelivered") != 0 {
		t.Error(r.log)
	}
}

// narrow is a queue that lets few messages be out.
type narrow struct{ *Mock }

func (narrow) Capabilities() Caps { c := MockCaps; c.MaxOut = 2; return c }

// Events of before a restart, whose redeliveries are to be refused, keep neither those
// nor what comes after them out.
func TestRoomForRedelivery(t *testing.T) {
	for _, policy := range []string{PolicyNack, PolicyRequeue} {
		for _, backlog := range []int64{0, 2} {
			t.Run(fmt.Sprint(policy, backlog), func(t *testing.T) {
				r := newRig(t, t.TempDir()+"/t", func(c *Config, o *Options) {
					handled(c, o)
					c.AckPolicy, c.MaxRetries, c.DeliveryLimit, c.MaxBacklog, c.MaxBatch = policy, 0, 5, backlog, 2
					o.Drain = time.Millisecond
				})
				again := func() {
					var err error
					if r.tr, err = New(r.th, narrow{r.mock}, r.cfg, r.opts); err != nil {
						t.Fatal(err)
					}
					r.start()
				}
				again()
				for n := range 3 {
					r.send(fmt.Sprint("m-", n), `{}`)
				}
				r.until("two events", func() bool { return len(r.events()) == 2 })
				r.stop()
				r.handle(func(event.Event, int64) error { return errors.New("no") })
				again()
				r.until("the refusals", func() bool { return len(r.mock.Nacked()) >= 2 })
				r.until("the third", func() bool { return len(r.events()) == 3 })
				r.stop()
			})
		}
	}
}
