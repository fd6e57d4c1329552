//go:build linux

package dispatch

import (
	"context"
	"errors"
	"strings"
	"testing"

	"thread/engine"
	"thread/event"
)

func (b *bench) why(consumer string, id int64, place Place, words ...string) {
	b.Helper()
	a, err := Why(context.Background(), b.t, consumer, id)
	if err != nil {
		b.Fatal(err)
	}
	if a.Place != place {
		b.Errorf("event %d is said to be %s, want %s: %s", id, a.Place, place, a.Text)
	}
	for _, w := range words {
		if !strings.Contains(a.Text, w) {
			b.Errorf("event %d: no %q in: %s", id, w, a.Text)
		}
	}
}

func TestWhy(t *testing.T) {
	b := newBench(t)
	at, leave := b.fifo("at"), b.fifo("go")
	where := "type = 'message' AND source LIKE 'ext%' AND (id BETWEEN 1 AND 1000)"
	b.subscribe(engine.Subscription{Consumer: "c", Filter: &where,
		Handler: `echo run > "$D/at"; read x < "$D/go"; exit $x`})
	b.push("self")                                                                                                   // 1
	b.push("external")                                                                                               // 2
	b.push("external")                                                                                               // 3
	b.push("external")                                                                                               // 4
	_, err := b.t.Push(context.Background(), event.Draft{Source: "other", Type: "record", Subtype: event.Text("x")}) // 5
	if err != nil {
		t.Fatal(err)
	}
	b.why("c", 0, PlaceNowhere)
	b.why("c", 6, PlaceNowhere, "the newest is 5")
	b.why("c", 1, PlaceUnmatched, "source LIKE 'ext%' does not hold", "source 'self'")
	b.why("c", 5, PlaceUnmatched, "type = 'message' and source LIKE 'ext%' does not hold", "subtype 'x'")
	b.why("c", 2, PlacePending, "first unread", "No handler")
	b.why("c", 4, PlacePending, "behind 2 other unread")
	if _, err := Why(context.Background(), b.t, "nobody", 1); !errors.Is(err, engine.ErrNoSubscription) {
		t.Errorf("unknown consumer: %v", err)
	}

	t.Setenv("DISPATCH_TEST_DELAY_MS", "2000") // for the look meanwhile
	b.dispatch(Options{})
	at.line()
	b.why("c", 2, PlaceRunning, "The handler runs since 20")
	if s := b.state("c"); !s.Running || s.RunningSince == nil || len(s.RunID) != 32 {
		t.Errorf("state %+v", s)
	}
	reply(leave, "7")
	b.awaitLog("runs again in 2s", 1)
	b.why("c", 2, PlaceRetrying, "has failed once, the last time with exit 7", "logs/handlers/c.log")
	at.line()
	if err := b.t.Ack(context.Background(), "c", 3); err != nil {
		t.Fatal(err)
	}
	reply(leave, "0")
	at.line() // progress moved, so it is run again
	reply(leave, "0")
	b.awaitIdle()
	b.why("c", 3, PlaceAcked, "everything up to 3")
	b.why("c", 4, PlaceStopped, "exit 0", "left it unread")
}

func reply(f *fifo, word string) {
	f.b.Helper()
	if _, err := f.f.WriteString(word + "\n"); err != nil {
		f.b.Fatal(err)
	}
}

func TestWhyStalled(t *testing.T) {
	b := newBench(t)
	b.subscribe(engine.Subscription{Consumer: "c", Handler: "exit 9"})
	b.push("s")
	b.dispatch(Options{})
	b.awaitIdle()
	b.why("c", 1, PlaceStalled, "has failed 5 times in a row, the last time with exit 9", "starts afresh")
}

func TestWhyFilterFails(t *testing.T) {
	b := newBench(t)
	where := "json_extract(content, '$.a') = 1"
	b.subscribe(engine.Subscription{Consumer: "c", Handler: "true", Filter: &where})
	b.push("s") // content is not JSON
	b.why("c", 1, PlaceBroken, "fails on this event")
	b.dispatch(Options{})
	b.awaitLog("[WARN] dispatch: consumer=c skipped (filter:", 1)
}
