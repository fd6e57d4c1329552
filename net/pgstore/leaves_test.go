package pgstore

import (
	"context"
	"encoding/json"
	"errors"
	"regexp"
	"runtime"
	"testing"

	"thread/history"
)

// waits is in the stacks of all goroutines when one waits for its turn to write a history.
var waits = regexp.MustCompile(`\[select\]:\n\S*/history\.\(\*History\)\.share\(`)

// TestLeaderLeaves: a write whose context ends while it leads takes no other write with it.
func TestLeaderLeaves(t *testing.T) {
	h, _ := countedHistory(t)
	ctx := context.Background()
	r, err := h.StartRun(ctx, history.RunRow{AgentName: "a"})
	if err != nil {
		t.Fatal(err)
	}
	limited, cancel := context.WithCancel(ctx)
	other := make(chan error, 1)
	err = r.End(limited, history.End{Status: history.Completed, Also: func(*history.Tx) error {
		if limited.Err() != nil { // it is called again
			return nil
		}
		go func() {
			_, _, err := h.EnqueueJob(ctx, history.RunRow{AgentName: "b"}, json.RawMessage(`1`))
			other <- err
		}()
		for stacks := make([]byte, 1<<20); !waits.Match(stacks[:runtime.Stack(stacks, true)]); {
			runtime.Gosched()
		}
		cancel()
		return nil
	}})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("the write that has left: %v", err)
	}
	if err := <-other; err != nil {
		t.Errorf("the write that has not: %v", err)
	}
}
