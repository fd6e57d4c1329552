package engine_test

import (
	"context"
	"errors"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strings"
	"testing"

	"thread/engine"
	"thread/event"
)

// TestPanicInUpdate: a panic of the caller's function reaches the caller, and
// neither the lock nor the queue is left behind.
func TestPanicInUpdate(t *testing.T) {
	th, err := engine.Init(filepath.Join(t.TempDir(), "inbox"))
	if err != nil {
		t.Fatal(err)
	}
	func() {
		defer func() {
			if r := recover(); r != "mine" {
				t.Errorf("recovered %v", r)
			}
		}()
		th.Update(context.Background(), func(tx *engine.Tx) error { panic("mine") })
	}()
	if e, err := th.Push(context.Background(), event.Draft{Source: "a", Type: "t"}); err != nil || e.ID != 1 {
		t.Errorf("%+v, %v", e, err)
	}
}

// TestCallbacks: what ends a function of the caller in another way than with its
// return continues to the caller as it is, with the stack of where it began. Nothing
// is stored, and nothing stays locked or queued.
func TestCallbacks(t *testing.T) {
	th, err := engine.Init(filepath.Join(t.TempDir(), "inbox"), engine.WithLockWait(0))
	if err != nil {
		t.Fatal(err)
	}
	ctx := context.Background()
	mine := errors.New("mine")
	var nobody *event.Event
	for name, use := range map[string]func(context.Context, func(*engine.Tx) error) error{"Update": th.Update, "View": th.View} {
		for what, fn := range map[string]func(){
			"error":  func() { panicHere(mine) },
			"nil":    func() { panicHere(nil) },
			"fault":  func() { _ = nobody.ID },
			"Goexit": runtime.Goexit,
		} {
			ended := make(chan any)
			stack := ""
			go func() {
				defer func() {
					r := recover()
					stack = string(debug.Stack())
					ended <- r
				}()
				err := use(ctx, func(tx *engine.Tx) error {
					if name == "Update" {
						if _, err := tx.Push(event.Draft{Source: "lost", Type: "t"}); err != nil {
							t.Error(err)
						}
					}
					fn()
					return nil
				})
				t.Errorf("%s, %s: returned %v", name, what, err)
			}()
			r := <-ended
			var isNil *runtime.PanicNilError
			var fault runtime.Error
			err, _ := r.(error)
			switch what {
			case "error":
				if r != mine {
					t.Errorf("%s, %s: recovered %v", name, what, r)
				}
			case "nil":
				if !errors.As(err, &isNil) {
					t.Errorf("%s, %s: recovered %v", name, what, r)
				}
			case "fault":
				if !errors.As(err, &fault) || !strings.Contains(err.Error(), "nil pointer") {
					t.Errorf("%s, %s: recovered %v", name, what, r)
				}
			case "Goexit":
				if r != nil {
					t.Errorf("%s, %s: recovered %v", name, what, r)
				}
			}
			if what != "Goexit" && what != "fault" && !strings.Contains(stack, "panicHere") {
				t.Errorf("%s, %s: the stack of the panic is lost:\n%s", name, what, stack)
			}
			if es, err := th.Peek(ctx, engine.Query{}); err != nil || len(es) != 0 {
				t.Errorf("%s, %s: %v, %v", name, what, es, err)
			}
			if err := th.Update(ctx, func(tx *engine.Tx) error { return mine }); err != mine {
				t.Errorf("%s, %s: afterwards %v", name, what, err)
			}
		}
	}
}

//go:noinline
func panicHere(v any) { panic(v) }
