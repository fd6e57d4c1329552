package pgstore

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"thread/event"
)

// TestCrowd: fifty processes that push at once, on a server with places for eight of
// them, wait for each other, and every event is stored once.
func TestCrowd(t *testing.T) {
	const pushers, places = 50, 8
	a := newThread(t, newSchema(t))
	role := strings.ReplaceAll(a.Schema, "test", "role")
	for _, q := range []string{
		fmt.Sprintf("CREATE ROLE %s LOGIN CONNECTION LIMIT %d", role, places),
		fmt.Sprintf("GRANT USAGE ON SCHEMA %s TO %s", a.Schema, role),
		fmt.Sprintf("GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA %s TO %s", a.Schema, role),
	} {
		on(t, a, q)
	}
	t.Cleanup(func() {
		on(t, a, "DROP OWNED BY "+role)
		on(t, a, "DROP ROLE "+role)
	})
	limited := *a
	limited.config = a.config.Copy()
	limited.config.User = role
	var wg sync.WaitGroup
	errs := make([]error, pushers)
	for i := range pushers {
		wg.Go(func() {
			// A separate pool, as another process has, and patience: a busy machine is not a failure.
			s := Open(&limited, Options{Logic: plain{}, LockTimeout: 5 * time.Minute})
			defer s.Close()
			_, errs[i] = s.Push(context.Background(), []event.Draft{{Source: "s", Type: "t", Content: fmt.Sprint(i)}})
		})
	}
	wg.Wait()
	for i, err := range errs {
		if err != nil {
			t.Errorf("push %d: %v", i, err)
		}
	}
	if n := count(t, opened(t, a, plain{})); n != pushers {
		t.Errorf("%d events, want %d", n, pushers)
	}
}
