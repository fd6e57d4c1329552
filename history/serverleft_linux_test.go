package history

import (
	"syscall"
	"testing"
	"time"
)

// TestLeftOfARunOfAnotherHost: recovery ends what a worker that was killed on this host has left,
// also where another host has ended the run meanwhile.
func TestLeftOfARunOfAnotherHost(t *testing.T) {
	s, h := onServer(t)
	ended := orphan(t, h, RunRow{ID: "r"})
	s.host = "there"
	s.c.add(time.Hour)
	if !recovered(t, s.history(t)) {
		t.Fatal("the other host does not recover it")
	}
	if list := one[[]RunRow](t)(h.Recover(ctx, RecoverOptions{})); len(list) != 0 {
		t.Errorf("recovered %v", list)
	}
	select {
	case err := <-ended:
		if signalOf(err) != syscall.SIGTERM {
			t.Errorf("it ended with %v", err)
		}
	case <-time.After(20 * time.Second):
		t.Error("its command runs")
	}
}
