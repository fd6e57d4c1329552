//go:build linux

package dispatch

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"syscall"
	"testing"
	"time"

	"thread/engine"
)

// TestTurns: a delivery begins when the server gives it its turn, the one that is named and
// no other one, ends when the server says so, and is given back.
func TestTurns(t *testing.T) {
	b := newBench(t)
	id := b.inHandlerOf("c")
	held := b.lockedInHandler("c")
	if held.Turns() != nil {
		t.Error("turns without a server")
	}
	s := b.fakeServer()
	requests := make(chan map[string]string, 1)
	conns := make(chan *fakeConn, 1)
	go func() {
		c, request := s.accept("{}")
		conns <- c
		requests <- request
	}()
	q := held.Turns()
	if q == nil {
		t.Fatal("the server is not asked")
	}
	c := <-conns
	if r := <-requests; len(r) != 3 || r["op"] != OpTurns || r["consumer"] != "c" || r["run_id"] != id {
		t.Errorf("the first request is %v", r)
	}
	ctx := t.Context()
	key, session := " K ", "session:K"
	first := wantTurn(ctx, q, 0, &key, 7)
	c.expect(TurnRequest{Ask: 1, Key: &session, Event: 7})
	next := wantTurn(ctx, q, 3, nil, 8)
	c.expect(TurnRequest{Ask: 2, Event: 8, Slot: 3})
	called, cancel := context.WithCancel(ctx)
	third := wantTurn(called, q, 4, nil, 9)
	c.expect(TurnRequest{Ask: 3, Event: 9, Slot: 4})
	c.say(`{"turn":99}`)
	c.say(`{"abort":99}`)
	c.say(`{"turn":2}`)
	two := b.await(next)
	if two.err != nil {
		t.Fatal(two.err)
	}
	select {
	case <-first:
		t.Error("the turn of another delivery is taken for its own")
	default:
	}
	cancel()
	if w := b.await(third); !errors.Is(w.err, context.Canceled) || w.turn != nil {
		t.Errorf("called off: %+v", w)
	}
	c.expect(TurnRequest{End: 3})
	c.say(`{"turn":3}`) // it was on its way
	c.say(`{"turn":1}`)
	one := b.await(first)
	if one.err != nil {
		t.Fatal(one.err)
	}
	c.say(`{"abort":2}`)
	c.say(`{"abort":2}`)
	select {
	case <-two.turn.Abort():
	case <-time.After(patience):
		t.Fatal("it is not aborted")
	}
	if isClosed(one.turn.Abort()) {
		t.Error("another delivery is aborted")
	}
	c.say(`{"abort":1}`)
	select {
	case <-one.turn.Abort():
	case <-time.After(patience):
		t.Fatal("the first one is not aborted")
	}
	long := strings.Repeat("f", maxFailureBytes+1)
	two.turn.Done(long)
	c.expect(TurnRequest{End: 2, Error: long[:maxFailureBytes]})
	one.turn.Done("")
	c.expect(TurnRequest{End: 1})
}

// TestTurnsEnd: a server that ends gives no turn: what waits for one, and what asks later,
// gets ErrEnding.
func TestTurnsEnd(t *testing.T) {
	b := newBench(t)
	b.inHandlerOf("c")
	q, c := b.fakeServer().joined(b.lockedInHandler("c"))
	had := wantTurn(t.Context(), q, 0, nil, 1)
	c.expect(TurnRequest{Ask: 1, Event: 1})
	c.say(`{"turn":1}`)
	w := b.await(had)
	if w.err != nil {
		t.Fatal(w.err)
	}
	waits := wantTurn(t.Context(), q, 1, nil, 2)
	c.expect(TurnRequest{Ask: 2, Event: 2, Slot: 1})
	c.say(`{"error":"the server ends"}`)
	if w := b.await(waits); !errors.Is(w.err, ErrEnding) {
		t.Errorf("one that waits: %+v", w)
	}
	c.expect(TurnRequest{End: 2})
	if w := b.await(wantTurn(t.Context(), q, 1, nil, 3)); !errors.Is(w.err, ErrEnding) {
		t.Errorf("one that asks later: %+v", w)
	}
	if isClosed(w.turn.Abort()) {
		t.Error("a delivery is aborted that has its turn")
	}
	w.turn.Done("")
	c.expect(TurnRequest{End: 1})
}

