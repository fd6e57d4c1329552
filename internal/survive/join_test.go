//go:build linux

package survive

import (
	"fmt"
	"os"
	"strconv"
	"testing"

	"thread/history"
)

// TestJoins: a run joins a group of 200 children, and another run joins that one, while the
// workers are killed over and over. Each starts when all that it waits for has ended, and ends
// once. THREAD_JOINS is the number of children.
func TestJoins(t *testing.T) {
	children, err := strconv.Atoi(cmpOr(os.Getenv("THREAD_JOINS"), "200"))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	h := openJobs(t, dir)
	// The workers begin when all are queued: a group that is empty for a moment has ended.
	queue(t, h, children+2, func(i int) (history.RunRow, history.Job) {
		switch i {
		case children:
			return history.RunRow{ID: "join"}, history.Job{AfterGroup: "g", Group: "joins"}
		case children + 1:
			return history.RunRow{ID: "last"}, history.Job{AfterGroup: "joins"}
		}
		return history.RunRow{ID: fmt.Sprint("r", i)}, history.Job{Group: "g"}
	})
	c := newCrew(t, "join", dir, 8)
	ended := make(chan struct{})
	go c.killing(max(20, children/200), ended)
	row, err := h.AwaitEnd(ctx, "last")
	close(ended)
	c.end()
	if err != nil || row.Status != history.Completed {
		t.Fatalf("%+v, %v", row, err)
	}
	attempts := map[string]int64{}
	for _, line := range c.lines() {
		var id string
		var attempt int64
		var open int
		if _, err := fmt.Sscan(line, &id, &attempt, &open); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		if open > 0 {
			t.Errorf("%s started while %d runs of its group had not ended", id, open)
		}
		if attempt <= attempts[id] {
			t.Errorf("%s: attempt %d after %d", id, attempt, attempts[id])
		}
		attempts[id] = attempt
	}
	n, more := 0, int64(0)
	for row, err := range h.Runs(ctx, history.Query{}) {
		if err != nil {
			t.Fatal(err)
		}
		n, more = n+1, more+row.Attempt-1
		if row.Status != history.Completed || attempts[row.ID] != row.Attempt {
			t.Errorf("%s is %s with attempt %d, its worker was in %d", row.ID, row.Status, row.Attempt, attempts[row.ID])
		}
	}
	if n != children+2 || c.kills == 0 {
		t.Errorf("%d runs, %d kills", n, c.kills)
	}
	if _, err := h.Rebuild(ctx); err != nil {
		t.Error(err)
	}
	t.Logf("%d runs, %d kills, %d attempts were repeated", n, c.kills, more)
}
