package api

import (
	"context"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"thread/engine"
	"thread/internal/store"
)

// endless is a store whose reads take until their time has ended.
type endless struct{ store.Store }

func (endless) View(ctx context.Context, _ func(tx store.Tx) error) error {
	<-ctx.Done()
	return ctx.Err()
}

// counted serves one thread, which takes for ever to count.
type counted struct {
	nobody
	t *engine.Thread
}

type countedThread struct {
	Thread
	t *engine.Thread
}

func (h counted) Thread(string) (Thread, error) { return countedThread{t: h.t}, nil }
func (t countedThread) Engine() *engine.Thread  { return t.t }

// TestStatsBounds: a count is given up after 20 s, a third client at once is refused
// without waiting, and each gives its place back.
func TestStatsBounds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		at := engine.OpenStore("postgres://h/db?thread=t", store.Place{}, func(store.Logic, time.Duration) store.Store { return endless{} })
		a := New(counted{t: at}, time.Second, nil, nil)
		ask := func(ctx context.Context) *httptest.ResponseRecorder {
			rw := httptest.NewRecorder()
			a.ServeHTTP(rw, httptest.NewRequestWithContext(ctx, "GET", "/threads/t/stats", nil))
			return rw
		}
		refused := func(rw *httptest.ResponseRecorder, says string) {
			t.Helper()
			if text := rw.Body.String(); rw.Code != 503 || rw.Header().Get("Retry-After") == "" || !strings.Contains(text, "urn:thread:problem:busy") || !strings.Contains(text, says) {
				t.Errorf("%d %v %s, want 503 with %q", rw.Code, rw.Header(), text, says)
			}
		}
		begin := time.Now()
		first := make(chan *httptest.ResponseRecorder)
		go func() { first <- ask(t.Context()) }()
		ctx, leave := context.WithCancel(t.Context())
		second := make(chan *httptest.ResponseRecorder)
		go func() { second <- ask(ctx) }()
		synctest.Wait() // both count
		refused(ask(t.Context()), "other clients count at the moment")
		if took := time.Since(begin); took != 0 {
			t.Errorf("the third waited %v", took)
		}
		leave() // its place is free again
		<-second
		go func() { second <- ask(t.Context()) }()
		synctest.Wait()
		refused(ask(t.Context()), "other clients count at the moment")
		for _, counts := range []chan *httptest.ResponseRecorder{first, second} {
			refused(<-counts, "counting takes too long")
		}
		if took := time.Since(begin); took != countTime || countTime != 20*time.Second {
			t.Errorf("a count was given up after %v", took)
		}
		refused(ask(t.Context()), "counting takes too long") // alone: it counts
		if len(a.counting) != 0 {
			t.Errorf("%d places are taken", len(a.counting))
		}
	})
}
