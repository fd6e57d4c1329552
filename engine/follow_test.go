package engine

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"thread/event"
	"thread/filter"
	"thread/internal/watch"
)

func noWatcher(string) (*watch.Watcher, error) { return nil, errors.New("no more notices") }

// following collects what Follow yields until want events have come.
func following(t *testing.T, th *Thread, after int64, where string, want int, come func(e event.Event)) (ids []int64) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	for e, err := range th.Follow(ctx, after, where) {
		if err != nil {
			t.Fatalf("after %v: %v", ids, err)
		}
		ids = append(ids, e.ID)
		come(e)
		if len(ids) == want {
			break
		}
	}
	return ids
}

// TestFollow: while others push, everything that matches comes once and in order,
// with file notices and without.
func TestFollow(t *testing.T) {
	for _, tt := range []struct {
		name  string
		watch func(string) (*watch.Watcher, error)
		poll  time.Duration
	}{{"notices", watch.New, time.Hour}, {"polling", noWatcher, time.Millisecond}} {
		t.Run(tt.name, func(t *testing.T) {
			defer func(w func(string) (*watch.Watcher, error), p, s time.Duration) {
				newWatcher, followPoll, followSweep = w, p, s
			}(newWatcher, followPoll, followSweep)
			newWatcher, followPoll, followSweep = tt.watch, tt.poll, time.Hour
			th, err := Init(filepath.Join(t.TempDir(), "thread"))
			if err != nil {
				t.Fatal(err)
			}
			push := func(n int) {
				if _, err := th.Push(ctx, event.Draft{Source: fmt.Sprint("s", n%3), Type: "m", Content: fmt.Sprint(n)}); err != nil {
					t.Error(err)
				}
			}
			const before, total = 10, 60
			for n := range before {
				push(n)
			}
			pushed := make(chan struct{})
			defer func() { <-pushed }()
			go func() {
				defer close(pushed)
				for n := before; n < total; n++ {
					push(n)
				}
			}()
			var want []int64
			for n := 4; n < total; n++ { // ids from 5 on
				if n%3 == 1 {
					want = append(want, int64(n+1))
				}
			}
			got := following(t, th, 4, "source = 's1'", len(want), func(event.Event) {})
			if !slices.Equal(got, want) {
				t.Errorf("%v, want %v", got, want)
			}
		})
	}
}

// TestFollowEach: an event that the caller pushes for each that comes is seen next,
// and what falls due comes without another push.
func TestFollowEach(t *testing.T) {
	defer func(s time.Duration) { followSweep = s }(followSweep)
	followSweep = time.Hour
	th, err := Init(filepath.Join(t.TempDir(), "thread"))
	if err != nil {
		t.Fatal(err)
	}
	d := event.Draft{Source: "self", Type: "m"}
	if _, _, err := th.PushAfter(ctx, d, 30*time.Millisecond); err != nil {
		t.Fatal(err)
	}
	got := following(t, th, 0, "", 4, func(event.Event) {
		if _, err := th.Push(ctx, d); err != nil {
			t.Error(err)
		}
	})
	if !slices.Equal(got, []int64{1, 2, 3, 4}) {
		t.Errorf("%v", got)
	}
}

// TestFollowEnds: how it ends, and that the error comes last and once.
func TestFollowEnds(t *testing.T) {
	gone := errors.New("gone home")
	for name, tt := range map[string]struct {
		after  int64
		filter string
		begun  func(th *Thread, cancel context.CancelCauseFunc)
		is     func(err error) bool
	}{
		"no filter": {0, "nonsense =", nil, func(err error) bool { bad := (*filter.Error)(nil); return errors.As(err, &bad) }},
		"negative":  {-1, "", nil, func(err error) bool { return errors.Is(err, ErrInvalid) }},
		"fails": {1, "json_extract(content, '$.a') = 1", func(th *Thread, _ context.CancelCauseFunc) {
			_, _ = th.Push(ctx, event.Draft{Source: "s", Type: "m", Content: "no JSON"})
		}, func(err error) bool { return errors.Is(err, filter.ErrRuntime) }},
		"context": {0, "", func(_ *Thread, cancel context.CancelCauseFunc) { cancel(gone) }, func(err error) bool { return errors.Is(err, gone) }},
		"closed": {0, "", func(th *Thread, _ context.CancelCauseFunc) {
			th.Close()
			if other, err := Open(th.Dir()); err == nil { // and only a read notices it
				_, _ = other.Push(ctx, event.Draft{Source: "s", Type: "m"})
			}
		}, func(err error) bool { return errors.Is(err, ErrClosed) }},
		"deleted": {0, "", func(th *Thread, _ context.CancelCauseFunc) { _ = Destroy(th.Dir()) }, func(err error) bool { return errors.Is(err, ErrNotThread) }},
	} {
		t.Run(name, func(t *testing.T) {
			th, err := Init(filepath.Join(t.TempDir(), "thread"))
			if err != nil {
				t.Fatal(err)
			}
			if _, err := th.Push(ctx, event.Draft{Source: "s", Type: "m", Content: "{}"}); err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancelCause(t.Context())
			defer cancel(nil)
			var begun sync.WaitGroup
			if tt.begun != nil {
				begun.Go(func() { tt.begun(th, cancel) })
			}
			defer begun.Wait() // before the directory goes
			ended := false
			for _, err := range th.Follow(ctx, tt.after, tt.filter) {
				if ended {
					t.Error("something comes after the error")
				}
				if ended = err != nil; ended && !tt.is(err) {
					t.Errorf("%v", err)
				}
			}
			if !ended {
				t.Error("it ended without an error")
			}
		})
	}
}

// TestFollowWhileBusy: a database that others hold for longer than the wait is waited
// for.
func TestFollowWhileBusy(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "thread")
	th, err := Init(dir)
	if err != nil {
		t.Fatal(err)
	}
	impatient, err := Open(dir, WithLockWait(time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	held, free := make(chan struct{}), make(chan struct{})
	go func() {
		_ = th.Update(ctx, func(tx *Tx) error {
			close(held)
			<-free
			_, err := tx.Push(event.Draft{Source: "s", Type: "m"})
			return err
		})
	}()
	<-held
	defer func(w func(string) (*watch.Watcher, error), p time.Duration) { newWatcher, followPoll = w, p }(newWatcher, followPoll)
	newWatcher, followPoll = noWatcher, time.Millisecond
	busy := 0
	impatient.now = func() time.Time { // asked by each read
		if busy++; busy == 3 {
			close(free)
		}
		return time.Now()
	}
	if _, err := impatient.Peek(ctx, Query{}); !errors.Is(err, ErrBusy) {
		t.Fatalf("the database is not busy: %v", err)
	}
	if got := following(t, impatient, 0, "", 1, func(event.Event) {}); !slices.Equal(got, []int64{1}) {
		t.Errorf("%v", got)
	}
}
