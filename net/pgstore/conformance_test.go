package pgstore

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"

	"thread/internal/store"
	"thread/internal/store/storetest"
	"thread/net/internal/pgtest"
)

// newSchema returns the address of a thread that is not there yet, in a schema of the
// test's own.
func newSchema(t *testing.T) *Address {
	t.Helper()
	a, err := ParseURL(pgtest.Schema(t) + "thread+0")
	if err != nil {
		t.Fatal(err)
	}
	return a
}

var threads atomic.Int64

// newThread makes a thread, and returns its address.
func newThread(t *testing.T, in *Address) *Address {
	t.Helper()
	a := *in
	a.Thread = fmt.Sprint("thread ", threads.Add(1))
	if err := Init(context.Background(), &a); err != nil {
		t.Fatal(err)
	}
	return &a
}

func opened(t *testing.T, a *Address, l store.Logic) *Store {
	s := Open(a, Options{Logic: l})
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// All threads of the battery are in one schema, and must not see each other.
func TestConformance(t *testing.T) {
	in := newSchema(t)
	storetest.Run(t, func(t *testing.T) func(l store.Logic) store.Store {
		a := newThread(t, in)
		return func(l store.Logic) store.Store { return opened(t, a, l) }
	})
}
