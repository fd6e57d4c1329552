//go:build linux

package dispatch

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"thread/engine"
	"thread/event"
	"thread/internal/faults"
	"thread/internal/store"
)

// wantWhy requires what is said of an event.
func wantWhy(t *testing.T, th *engine.Thread, id int64, place Place, words string) {
	t.Helper()
	a, err := Why(context.Background(), th, "c", id)
	if err != nil || a.Place != place || !strings.Contains(a.Text, words) {
		t.Errorf("event %d is said to be %s, want %s with %q: %s, %v", id, a.Place, place, words, a.Text, err)
	}
}

// TestWhyBehindABadFilter: what is said of events behind one on which the filter fails, and of
// a filter that is none.
func TestWhyBehindABadFilter(t *testing.T) {
	asRoot(t)
	th, err := engine.Init(filepath.Join(faults.Dir(t), "t"))
	must(t, err)
	defer th.Close()
	where := "json_extract(content, '$.a') = 1"
	must(t, th.Subscribe(t.Context(), engine.Subscription{Consumer: "c", Handler: "true", Filter: &where}))
	for _, content := range []string{`{"a":1}`, `{"a":2}`, `{"a":1}`, "no JSON", `{"a":1}`} {
		_, err := th.Push(t.Context(), event.Draft{Source: "s", Type: "message", Content: content})
		must(t, err)
	}
	wantWhy(t, th, 1, PlacePending, "is the first unread event")
	wantWhy(t, th, 3, PlacePending, "behind 1 other unread event")
	wantWhy(t, th, 5, PlacePending, "behind 2 other unread event") // the consumer comes no further
	called, cancel := context.WithCancel(t.Context())
	cancel()
	for what, err := range map[string]error{"called off": second(countToFailure(called, th, where, 0, 9)), "no filter": second(countToFailure(t.Context(), th, "(", 0, 9))} {
		if err == nil {
			t.Errorf("%s: it is counted", what)
		}
	}
	must(t, th.Ack(t.Context(), "c", 3))
	wantWhy(t, th, 5, PlaceBroken, "the filter fails on an unread event, so no handler is started")
	if a, ok := explainFilter("(", &event.Event{}); ok || a.Place != PlaceBroken || !strings.Contains(a.Text, "The filter is invalid") {
		t.Errorf("no filter: %+v, %v", a, ok)
	}
	// What keeps handlers from being started is said.
	r := newDispatcher(th, Options{})
	must(t, r.prepare())
	must(t, os.Mkdir(r.troublePath(), 0o700))
	wantWhy(t, th, 1, PlaceAcked, "")
	must(t, th.Unsubscribe(t.Context(), "c"))
	must(t, th.Subscribe(t.Context(), engine.Subscription{Consumer: "c", Handler: "true"}))
	(&bench{TB: t, t: th}).push("s")
	wantWhy(t, th, 6, PlacePending, "No handler can be started for it: read "+r.troublePath())
}

// boardStore is a store on a server, with these hosts.
type boardStore struct {
	store.Store
	store.Board
}

// TestWhyOnAnotherHost: an event that is in flight on another host is running, and one that
// waits for a host says for which.
func TestWhyOnAnotherHost(t *testing.T) {
	dir := filepath.Join(faults.Dir(t), "t")
	th, err := engine.Init(dir)
	must(t, err)
	must(t, th.Close())
	hosts := &board{}
	th = openAs(t, dir, "postgres://host/db?thread=t", func(s store.Store) store.Store { return boardStore{s, hosts} })
	must(t, th.Subscribe(t.Context(), engine.Subscription{Consumer: "c", Handler: "true"}))
	for range 2 {
		(&bench{TB: t, t: th}).push("s")
	}
	wantWhy(t, th, 1, PlacePending, "No process works for the consumer")
	feed, err := th.ParallelFeed("c", engine.ParallelPolicy{Window: 2})
	must(t, err)
	_, err = feed.Step(t.Context(), engine.Step{Begin: 1})
	must(t, err)
	feed.Close() // with the event in flight
	wantWhy(t, th, 1, PlacePending, "was out when its consume ended")
	hosts.holder = "host 7"
	wantWhy(t, th, 1, PlaceRunning, "is in flight")
	wantWhy(t, th, 2, PlaceRunning, "host 7 works for the consumer")
}

// TestTimerCannotWait: a process that waits for a delayed event ends where it has neither lock
// nor directory, and without a wait where the event is gone by then.
func TestTimerCannotWait(t *testing.T) {
	b := newBench(t)
	t.Setenv(envDispatch, wakeNone)
	must(t, b.r.prepare())
	must(t, b.r.holdTimer(t.Context())) // nothing is scheduled
	b.later("s", time.Minute)
	lockPath := filepath.Join(b.r.run, timerLock)
	must(t, os.Mkdir(lockPath, 0o700))
	if err := b.r.awaitScheduled(t.Context()); err == nil {
		t.Error("it has waited without a lock")
	}
	must(t, os.RemoveAll(b.r.run))
	must(t, os.WriteFile(b.r.run, nil, 0o600))
	if err := b.r.awaitScheduled(t.Context()); err == nil {
		t.Error("it has waited without a directory")
	}
	must(t, os.Remove(b.r.run))
	if open := faults.Open(t, b.t.Dir()); open != nil {
		t.Errorf("open are %q", open)
	}
}

// TestTimerIsToldOfNews: a process that waits for a delayed event looks again when it is told
// of another one.
func TestTimerIsToldOfNews(t *testing.T) {
	b := newBench(t)
	t.Setenv(envDispatch, wakeNone)
	must(t, b.r.prepare())
	b.later("s", time.Minute)
	told := make(chan error, 1)
	go func() { told <- b.r.holdTimer(t.Context()) }()
	b.until("it is told", func() bool { return b.r.sendTo(timerSocket, pingSchedule, "") })
	if err := <-told; err != nil || exists(filepath.Join(b.r.run, timerSocket)) {
		t.Errorf("%v, or the socket is left", err)
	}
}
