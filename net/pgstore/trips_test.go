package pgstore

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"thread/engine"
	"thread/event"
	"thread/history"
	"thread/internal/address"
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

// counted opens a thread whose round trips are counted.
func counted(t *testing.T, a *Address) (*engine.Thread, *atomic.Int64) {
	n := new(atomic.Int64)
	c := *a
	c.config = a.config.Copy()
	dial := c.config.DialFunc
	c.config.TLSConfig, c.config.Fallbacks = nil, nil
	c.config.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := dial(ctx, network, addr)
		return &counting{conn, n}, err
	}
	th := engine.OpenStore(a.URL, store.Place{Dir: t.TempDir()}, func(l store.Logic, wait time.Duration) store.Store {
		return Open(&c, Options{Logic: l, LockTimeout: wait})
	})
	t.Cleanup(func() { _ = th.Close() })
	return th, n
}

// TestRoundTrips bounds how often a call waits for the server, which may be far.
func TestRoundTrips(t *testing.T) {
	th, n := counted(t, newThread(t, newSchema(t)))
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

// TestLookTrips: a look for what is due costs as many round trips with 500 subscriptions as with
// 20, whatever their filters ask for and wherever they are, and all looks find the same.
func TestLookTrips(t *testing.T) {
	ctx := context.Background()
	in := newSchema(t)
	trips := map[int]int64{}
	for _, subscriptions := range []int{20, 500} {
		th, n := counted(t, newThread(t, in))
		ds := make([]event.Draft, 3*manySeries)
		for i := range ds {
			ds[i] = event.Draft{Source: fmt.Sprint("s", i), Type: "t", Content: fmt.Sprint("content ", i)}
		}
		if _, err := th.PushBatch(ctx, ds); err != nil {
			t.Fatal(err)
		}
		due := map[string]int64{}
		if err := th.Update(ctx, func(tx *engine.Tx) error {
			for i := range subscriptions {
				s := engine.Subscription{Consumer: fmt.Sprint("c", i), Handler: "true"}
				switch i % 10 {
				case 0: // the series say no
					s.Filter = event.Text(fmt.Sprintf("type = 'u%d'", i))
				case 1, 2: // they do not say
					s.Filter = event.Text(fmt.Sprintf("content LIKE '%%none %d%%'", i))
				case 3: // for one of them
					s.Filter = event.Text(fmt.Sprintf("source = 's%d' AND content LIKE '%%none%%'", i%len(ds)))
				case 4: // what this says changes with the time
					s.Filter = event.Text(fmt.Sprintf("created_at < datetime('now', '-%d days')", 1+i))
				case 5: // the last event, far from the first
					s.Filter, due[s.Consumer] = event.Text(fmt.Sprintf("content = 'content %d'", len(ds)-1)), int64(len(ds))
				case 6:
					s.Filter = event.Text("content LIKE '%none%'")
				case 7:
					due[s.Consumer] = int64(i%50 + 2)
				case 8: // all is read
					due[s.Consumer] = 0
				case 9:
					s.Filter, due[s.Consumer] = event.Text(fmt.Sprintf("id > %d AND content LIKE '%%content%%'", i%100)), int64(max(i%100, i%50+1)+1)
				}
				if err := tx.Subscribe(s); err != nil {
					return err
				}
				at := int64(0)
				switch i % 10 {
				case 7, 9:
					at = int64(i%50 + 1)
				case 8:
					at = int64(len(ds))
				}
				if err := tx.Ack(s.Consumer, at); err != nil {
					return err
				}
				if i%3 == 0 { // a record of deliveries
					if err := tx.Seek(s.Consumer, at); err != nil {
						return err
					}
				}
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		for look := range 3 {
			before := n.Load()
			found, err := th.Due(ctx)
			if err != nil {
				t.Fatal(err)
			}
			trips[subscriptions] = n.Load() - before
			t.Logf("look %d at %d subscriptions: %d round trips, %d due", look, subscriptions, trips[subscriptions], len(found))
			got := map[string]int64{}
			for _, d := range found {
				if got[d.Consumer] = d.First; d.Err != nil {
					t.Error(d.Consumer, d.Err)
				}
			}
			for consumer, first := range due {
				if got[consumer] != first {
					t.Errorf("look %d: the first event of %s is %d, want %d", look, consumer, got[consumer], first)
				}
				delete(got, consumer)
			}
			if len(got) > 0 {
				t.Errorf("look %d: due are %v as well", look, got)
			}
		}
	}
	if trips[500] > 25 || trips[500] > trips[20]+10 {
		t.Errorf("the last look cost %v round trips", trips)
	}
}

// countedDriver opens threads whose round trips are counted.
type countedDriver struct {
	t  *testing.T
	mu sync.Mutex
	n  []*atomic.Int64
}

func (d *countedDriver) Open(url string, _ []engine.Option) (*engine.Thread, error) {
	a, err := ParseURL(url)
	if err != nil {
		return nil, err
	}
	th, n := counted(d.t, a)
	d.mu.Lock()
	d.n = append(d.n, n)
	d.mu.Unlock()
	return th, nil
}

func (*countedDriver) Init(ctx context.Context, url string) error {
	a, err := ParseURL(url)
	if err != nil {
		return err
	}
	return Init(ctx, a)
}

func (d *countedDriver) trips() (sum int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, n := range d.n {
		sum += n.Load()
	}
	return sum
}

// countedHistory opens a history whose round trips are counted.
func countedHistory(t *testing.T) (*history.History, *countedDriver) {
	t.Helper()
	a := newSchema(t)
	if err := Init(context.Background(), a); err != nil {
		t.Fatal(err)
	}
	d := &countedDriver{t: t}
	address.SetDriver(d)
	t.Cleanup(func() { address.SetDriver(nil) })
	h, err := history.Open(context.Background(), a.URL)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = h.Close() })
	return h, d
}

// TestMirrorTrips: a mirror and an import wait for the server as often for many rows as for few.
func TestMirrorTrips(t *testing.T) {
	ctx := context.Background()
	h, d := countedHistory(t)
	const sessions, messages = 100, 200
	var rows []history.Row
	for i := range sessions {
		rows = append(rows, &history.SessionRow{ID: fmt.Sprint("S", i)})
	}
	if n, err := h.PutNew(ctx, rows); err != nil || n != sessions {
		t.Fatal(n, err)
	}
	rows = nil
	for i := range messages {
		rows = append(rows, &history.MessageRow{ID: fmt.Sprint("m", i), SessionID: fmt.Sprint("S", i%2), Role: "user", Content: []byte(`"hello"`)})
	}
	for _, c := range []struct {
		name string
		do   func() (int, error)
		want int
		most int64
	}{
		{"an import", func() (int, error) { n, err := h.PutNew(ctx, rows); return int(n), err }, messages, 5}, // and two series
		{"an import again", func() (int, error) { n, err := h.PutNew(ctx, rows); return int(n), err }, 0, 2},
		{"a page", func() (int, error) { p, err := h.Page(ctx, 0, 500, 1<<20); return len(p.Changes), err }, 1 + sessions + messages, 12},
	} {
		before := d.trips()
		if n, err := c.do(); err != nil || n != c.want {
			t.Fatalf("%s: %d, %v", c.name, n, err)
		}
		if trips := d.trips() - before; trips > c.most {
			t.Errorf("%s: %d round trips, want at most %d", c.name, trips, c.most)
		} else {
			t.Logf("%s: %d", c.name, trips)
		}
	}
}

// TestHistoryTrips bounds how often a start of a run and a message wait for the server.
func TestHistoryTrips(t *testing.T) {
	ctx := context.Background()
	h, d := countedHistory(t)
	if _, err := h.StartSession(ctx, history.SessionRow{ID: "S"}); err != nil {
		t.Fatal(err)
	}
	var r *history.Run
	for _, c := range []struct {
		name string
		do   func() error
		most int64
	}{
		{"the first start of a run", func() (err error) { _, err = h.StartRun(ctx, history.RunRow{ID: "P"}); return err }, 3}, // and a series
		{"the start of a run", func() (err error) { r, err = h.StartRun(ctx, history.RunRow{ID: "R"}); return err }, 2},
		{"a step", func() error {
			return r.Update(ctx, func(tx *history.Tx, _ *history.RunRow) error {
				return tx.Put(&history.StepRow{RunID: "R", StepType: "x"})
			})
		}, 9},
		{"its end", func() error { return r.End(ctx, history.End{Status: history.Completed}) }, 7},
		{"the start of a run of a session", func() (err error) {
			r, err = h.StartRun(ctx, history.RunRow{ID: "Q", SessionID: "S"})
			return err
		}, 7},
		{"the first job", func() error {
			_, _, err := h.EnqueueJob(ctx, history.RunRow{AgentName: "a"}, []byte(`{"a":1}`))
			return err
		}, 3}, // and a series
		{"a job", func() error {
			_, _, err := h.EnqueueJob(ctx, history.RunRow{AgentName: "a"}, []byte(`{"a":1}`))
			return err
		}, 2},
		{"two jobs are done", func() error {
			return h.Work(ctx, history.WorkOptions{Drain: true}, func(context.Context, *history.Run) (json.RawMessage, error) { return nil, nil })
		}, 22}, // and a look for runs to recover, before it and at the end
		{"the first message", func() error {
			return h.Put(ctx, &history.MessageRow{SessionID: "S", Role: "user", Content: []byte(`"hello"`)})
		}, 3},
		{"a message", func() error {
			return h.Put(ctx, &history.MessageRow{SessionID: "S", Role: "user", Content: []byte(`"again"`)})
		}, 2},
	} {
		before := d.trips()
		if err := c.do(); err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		if trips := d.trips() - before; trips > c.most {
			t.Errorf("%s: %d round trips, want at most %d", c.name, trips, c.most)
		} else {
			t.Logf("%s: %d", c.name, trips)
		}
	}
}
