//go:build linux

package dispatch

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"thread/engine"
	"thread/internal/faults"
	"thread/lock"
)

// TestLookSaysWhatIsSkipped: the look that answers a push says which consumers it does not start,
// and why; a later look says nothing, nor does any look of a consumer that need not run.
func TestLookSaysWhatIsSkipped(t *testing.T) {
	ctx := context.Background()
	t.Setenv(envDispatch, wakeNone)
	for what, tt := range map[string]struct {
		prepare func(t *testing.T, r *dispatcher)
		want    string // of the first look
	}{
		"the lock is held": {func(t *testing.T, r *dispatcher) {
			exclusive(t, r.handlerLockPath("c"))
		}, "consumer=c skipped (lock held)"},
		"a retry is waited for": {func(t *testing.T, r *dispatcher) {
			exclusive(t, r.supervisorLockPath("c"))
		}, "consumer=c skipped (waiting to retry)"},
		"it was left unread by its own handler, who pushes": {func(t *testing.T, r *dispatcher) {
			must(t, r.writeNote("c", note{State: stateStopped, Seen: 1}))
			r.after = "c"
		}, ""},
		"there is no slot": {func(t *testing.T, r *dispatcher) {
			for i := range r.max {
				exclusive(t, r.slotPath(i))
			}
		}, "consumer=c waits for a slot, with up to 0 after it: 2 handlers are running"},
	} {
		for _, first := range []bool{true, false} {
			t.Run(fmt.Sprint(what, ", first: ", first), func(t *testing.T) {
				th := withEvent(t, filepath.Join(faults.Dir(t), "t"), "true")
				defer th.Close()
				r := newDispatcher(th, Options{MaxHandlers: 2})
				must(t, r.prepare())
				tt.prepare(t, r)
				s := newSupervisor(r)
				s.first = first
				must(t, s.next(ctx))
				if s.running != 0 {
					t.Fatal("it runs")
				}
				log := (&bench{TB: t, t: th}).log()
				want := tt.want
				if !first {
					want = ""
				}
				if want != "" && !strings.Contains(log, want) || want == "" && log != "" {
					t.Errorf("want %q, it says %q", want, log)
				}
			})
		}
	}
}

// TestLookIsLeftToAServer: a look after a release is left to a server that has come meanwhile,
// and the look that answers a push is not.
func TestLookIsLeftToAServer(t *testing.T) {
	ctx := context.Background()
	for _, first := range []bool{true, false} {
		th := withEvent(t, filepath.Join(faults.Dir(t), "t"), "true")
		defer th.Close()
		server, err := NewServer(ctx, th)
		must(t, err)
		defer server.Close()
		pings, err := server.Listen()
		must(t, err)
		defer pings.Close()
		r := newDispatcher(th, Options{MaxHandlers: 1})
		exclusive(t, r.slotPath(0)) // so that nothing is started
		s := newSupervisor(r)
		s.first = first
		must(t, s.next(ctx))
		if looked := strings.Contains((&bench{TB: t, t: th}).log(), "waits for a slot"); looked != first {
			t.Errorf("first: %v; it has looked: %v", first, looked)
		}
		if first {
			continue
		}
		if got, err := pings.Next(); err != nil || got.Push {
			t.Errorf("the server is told %+v, %v", got, err)
		}
	}
}

// TestTakeoverDelay: the first few takeovers in a row are made at once, and each later one waits
// twice as long as the one before, up to a bound.
func TestTakeoverDelay(t *testing.T) {
	for n := 0; n <= takeoversAtOnce; n++ {
		if d := takeoverDelay(n); d != 0 {
			t.Errorf("takeover %d waits %v", n, d)
		}
	}
	want := takeoverPause
	for n := takeoversAtOnce + 1; n < 100; n++ {
		if d := takeoverDelay(n); d != want {
			t.Errorf("takeover %d waits %v, want %v", n, d, want)
		}
		want = min(2*want, maxTakeoverPause)
	}
}

// TestClaimPassesAnother: a claim for a new run of a lane in which another consumer was refused a
// place passes that; a run that has lost its supervisor does not, nor one without a place.
func TestClaimPassesAnother(t *testing.T) {
	place := &lock.File{}
	in := engine.Due{Subscription: engine.Subscription{Lane: "l"}}
	for what, tt := range map[string]struct {
		c    claim
		want bool
	}{
		"in the lane":      {claim{due: in, room: &room{place: place}}, true},
		"in another":       {claim{room: &room{place: place}}, false},
		"lost":             {claim{due: in, room: &room{place: place}, lost: &record{}}, false},
		"without a place":  {claim{due: in, room: &room{}}, false},
		"of another, lost": {claim{room: &room{}, lost: &record{}}, false},
	} {
		if got := tt.c.passes(map[string]bool{"l": true}); got != tt.want {
			t.Errorf("%s: %v", what, got)
		}
	}
}

// TestNextRetry: of those that wait, the one that is due first is run first.
func TestNextRetry(t *testing.T) {
	now := time.Now()
	s := &supervisor{waiting: map[string]*waiter{}}
	if c := s.nextRetry(); c != "" {
		t.Errorf("no consumer waits, and %q is next", c)
	}
	for i := range 20 { // a map has no order
		s.waiting[fmt.Sprint(i)] = &waiter{at: now.Add(time.Duration((i*7)%20) * time.Second)}
	}
	for i := range 20 {
		c := s.nextRetry()
		if want := now.Add(time.Duration(i) * time.Second); s.waiting[c] == nil || !s.waiting[c].at.Equal(want) {
			t.Fatalf("%q is next", c)
		}
		delete(s.waiting, c)
	}
}
