package survive

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"thread/history"
)

// leaveHandled leaves a run of a handler that has ended for the history to take.
func leaveHandled(t *testing.T, s *started) {
	dir := filepath.Join(s.dir, "logs", "runs")
	const text = `{"run_id":"handled","consumer":"c","handler":"false","status":"failed","exit":"exit 1","exit_code":1,` +
		`"started_at":"2999-11-22T08:00:00Z","ended_at":"2999-11-22T08:00:01Z","event_id":1,"output":"x\n","output_bytes":2}`
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "000001795335128894-handled.failed"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// takenOnce: the run is there, whole and once, or is there to be taken still.
func takenOnce(_ *testing.T, s *started) error {
	h, err := history.Open(ctx, s.dir, history.LeaveRuns())
	if err != nil {
		return err
	}
	n := 0
	for c, err := range h.Changes(ctx, 0, "type IN ('run', 'run_step')") {
		if err != nil {
			return err
		}
		if c.EntityID == "handled" || c.EntityID == "handler_handled" {
			n++
		}
	}
	if left, _ := os.ReadDir(filepath.Join(s.dir, "logs", "runs")); n != 2 && (n != 0 || len(left) != 1) {
		return fmt.Errorf("%d history events of the run, and %d files", n, len(left))
	}
	return nil
}
