package pgstore

import (
	"context"
	"testing"
)

// withDefault returns the address for a role or database whose default is another one.
func withDefault(a *Address, name, value string) *Address {
	other := *a
	other.config = a.config.Copy()
	other.config.RuntimeParams[name] = value
	return &other
}

// TestResolveBehindTheLock: who looks for a COMMIT that broke waits until it is decided, and
// sees it then, whatever level of isolation is the default.
func TestResolveBehindTheLock(t *testing.T) {
	in, ctx, nonce := newSchema(t), context.Background(), []byte("nonce")
	for _, level := range []string{"read committed", "repeatable read", "serializable"} {
		t.Run(level, func(t *testing.T) {
			a := newThread(t, in)
			c, err := connect(ctx, a.config)
			if err != nil {
				t.Fatal(err)
			}
			defer hangUp(c)
			s := opened(t, withDefault(a, "default_transaction_isolation", level), plain{})
			list := append([]statement{sql(beginWrite), s.settings(true), sql("SELECT 1 FROM threads WHERE thread = $1 FOR UPDATE", text(a.Thread))}, s.nonce(nonce)[0])
			if _, err := pipeline(ctx, c, nil, list...); err != nil {
				t.Fatal(err)
			}
			found := make(chan bool, 1)
			go func() {
				stored, err := s.lookUp(ctx, nonce)
				if err != nil {
					t.Error(err)
				}
				found <- stored
			}()
			for waits := false; !waits && len(found) == 0; {
				r, err := pipeline(ctx, c, nil, sql("SELECT 1 FROM pg_locks WHERE NOT granted AND pg_backend_pid() = ANY (pg_blocking_pids(pid))"))
				if err != nil {
					t.Fatal(err)
				}
				waits = len(r[0].rows) > 0
			}
			if _, err := pipeline(ctx, c, nil, sql("COMMIT")); err != nil {
				t.Fatal(err)
			}
			if !<-found {
				t.Error("what is committed was not found: it would be stored again")
			}
		})
	}
}

// TestReadOnlyByDefault: a role whose transactions are read-only by default can do all.
func TestReadOnlyByDefault(t *testing.T) {
	ctx := context.Background()
	a := withDefault(newSchema(t), "default_transaction_read_only", "on")
	if err := Init(ctx, a); err != nil {
		t.Fatal(err)
	}
	s := opened(t, a, plain{})
	if _, err := s.Push(ctx, drafts); err != nil {
		t.Error(err)
	}
	if err := s.TakeTurn(ctx, "c", Lease); err != nil {
		t.Fatal(err)
	}
	if err := s.RenewTurn(ctx, Lease); err != nil {
		t.Errorf("renewed: %v", err)
	}
	if err := s.GiveTurnBack(ctx); err != nil {
		t.Errorf("given back: %v", err)
	}
	if stored, err := s.lookUp(ctx, []byte("nonce")); stored || err != nil {
		t.Errorf("got %v, %v", stored, err)
	}
}