// TestTurnsOfKilledServer: while no server is there every delivery has its turn, and none
// waits for one that was killed. The next server is asked.
func TestTurnsOfKilledServer(t *testing.T) {
	b := newBench(t)
	b.inHandlerOf("c")
	s := b.fakeServer()
	q, c := s.joined(b.lockedInHandler("c"))
	waits := wantTurn(t.Context(), q, 0, nil, 1)
	c.expect(TurnRequest{Ask: 1, Event: 1})
	also := wantTurn(t.Context(), q, 1, nil, 2)
	c.expect(TurnRequest{Ask: 2, Event: 2, Slot: 1})
	s.l.Close()
	c.say("killed") // not JSON: the same as an end
	for _, w := range []waited{b.await(waits), b.await(also)} {
		if w.err != nil {
			t.Fatal(w.err)
		}
		w.turn.Done("failed") // no server can be told
	}
	if n, err := c.Read(make([]byte, 1)); n != 0 || !errors.Is(err, io.EOF) && !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("the connection is open: %d %v", n, err)
	}
	called, cancel := context.WithCancel(t.Context())
	cancel()
	if w := b.await(wantTurn(called, q, 0, nil, 3)); !errors.Is(w.err, context.Canceled) {
		t.Errorf("without a server, called off: %+v", w)
	}
	s = b.fakeServer()
	conns := make(chan *fakeConn, 1)
	go func() {
		c, _ := s.accept("{}")
		conns <- c
	}()
	var asked *fakeConn
	b.until("the next server is asked", func() bool {
		got := wantTurn(t.Context(), q, 2, nil, 4)
		select {
		case w := <-got: // it is not looked for at every delivery
			if w.err != nil {
				t.Fatal(w.err)
			}
			return false
		case asked = <-conns:
		}
		var r TurnRequest
		must(t, asked.d.Decode(&r))
		if r.Ask == 0 || r.Event != 4 || r.Slot != 2 {
			t.Errorf("asked %+v", r)
		}
		asked.say(`{"turn":` + jsonText(r.Ask) + `}`)
		if w := b.await(got); w.err != nil {
			t.Error(w.err)
		}
		return true
	})
}

func jsonText(v any) string {
	text, _ := json.Marshal(v)
	return string(text)
}

// TestNoTurns: a process asks for no turns outside a handler, nor where the server does not
// know the run, or is none.
func TestNoTurns(t *testing.T) {
	b := newBench(t)
	id := b.inHandlerOf("c")
	held := b.lockedInHandler("c")
	s := b.fakeServer()
	for _, answer := range []string{`{"error":"the server runs no such handler"}`, "no JSON"} {
		ended := make(chan error, 1)
		go func() {
			c, _ := s.accept(answer)
			_, err := c.Read(make([]byte, 1))
			ended <- err
		}()
		if held.Turns() != nil {
			t.Errorf("turns after %s", answer)
		}
		if err := <-ended; !errors.Is(err, io.EOF) && !strings.Contains(err.Error(), "reset") {
			t.Errorf("after %s the connection is open: %v", answer, err)
		}
	}
	for name, value := range map[string]string{envRunID: "other", envConsumer: "other", envDir: b.dir} {
		t.Run(name, func(t *testing.T) {
			t.Setenv(name, value)
			if held.Turns() != nil {
				t.Error("turns")
			}
		})
	}
	t.Setenv(envRunID, "")
	b.subscribe(engine.Subscription{Consumer: "d", Pull: true})
	other, err := LockConsumer(t.Context(), b.t, "d")
	must(t, err)
	t.Setenv(envRunID, id)
	if other.Turns() != nil || other.Supervised() {
		t.Error("a consumer that was locked by hand has turns")
	}
	must(t, other.Release(t.Context()))
}
