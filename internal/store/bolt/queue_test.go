package bolt_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"thread/engine"
	"thread/event"
	"thread/internal/store"
	"thread/internal/store/bolt"
	"thread/lock"
)

// TestManyGoroutines: pushes of many goroutines on two handles all get an id of
// their own, each goroutine's in its order, and events.jsonl has them in order;
// functions, failing ones too, keep out of their way.
func TestManyGoroutines(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "inbox")
	a, err := engine.Init(dir)
	if err != nil {
		t.Fatal(err)
	}
	b, err := engine.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	const goroutines, each = 16, 40
	broken := errors.New("broken")
	var mu sync.Mutex
	seen := map[int64]bool{}
	var wg sync.WaitGroup
	for g := range goroutines {
		th := []*engine.Thread{a, b}[g%2]
		wg.Go(func() {
			var last int64
			for i := range each {
				e, err := th.Push(ctx, event.Draft{Source: fmt.Sprint(g), Type: "t", Content: fmt.Sprint(i)})
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				if seen[e.ID] || e.ID <= last {
					t.Errorf("id %d after %d", e.ID, last)
				}
				seen[e.ID] = true
				mu.Unlock()
				last = e.ID
				if i%10 == 0 {
					err := th.Update(ctx, func(tx *engine.Tx) error {
						if _, err := tx.Push(event.Draft{Source: "lost", Type: "t"}); err != nil {
							return err
						}
						return broken
					})
					if err != broken {
						t.Errorf("got %v", err)
					}
				}
			}
		})
	}
	wg.Wait()
	es, err := a.Peek(ctx, engine.Query{})
	if err != nil || len(es) != goroutines*each {
		t.Fatalf("%d events, %v", len(es), err)
	}
	var want []byte
	for i, e := range es {
		if e.ID != int64(i+1) || e.Source == "lost" {
			t.Fatalf("event %d is %+v", i+1, e)
		}
		want = append(e.AppendJSON(want), '\n')
	}
	if got, err := os.ReadFile(filepath.Join(dir, "events.jsonl")); err != nil || !bytes.Equal(got, want) {
		t.Errorf("events.jsonl differs, %v", err)
	}
}

// TestCanceledWhileWaiting: a call whose context ends while another process has
// the database returns at once, stores nothing, and does not disturb the ones
// behind it.
func TestCanceledWhileWaiting(t *testing.T) {
	th, err := engine.Init(filepath.Join(t.TempDir(), "inbox"))
	if err != nil {
		t.Fatal(err)
	}
	other, err := engine.Open(th.Dir())
	if err != nil {
		t.Fatal(err)
	}
	db, err := dirOf(other).OpenExclusive(ctx)
	if err != nil {
		t.Fatal(err)
	}
	cause := errors.New("no longer needed")
	first, cancel := context.WithCancelCause(ctx)
	results := make(chan error, 3)
	for i, c := range []context.Context{first, first, ctx} {
		go func() {
			_, err := th.Push(c, event.Draft{Source: fmt.Sprint(i), Type: "t"})
			results <- err
		}()
	}
	cancel(cause)
	for range 2 {
		if err := <-results; !errors.Is(err, cause) {
			t.Errorf("got %v", err)
		}
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-results; err != nil {
		t.Error(err)
	}
	es, err := th.Peek(ctx, engine.Query{})
	if err != nil || len(es) != 1 || es[0].Source != "2" {
		t.Errorf("got %+v, %v", es, err)
	}
}

// TestBusy: the wait for the database ends, and says so.
func TestBusy(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "inbox")
	th, err := engine.Init(dir)
	if err != nil {
		t.Fatal(err)
	}
	db, err := dirOf(th).OpenExclusive(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	hasty, err := engine.Open(dir, engine.WithLockWait(1))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := hasty.Push(ctx, event.Draft{Source: "a", Type: "t"}); !errors.Is(err, engine.ErrBusy) {
		t.Errorf("push: %v", err)
	}
	if _, err := hasty.Peek(ctx, engine.Query{}); !errors.Is(err, engine.ErrBusy) {
		t.Errorf("peek: %v", err)
	}
}

// TestCanceledInAGroup: of pushes that wait at the gate in one group, those whose
// context ends return its cause at once and store nothing, the first of them or
// another, and the rest is stored as if they had never been there.
func TestCanceledInAGroup(t *testing.T) {
	const group = 4
	for _, ended := range [][]int{{0}, {1}, {0, 2}, {3, 1}, {0, 1, 2, 3}} {
		for _, size := range []int{1, bolt.MaxPendingBytes} { // with a pending write, and without
			t.Run(fmt.Sprint(ended, size), func(t *testing.T) {
				th, err := engine.Init(filepath.Join(t.TempDir(), "inbox"), engine.WithLockWait(time.Minute))
				if err != nil {
					t.Fatal(err)
				}
				waiting := func(n int) func() bool {
					return func() bool {
						return dirOf(th).WaitingWrites() == n
					}
				}
				// They come while a function runs, so that one leader finds them all.
				running, end := make(chan bool), make(chan bool)
				var wg sync.WaitGroup
				wg.Go(func() {
					if err := th.Update(ctx, func(*engine.Tx) error { close(running); <-end; return nil }); err != nil {
						t.Error(err)
					}
				})
				<-running
				gate, err := lock.Try(dirOf(th).Path(store.RunName, ".gate"), lock.Exclusive)
				if err != nil {
					t.Fatal(err)
				}
				cause := errors.New("no longer needed")
				var cancels []func(error)
				var results []chan error
				for i := range group {
					c, cancel := context.WithCancelCause(ctx)
					result := make(chan error, 1)
					cancels, results = append(cancels, cancel), append(results, result)
					go func() {
						e, err := th.Push(c, event.Draft{Source: fmt.Sprint(i), Type: "t", Content: strings.Repeat("x", size)})
						if err == nil && e.Source != fmt.Sprint(i) {
							err = fmt.Errorf("%d got the event of %s", i, e.Source)
						}
						result <- err
					}()
					eventually(t, "in the queue", waiting(i+1))
				}
				close(end)
				if size == 1 && bolt.CanLeaveWrites {
					eventually(t, "in a group", waiting(0))
				}
				for _, i := range ended {
					cancels[i](cause)
					if err := <-results[i]; !errors.Is(err, cause) {
						t.Errorf("push %d: %v", i, err)
					}
				}
				if err := gate.Close(); err != nil {
					t.Fatal(err)
				}
				want := map[string]bool{}
				for i := range group {
					if !slices.Contains(ended, i) {
						want[fmt.Sprint(i)] = true
						if err := <-results[i]; err != nil {
							t.Errorf("push %d: %v", i, err)
						}
					}
				}
				wg.Wait()
				es, err := th.Peek(ctx, engine.Query{})
				if err != nil || len(es) != len(want) {
					t.Errorf("%d events, want %v, %v", len(es), want, err)
				}
				for _, e := range es {
					if !want[e.Source] {
						t.Errorf("the event of %s is stored", e.Source)
					}
				}
			})
		}
	}
}
