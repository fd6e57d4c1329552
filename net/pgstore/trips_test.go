package pgstore

import (
	"context"
	"fmt"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"thread/engine"
	"thread/event"
	"thread/internal/store"
)

// counting counts what a connection sends: each is a round trip.
type counting struct {
	net.Conn
	n *atomic.Int64
}

func (c *counting) Write(b []byte) (int, error) {
	c.n.Add(1)
	return c.Conn.Write(b)
}

// TestRoundTrips bounds how often a call waits for the server, which may be far.
func TestRoundTrips(t *testing.T) {
	in := newSchema(t)
	a := newThread(t, in)
	var n atomic.Int64
	counted := *a
	counted.config = a.config.Copy()
	dial := counted.config.DialFunc
	counted.config.TLSConfig, counted.config.Fallbacks = nil, nil
	counted.config.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
		c, err := dial(ctx, network, addr)
		return &counting{c, &n}, err
	}
	th := engine.OpenStore(a.URL, store.Place{Dir: t.TempDir()}, func(l store.Logic, wait time.Duration) store.Store {
		return Open(&counted, Options{Logic: l, LockTimeout: wait})
	})
	defer th.Close()
	ctx := context.Background()
	for consumer, where := range map[string]*string{"c": event.Text("type = 't'"), "all": nil, "f": nil} {
		if err := th.Subscribe(ctx, engine.Subscription{Consumer: consumer, Handler: "true", Filter: where}); err != nil {
			t.Fatal(err)
		}
	}
	push := func(d event.Draft) func() error {
		return func() error { _, err := th.Push(ctx, d); return err }
	}
	pop := func(consumer string, want int64) func() error {
		return func() error {
			page, err := th.Pop(ctx, consumer, engine.PopQuery{LastAcked: 1, Limit: 10})
			for range page.Events {
				want--
			}
			if err == nil && want != 0 {
				err = fmt.Errorf("%d events fewer than that", want)
			}
			return err
		}
	}
	feed := th.Feed("f", engine.Policy{MaxAttempts: 3})
	next := func(r *engine.Result) func() error {
		return func() error {
			d, err := feed.Next(ctx, r)
			if err == nil && len(d.Events) != 1 {
				err = fmt.Errorf("%d events", len(d.Events))
			}
			return err
		}
	}
	many := make([]event.Draft, 2*manySeries)
	for i := range many {
		many[i] = event.Draft{Source: fmt.Sprint("s", i), Type: "t", Content: "x"}
	}
	for _, c := range []struct {
		name string
		do   func() error
		most int64
	}{
		{"the first push of a series", push(event.Draft{Source: "s", Type: "t", Content: "1"}), 2},
		{"a push", push(event.Draft{Source: "s", Type: "t", Content: "2"}), 2},
		{"a push of another series", push(event.Draft{Source: "s", Type: "u", Content: "3"}), 2},
		{"a pop", pop("c", 1), 3}, // what is locked, the events, the commit
		{"a pop without a filter", pop("all", 2), 3},
		{"the first delivery", next(nil), 6}, // a look before it locks, and its end
		{"a result and the next delivery", next(&engine.Result{Verdict: engine.Succeeded}), 3},
		{"a push of many series", func() error { _, err := th.PushBatch(ctx, many); return err }, 2},
		{"a pop from many series", pop("c", 10), 4}, // and the series
		{"a pop from many series without a filter", pop("all", 10), 3},
	} {
		before := n.Load()
		if err := c.do(); err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		if trips := n.Load() - before; trips > c.most {
			t.Errorf("%s: %d round trips, want at most %d", c.name, trips, c.most)
		} else {
			t.Logf("%s: %d", c.name, trips)
		}
	}
}
