package rabbitmq

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"thread/bridge/internal/brokertest"
	"thread/bridge/trigger"
)

func seek(t *testing.T, b *rabbit, state trigger.State, to trigger.Place) ([]trigger.Write, error) {
	t.Helper()
	s := b.settings()
	s.Connection["connect_timeout"] = "2s" // what an empty stream is waited for
	src, err := newSource(s)
	if err != nil {
		t.Fatal(err)
	}
	defer src.Close()
	return src.Seek(t.Context(), state, to)
}

// A stream is read again from its start, from a time on, or not at all: what is new
// is stored in each case, also when the trigger starts long after the seek.
func TestSeek(t *testing.T) {
	t.Parallel()
	b := newRabbit(t, "stream")
	r := brokertest.New(t, b.broker(b.settings()), nil)
	n := 0
	send := func(count int) {
		for range count {
			b.send(t, fmt.Sprintf(`{"n":%d}`, n))
			n++
		}
	}
	before := time.Now()
	send(5)
	r.Events(5)
	for sent := time.Now(); time.Now().Truncate(time.Second).Equal(sent.Truncate(time.Second)); {
		time.Sleep(10 * time.Millisecond) // the server knows times by the second
	}
	between := time.Now()
	send(3)
	want := 8
	r.Events(want)
	for _, c := range []struct {
		to    trigger.Place
		again int // messages of those before
	}{{trigger.Place{Name: "start"}, 8}, {trigger.Place{Name: "end"}, 0}, {trigger.Place{Name: "time", At: between}, 0},
		{trigger.Place{Name: "time", At: before.Add(-time.Hour)}, 0}, {trigger.Place{Name: "time", At: time.Unix(-1, 0)}, 0}} {
		r.Stop()
		switch at := c.to.At; {
		case c.to.Name != "time":
		case at.Equal(between):
			c.again = n - 5
		default:
			c.again = n
		}
		ws, err := seek(t, b, trigger.StateOf(r.Thread, &r.Config), c.to)
		if err == nil {
			err = trigger.SetPositions(t.Context(), r.Thread, &r.Config, ws)
		}
		if err != nil {
			t.Fatalf("%v: %v", c.to, err)
		}
		send(1) // no process reads
		want += c.again + 1
		r.Start()
		es := r.Events(want)
		if len(es) != want || brokertest.Contains(es[want-1:], fmt.Sprintf(`"n":%d}`, n-1)) != 1 {
			t.Fatalf("%v: %d events, want %d", c.to, len(es), want)
		}
		// From now on the position counts.
		r.Stop()
		send(1)
		want++
		r.Start()
		if es := r.Events(want); len(es) != want {
			t.Fatalf("%v: %d events, want %d", c.to, len(es), want)
		}
	}
}

// What a seek replaces goes at the next start, and so does what one has left that was
// killed before its records were stored.
func TestSeekLeavesNothing(t *testing.T) {
	t.Parallel()
	b := newRabbit(t, "stream")
	var names []string // of all exchanges there ever were
	r := brokertest.New(t, b.broker(b.settings()), nil)
	state := trigger.StateOf(r.Thread, &r.Config)
	bound := func() (n int) {
		t.Helper()
		for _, name := range names {
			is, err := (&source{s: b.settings()}).exists(b.conn, name)
			if err != nil {
				t.Fatal(err)
			}
			if is {
				n++
			}
		}
		return n
	}
	generation := func() string { return string(state.Get(generationKey)) }
	alone := func(when string) {
		t.Helper()
		if is, err := (&source{s: b.settings()}).exists(b.conn, generation()); !is || err != nil || bound() != 1 {
			t.Fatalf("%s: of %d exchanges %d are there; that of the generation: %v, %v", when, len(names), bound(), is, err)
		}
		records, err := state.Load("")
		for key := range records {
			if key != generationKey && nameOf(key) != generation() {
				t.Errorf("%s: record %s is left: %v", when, key, err)
			}
		}
	}
	moved := func(to trigger.Place, stored bool) {
		t.Helper()
		ws, err := seek(t, b, state, to)
		if err == nil && stored {
			err = trigger.SetPositions(t.Context(), r.Thread, &r.Config, ws)
		}
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, string(ws[0].Value))
	}
	names = append(names, generation())
	want := 0
	for round, stored := range [][]bool{{true}, {false}, {true, true, false}, {false, true}} {
		r.Stop()
		for _, s := range stored { // of the first round: nothing was ever read
			moved(trigger.Place{Name: "start"}, s)
		}
		before := bound()
		if before != 1+len(stored) {
			t.Fatalf("round %d: %d exchanges after %d seeks", round, before, len(stored))
		}
		if err := dryConnect(t, b, trigger.ReadOnly(state)); err != nil || bound() != before {
			t.Fatalf("round %d: a dry run leaves %d exchanges of %d: %v", round, bound(), before, err)
		}
		b.send(t, fmt.Sprintf(`{"n":%d}`, round))
		r.Start()
		if want++; slices.Contains(stored, true) {
			want += round
		}
		if es := r.Events(want); len(es) != want {
			t.Fatalf("round %d: %d events, want %d", round, len(es), want)
		}
		alone(fmt.Sprintf("round %d", round))
	}
	// One that was made again: its server has deleted the exchange.
	r.Stop()
	b.delete(t, b.queue)
	b.create(t)
	b.send(t, `{"again":1}`)
	r.Start()
	want++
	if es := r.Events(want); len(es) != want {
		t.Fatalf("made again: %d events, want %d", len(es), want)
	}
	names = append(names, generation())
	r.Stop()
	r.Start()
	alone("made again")
}

func dryConnect(t *testing.T, b *rabbit, state trigger.State) error {
	t.Helper()
	src, err := newSource(b.settings())
	if err != nil {
		return err
	}
	defer src.Close()
	return src.Connect(t.Context(), state)
}

// The end is behind the last of the messages that came together.
func TestSeekEnd(t *testing.T) {
	b := newRabbit(t, "stream")
	together := make([]outgoing, 500)
	for i := range together {
		together[i] = outgoing{key: b.queue, Publishing: toPublishing([]byte("{}"), nil)}
	}
	for n := 1; n <= 3; n++ {
		if err := b.out.publish(t.Context(), together...); err != nil {
			t.Fatal(err)
		}
		ws, err := seek(t, b, trigger.NoState, trigger.Place{Name: "end"})
		if err != nil {
			t.Fatal(err)
		}
		if at := ws[len(ws)-1]; binary.BigEndian.Uint64(at.Value) != uint64(n*len(together)) {
			t.Errorf("%d messages, the end is %d", n*len(together), at.Value)
		}
	}
}

func TestSeekRefused(t *testing.T) {
	t.Parallel()
	empty, queue := newRabbit(t, "stream"), newRabbit(t, "quorum")
	for _, c := range []struct {
		b    *rabbit
		to   trigger.Place
		says string
	}{{empty, trigger.Place{Name: "end"}, "stream " + empty.queue + " shows no message"},
		{empty, trigger.Place{Name: "time", At: time.Now().Add(time.Hour)}, "in the future"},
		{queue, trigger.Place{Name: "start"}, "queue " + queue.queue + " is not a stream"}} {
		if _, err := seek(t, c.b, trigger.NoState, c.to); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%v: %v", c.to, err)
		}
	}
}
