package engine_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"thread/engine"
	"thread/event"
	"thread/internal/faults"
)

// TestFailures: each system call of an operation fails once. Without an error its effect
// is stored; with one it is not, unless the error leaves that open. No file stays open,
// and the thread is as usable as before.
func TestFailures(t *testing.T) {
	ctx := context.Background()
	draft := func(content string) event.Draft {
		return event.Draft{Source: "self", Type: "message", Content: content}
	}
	for name, op := range map[string]struct {
		do   func(th *engine.Thread) error
		done func(th *engine.Thread) (bool, error)
	}{
		"push": {
			func(th *engine.Thread) error {
				_, err := th.Push(ctx, draft("new"))
				return err
			},
			func(th *engine.Thread) (bool, error) { return stored(ctx, th, "new", 1) },
		},
		"batch": {
			func(th *engine.Thread) error {
				_, err := th.PushBatch(ctx, []event.Draft{draft("new"), draft("new"), draft("new" + strings.Repeat("x", 3<<20))})
				return err
			},
			func(th *engine.Thread) (bool, error) { return stored(ctx, th, "new", 3) },
		},
		"ack": {
			func(th *engine.Thread) error { return th.Ack(ctx, "c", 2) },
			func(th *engine.Thread) (bool, error) {
				info, err := th.Info(ctx)
				if err != nil || len(info.Subscriptions) != 1 {
					return false, errors.Join(err, fmt.Errorf("%d subscriptions", len(info.Subscriptions)))
				}
				return info.Subscriptions[0].LastAcked == 2, nil
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			calls := []string{"openat", "flock", "read", "write", "pread64", "pwrite64", "fsync", "fdatasync", "ftruncate", "unlinkat"}
			faults.Each(t, syscall.EIO, calls, func(t *testing.T, f *faults.Fault) {
				dir := filepath.Join(faults.Dir(t), "t")
				th, err := engine.Init(dir)
				if err != nil {
					t.Fatal(err)
				}
				for i := range 3 {
					if _, err := th.Push(ctx, draft(fmt.Sprint("old ", i))); err != nil {
						t.Fatal(err)
					}
				}
				if err := th.Subscribe(ctx, engine.Subscription{Consumer: "c", Handler: "true"}); err != nil {
					t.Fatal(err)
				}
				var failed error
				f.Run(t, dir, func() { failed = op.do(th) })
				if open := faults.Open(t, dir); open != nil {
					t.Errorf("open are %q", open)
				}
				if f.Hit == nil && failed != nil {
					t.Error(failed)
				}
				if err := th.Close(); err != nil {
					t.Error(err)
				}
				if th, err = engine.Open(dir); err != nil {
					t.Fatal(err)
				}
				defer th.Close()
				done, derr := op.done(th)
				if derr != nil {
					t.Fatal(derr)
				}
				unknown := errors.Is(failed, engine.ErrUnknownOutcome)
				if done != (failed == nil) && !unknown {
					t.Errorf("stored is %v, and the error %v, after %v", done, failed, f.Calls)
				}
				if _, err := th.Push(ctx, draft("later")); err != nil {
					t.Error(err)
				}
				if ok, err := stored(ctx, th, "old", 3); !ok || err != nil {
					t.Errorf("what was stored before: %v, %v", ok, err)
				}
			})
		})
	}
}

// stored reports whether events whose content begins with prefix are stored, all n.
func stored(ctx context.Context, th *engine.Thread, prefix string, n int) (bool, error) {
	events, err := th.Peek(ctx, engine.Query{Limit: 100})
	if err != nil {
		return false, err
	}
	events = slices.DeleteFunc(events, func(e event.Event) bool { return !strings.HasPrefix(e.Content, prefix) })
	if len(events) != 0 && len(events) != n {
		return false, fmt.Errorf("%d of %d events are stored", len(events), n)
	}
	return len(events) == n, nil
}

// TestInfoOpensOnce: what Info tells is of one transaction, so that it fits together.
func TestInfoOpensOnce(t *testing.T) {
	dir := filepath.Join(faults.Dir(t), "t")
	th, err := engine.Init(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer th.Close()
	if err := th.SetLimits(t.Context(), engine.Limits{MaxEvents: 5}); err != nil {
		t.Fatal(err)
	}
	var f faults.Fault
	f.Run(t, dir, func() {
		info, err := th.Info(context.Background())
		if err != nil || info.Limits == nil || info.Limits.MaxEvents != 5 || len(th.Backlogs(context.Background(), nil)) != 0 {
			t.Errorf("%+v %v", info.Limits, err)
		}
	})
	opens := 0
	for _, c := range f.Calls {
		if c.Name == "openat" && strings.HasSuffix(c.Path, "/events.db") {
			opens++
		}
	}
	if opens != 1 {
		t.Errorf("events.db is opened %d times", opens)
	}
}
