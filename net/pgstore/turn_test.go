package pgstore

import (
	"context"
	"errors"
	"testing"
	"time"

	"thread/internal/store"
)

// on runs SQL in the schema of a thread.
func on(t *testing.T, a *Address, query string, args ...value) [][][]byte {
	t.Helper()
	c, err := connect(context.Background(), a.config)
	if err != nil {
		t.Fatal(err)
	}
	defer hangUp(c)
	r, err := pipeline(context.Background(), c, nil, sql("SELECT set_config('search_path', $1, false)", text(a.searchPath())), sql(query, args...))
	if err != nil {
		t.Fatal(err)
	}
	return r[1].rows
}

func put(s *Store, key string) error {
	return s.Update(context.Background(), func(u store.Session) error {
		return u.(plainSession).tx.Put(store.Dead, []byte(key), nil)
	})
}

// Who has lost its turn stores nothing, whatever its clock says.
func TestFencing(t *testing.T) {
	ctx := context.Background()
	a := newThread(t, newSchema(t))
	one, two, three := opened(t, a, plain{}), opened(t, a, plain{}), opened(t, a, plain{})
	if err := one.TakeTurn(ctx, "w", Lease); err != nil {
		t.Fatal(err)
	}
	var taken *TakenError
	if err := two.TakeTurn(ctx, "w", Lease); !errors.As(err, &taken) || taken.Holder != holder() || taken.Left <= 0 || taken.Left > Lease {
		t.Fatalf("got %v", err)
	}
	if err := three.TakeTurn(ctx, "other", Lease); err != nil {
		t.Error(err)
	}
	if err := errors.Join(one.RenewTurn(ctx, Lease), put(one, "1")); err != nil {
		t.Error(err)
	}
	// The lease has ended, which by itself changes nothing.
	on(t, a, "UPDATE turns SET until = clock_timestamp() WHERE consumer = 'w'")
	if err := put(one, "2"); err != nil {
		t.Error(err)
	}
	// It is taken in the middle of a write of its holder: the write comes first, and the
	// taker waits for it.
	began, taking := make(chan struct{}), make(chan error)
	go func() {
		<-began
		taking <- two.TakeTurn(ctx, "w", Lease)
	}()
	if err := one.Update(ctx, func(u store.Session) error {
		close(began)
		return u.(plainSession).tx.Put(store.Dead, []byte("3"), nil)
	}); err != nil {
		t.Error(err)
	}
	if err := <-taking; err != nil {
		t.Fatal(err)
	}
	for name, err := range map[string]error{
		"Update": put(one, "4"), "RenewTurn": one.RenewTurn(ctx, Lease), "GiveTurnBack": one.GiveTurnBack(ctx),
		"Push": func() error { _, err := one.Push(ctx, drafts); return err }(),
	} {
		if !errors.Is(err, ErrTurnLost) {
			t.Errorf("%s of the holder before: %v", name, err)
		}
	}
	if err := put(two, "5"); err != nil {
		t.Error(err)
	}
	// Who reads is not asked, and who has no turn is not either.
	if n := count(t, one); n != 0 {
		t.Errorf("%d events", n)
	}
	if err := put(three, "6"); err != nil {
		t.Error(err)
	}
	var keys string
	for _, r := range on(t, a, "SELECT key FROM records ORDER BY key") {
		keys += string(r[0])
	}
	if keys != "12356" {
		t.Errorf("stored: %s", keys)
	}
	// Given back, it is there for the next at once.
	four := opened(t, a, plain{})
	if err := errors.Join(two.GiveTurnBack(ctx), four.TakeTurn(ctx, "w", Lease)); err != nil {
		t.Error(err)
	}
	// A clock that was ahead for a time draws out no turn.
	on(t, a, "UPDATE turns SET until = clock_timestamp() + interval '1 year'")
	if err := opened(t, a, plain{}).TakeTurn(ctx, "w", Lease); err != nil {
		t.Error(err)
	}
}

// A holder that stops in the middle of a write, with the thread's row locked, keeps no process
// from taking its turn, and stores nothing when it continues.
func TestStoppedInAWrite(t *testing.T) {
	ctx := context.Background()
	a := newThread(t, newSchema(t))
	one, two := opened(t, a, plain{}), opened(t, a, plain{})
	one.idleTimeout = 500 * time.Millisecond
	if err := one.TakeTurn(ctx, "w", Lease); err != nil {
		t.Fatal(err)
	}
	stopped, goOn, ended := make(chan struct{}), make(chan struct{}), make(chan error)
	go func() {
		first := true
		ended <- one.Update(ctx, func(u store.Session) error {
			if first {
				first = false
				close(stopped)
				<-goOn
			}
			return u.(plainSession).tx.Put(store.Dead, []byte("1"), nil)
		})
	}()
	<-stopped
	on(t, a, "UPDATE turns SET until = clock_timestamp()")
	err := errors.Join(two.TakeTurn(ctx, "w", Lease), put(two, "2"))
	close(goOn)
	if err != nil {
		t.Errorf("the next holder: %v", err)
	}
	if err := <-ended; !errors.Is(err, ErrTurnLost) {
		t.Errorf("the one that was stopped: %v", err)
	}
	if rows := on(t, a, "SELECT key FROM records"); len(rows) != 1 || string(rows[0][0]) != "2" {
		t.Errorf("stored: %q", rows)
	}
}

// A write of others ends a wait, also when it does not come before it begins.
func TestWatch(t *testing.T) {
	a := newThread(t, newSchema(t))
	s, other := opened(t, a, plain{}), opened(t, a, plain{})
	w := s.Watch(context.Background()).(*watcher)
	defer w.Close()
	if w.conn == nil {
		t.Fatal("it does not listen")
	}
	w.poll = time.Hour
	limited, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for range 3 {
		if _, err := other.Push(context.Background(), drafts); err != nil {
			t.Fatal(err)
		}
		if err := w.Wait(limited, time.Time{}); err != nil {
			t.Fatalf("no notice of a push: %v", err)
		}
	}
	// A connection that is cut is made again, and what was missed is looked for.
	on(t, a, "SELECT pg_terminate_backend($1::bigint::int)", int8(int64(w.conn.PID())))
	for range 2 {
		if err := w.Wait(limited, time.Time{}); err != nil {
			t.Fatal(err)
		}
	}
	if w.conn == nil {
		t.Error("it does not listen again")
	}
	// Without notices it looks every so often.
	w.poll = time.Millisecond
	if err := w.Wait(limited, time.Time{}); err != nil {
		t.Error(err)
	}
}
