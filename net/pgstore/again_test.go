package pgstore

import (
	"bytes"
	"context"
	"io"
	"net"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"thread/engine"
	"thread/event"
	"thread/internal/store"
)

// cutting cuts its connection at the next COMMIT, which does not go out, when it is armed.
type cutting struct {
	net.Conn
	armed *atomic.Bool
}

func (c *cutting) Write(b []byte) (int, error) {
	if bytes.Contains(b, []byte("COMMIT\x00")) && c.armed.CompareAndSwap(true, false) {
		_ = c.Close()
		return 0, io.ErrClosedPipe
	}
	return c.Conn.Write(b)
}

// TestRunAgain: a transaction whose COMMIT did not go out is run again, and gives what it
// would have given the first time.
func TestRunAgain(t *testing.T) {
	in := newSchema(t)
	ctx := context.Background()
	ids := func(list []event.Event) (ids []int64) {
		for _, e := range list {
			ids = append(ids, e.ID)
		}
		return ids
	}
	for name, op := range map[string]func(th *engine.Thread, arm func()) (given []int64, acked int64, err error){
		"pop": func(th *engine.Thread, arm func()) (given []int64, _ int64, err error) {
			arm()
			page, err := th.Pop(ctx, "c", engine.PopQuery{LastAcked: 1, Limit: 1})
			for e, err := range page.Events {
				if err != nil {
					return nil, 0, err
				}
				given = append(given, e.ID)
			}
			return given, 1, err
		},
		"feed": func(th *engine.Thread, arm func()) ([]int64, int64, error) {
			f := th.Feed("c", engine.Policy{})
			if _, err := f.Next(ctx, nil); err != nil {
				return nil, 0, err
			}
			arm()
			d, err := f.Next(ctx, &engine.Result{Verdict: engine.Succeeded})
			return ids(d.Events), 1, err
		},
		"unordered feed": func(th *engine.Thread, arm func()) ([]int64, int64, error) {
			f := th.Feed("c", engine.Policy{Unordered: true, MaxAttempts: 3})
			if _, err := f.Next(ctx, nil); err != nil {
				return nil, 0, err
			}
			arm()
			d, err := f.Next(ctx, &engine.Result{Verdict: engine.Failed}) // it is redelivered at once
			return ids(d.Events), 1, err                                  // it holds up nothing
		},
		"parallel feed": func(th *engine.Thread, arm func()) ([]int64, int64, error) {
			f, err := th.ParallelFeed("c", engine.ParallelPolicy{})
			if err != nil {
				return nil, 0, err
			}
			g, err := f.Step(ctx, engine.Step{Begin: 1})
			if err != nil || len(g.Begin) != 1 {
				return nil, 0, err
			}
			arm()
			g, err = f.Step(ctx, engine.Step{Begin: 1, Results: []engine.DeliveryResult{{Number: g.Begin[0].Number(), Result: engine.Result{Verdict: engine.Succeeded}}}})
			if err != nil || len(g.Begin) != 1 {
				return nil, 0, err
			}
			return ids(g.Begin[0].Events), 1, nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			var given [2][]int64
			for cut := range 2 {
				a := *newThread(t, in)
				a.config = a.config.Copy()
				dial := a.config.DialFunc
				a.config.TLSConfig, a.config.Fallbacks = nil, nil // COMMIT is to be seen
				var armed atomic.Bool
				a.config.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
					c, err := dial(ctx, network, addr)
					return &cutting{c, &armed}, err
				}
				th := engine.OpenStore(a.URL, store.Place{Dir: t.TempDir()}, func(l store.Logic, _ time.Duration) store.Store {
					return opened(t, &a, l)
				})
				if err := th.Subscribe(ctx, engine.Subscription{Consumer: "c", Handler: "true"}); err != nil {
					t.Fatal(err)
				}
				if _, err := th.PushBatch(ctx, slices.Repeat(drafts, 4)); err != nil {
					t.Fatal(err)
				}
				list, acked, err := op(th, func() { armed.Store(cut > 0) })
				if err != nil || armed.Load() {
					t.Fatalf("cut %d: %v", cut, err)
				}
				given[cut] = list
				if err := th.View(ctx, func(tx *engine.Tx) error {
					p, _, err := tx.Progress("c")
					if p.LastAcked != acked {
						t.Errorf("cut %d: acked %d, want %d", cut, p.LastAcked, acked)
					}
					return err
				}); err != nil {
					t.Fatal(err)
				}
			}
			if len(given[0]) != 1 || !slices.Equal(given[0], given[1]) {
				t.Errorf("given out: %v, and when run again %v", given[0], given[1])
			}
		})
	}
}
