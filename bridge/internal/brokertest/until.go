package brokertest

import (
	"context"
	"testing"
	"time"

	"thread/bridge/trigger"
)

// Until waits until ok, and fails after patience. It looks when the trigger has changed,
// and now and then: a server does not tell of acknowledgements.
func Until(t *testing.T, tr *trigger.Trigger, patience time.Duration, what string, ok func() bool) {
	t.Helper()
	end := time.After(patience)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-tr.Changed():
		case <-end:
			t.Fatalf("waited in vain for %s: %+v", what, tr.Health(context.Background()))
		}
	}
}
