package history

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"thread/engine"
)

// TestGroup: writes that wait at the same time share a transaction. One that fails, panics or
// ends its goroutine stores nothing, and the others are stored. One whose context ends
// does not wait.
func TestGroup(t *testing.T) {
	if n := groupOf(t, t, slices.Repeat([]string{"stored"}, 16)); n != 1 {
		t.Errorf("16 writes in %d transactions", n)
	}
	groupOf(t, t, []string{"stored", "none once", "fails"}) // it is called again, as the first
	rapid.Check(t, func(rt *rapid.T) {
		groupOf(t, rt, rapid.SliceOfN(rapid.SampledFrom([]string{"stored", "stored", "stored", "fails", "fails late", "none", "none once", "panics", "exits", "cancelled"}), 1, 24).Draw(rt, "kinds"))
	})
}

// groupOf lets writes of these kinds wait for the same transaction, and returns in how many
// they succeeded.
func groupOf(t *testing.T, rt tester, kinds []string) int {
	errNo := errors.New("no")
	h := inbox(t)
	ok(t, h.Put(ctx, &SessionRow{ID: "first", SubjectRef: "s", AgentName: "a"}))
	go_, writing := make(chan struct{}), make(chan struct{})
	var all sync.WaitGroup
	all.Go(func() { // as another process would
		_ = h.t.Update(ctx, func(*engine.Tx) error {
			close(writing)
			<-go_
			return nil
		})
	})
	<-writing
	var mu sync.Mutex
	in := map[*engine.Tx]int{} // successful calls
	results, panics, calls := make([]error, len(kinds)), make([]any, len(kinds)), make([]int, len(kinds))
	var ends []context.CancelCauseFunc
	for i, kind := range kinds {
		limited, cancel := context.WithCancelCause(ctx)
		all.Go(func() {
			defer func() { panics[i] = recover() }()
			results[i] = errors.New("it has not returned")
			results[i] = h.share(limited, func(tx *Tx) error {
				put := func() error {
					return tx.Put(&SessionRow{ID: fmt.Sprint(i), SubjectRef: "s", AgentName: "a"})
				}
				switch kind {
				case "fails":
					return errNo
				case "fails late":
					return errors.Join(put(), errNo)
				case "none":
					return &noneReady{}
				case "none once":
					if calls[i]++; calls[i] == 1 {
						return &noneReady{}
					}
				case "panics":
					_ = put()
					panic("at the disco")
				case "exits":
					_ = put()
					runtime.Goexit()
				}
				mu.Lock()
				in[tx.e]++
				mu.Unlock()
				return put()
			})
		})
		h.group.await(i) // it is behind the others, and the first one leads
		defer cancel(nil)
		if kind == "cancelled" && i > 0 {
			ends = append(ends, cancel)
		}
	}
	for _, end := range ends {
		end(context.Canceled)
	}
	h.group.await(len(kinds) - 1 - len(ends))
	close(go_)
	all.Wait()
	for i, kind := range kinds {
		var row SessionRow
		err := h.Get(ctx, &row, fmt.Sprint(i))
		stored := err == nil
		var none *noneReady
		good := map[string]bool{
			"stored": results[i] == nil, "fails": errors.Is(results[i], errNo), "fails late": errors.Is(results[i], errNo), "none": errors.As(results[i], &none),
			"none once": stored == (results[i] == nil) && (stored || errors.As(results[i], &none)),
			"panics":    panics[i] != nil, "exits": results[i] != nil, "cancelled": stored == (results[i] == nil) && (stored || errors.Is(results[i], context.Canceled)),
		}[kind]
		if !good || kind != "cancelled" && kind != "none once" && stored != (kind == "stored") {
			rt.Errorf("write %d %s: stored %v, %v, panic %v", i, kind, stored, results[i], panics[i])
		}
	}
	rebuilt(rt, h)
	return len(in)
}

// TestGroupBusy: who has waited as long as the leader gets its error, and no other.
func TestGroupBusy(t *testing.T) {
	h := inbox(t, WithEngine(engine.WithLockWait(50*time.Millisecond)))
	ok(t, h.Put(ctx, &SessionRow{ID: "first", SubjectRef: "s", AgentName: "a"}))
	other := reopen(t, h.parent)
	var all sync.WaitGroup
	errs := make([]error, 8)
	ok(t, other.Update(ctx, func(*Tx) error {
		for i := range errs {
			all.Go(func() {
				errs[i] = h.share(ctx, func(tx *Tx) error {
					return tx.Put(&SessionRow{ID: fmt.Sprint(i), SubjectRef: "s", AgentName: "a"})
				})
			})
		}
		all.Wait()
		return nil
	}))
	for i, err := range errs {
		if !errors.Is(err, engine.ErrBusy) {
			t.Errorf("write %d: %v", i, err)
		}
	}
}

// await waits until that many wait behind a leader.
func (g *group) await(n int) {
	for is := false; !is; runtime.Gosched() {
		g.mu.Lock()
		is = g.leading && len(g.waiting) == n
		g.mu.Unlock()
	}
}
