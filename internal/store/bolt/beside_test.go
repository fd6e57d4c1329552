package bolt_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"thread/engine"
	"thread/event"
	"thread/internal/faults"
	"thread/internal/fsck"
)

// TestCalledOff: whenever an operation is called off, it is done as a whole or not at all, and
// it leaves nothing open or behind.
func TestCalledOff(t *testing.T) {
	for name, op := range operations() {
		if name == "init" || name == "restore" || op.before != nil {
			continue
		}
		t.Run(name, func(t *testing.T) {
			prepared := filepath.Join(faults.Dir(t), "t")
			op.prepare(t, prepared)
			for at, more := 1, true; more && !t.Failed(); at += 3 {
				root := faults.Dir(t)
				dir := filepath.Join(root, "t")
				must(t, os.CopyFS(dir, os.DirFS(prepared)))
				c, cancel := context.WithCancelCause(ctx)
				more = false
				f := faults.Fault{Before: func(_ faults.Call, n int) {
					if n == at {
						more = true
						cancel(errMine)
					}
				}}
				var err error
				f.Run(t, root, func() { err = op.do(c, dir) })
				cancel(nil)
				want := "done"
				if err != nil {
					want = ""
				}
				if got := op.effect(t, dir); got != want || err != nil && !errors.Is(err, errMine) {
					t.Errorf("called off at call %d: %q, and the error %v", at, got, err)
				}
				if open, left := faults.Open(t, root), leftovers(t, root); open != nil || left != nil {
					t.Errorf("called off at call %d: open are %q, left %q", at, open, left)
				}
			}
		})
	}
}

// TestPushBesideEachCall: an event that is pushed while the database is copied is there
// afterwards, also the first one of a series whose other events are dropped.
func TestPushBesideEachCall(t *testing.T) {
	keep := int64(4)
	for name, rewrite := range map[string]func(th *engine.Thread) error{
		"compact": func(th *engine.Thread) error { _, err := th.Compact(ctx); return err },
		"prune":   func(th *engine.Thread) error { _, err := th.Prune(ctx, engine.Retention{KeepLast: &keep}); return err },
	} {
		t.Run(name, func(t *testing.T) {
			prepared := filepath.Join(faults.Dir(t), "t")
			th, err := engine.Init(prepared)
			must(t, err)
			for i := range 12 {
				_, err := th.Push(ctx, event.Draft{Source: fmt.Sprint("s", i/4), Type: fmt.Sprint("t", i/6), Content: fmt.Sprint(i)})
				must(t, err)
			}
			must(t, th.Close())
			for at, more := 1, true; more && !t.Failed(); at += 5 {
				dir := filepath.Join(faults.Dir(t), "t")
				must(t, os.CopyFS(dir, os.DirFS(prepared)))
				more = false
				pushed := 0
				f := faults.Fault{Before: func(_ faults.Call, n int) {
					if n < at || pushed == 2 {
						return
					}
					more = true
					other, err := engine.Open(dir, engine.WithLockWait(time.Nanosecond))
					if err != nil {
						return
					}
					defer other.Close()
					for pushed < 2 {
						if _, err = other.Push(ctx, event.Draft{Source: fmt.Sprint("s", pushed), Type: "t0", Content: "beside"}); err != nil {
							return // it has the lock: at the next call
						}
						pushed++
					}
				}}
				th, err := engine.Open(dir)
				must(t, err)
				f.Run(t, dir, func() { err = rewrite(th) })
				must(t, err)
				must(t, th.Close())
				th, err = engine.Open(dir)
				must(t, err)
				for i := range 2 {
					es, err := th.Peek(ctx, engine.Query{Filter: fmt.Sprintf("source = 's%d' AND content = 'beside'", i)})
					if want := min(max(pushed-i, 0), 1); err != nil || len(es) != want {
						t.Errorf("pushed at call %d: %d events of s%d, want %d, %v", at, len(es), i, want, err)
					}
				}
				if report, err := fsck.Check(ctx, th); err != nil || len(report.Faults) > 0 {
					t.Errorf("pushed at call %d: %v, %v", at, report.Faults, err)
				}
				must(t, th.Close())
			}
		})
	}
}
