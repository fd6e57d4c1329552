package engine_test

import (
	"context"
	"path/filepath"
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
