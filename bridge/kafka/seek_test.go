package kafka

import (
	"errors"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"thread/bridge/trigger"
)

// A topic is read again from its start, from a time on, or not at all, in each of its
// partitions; what is new is stored in each case.
func TestSeek(t *testing.T) {
	c := broker(t)
	cl := client(t, c, kgo.RecordPartitioner(kgo.ManualPartitioner()))
	s := settings(c)
	at := time.UnixMilli(1_700_000_000_000)
	send := func(ms ...int64) {
		for _, ms := range ms {
			for partition := range int32(2) {
				produce(t, cl, &kgo.Record{Topic: "orders", Partition: partition, Timestamp: at.Add(time.Duration(ms) * time.Millisecond), Value: []byte("{}")})
			}
		}
	}
	r := start(t, s, nil)
	send(0, 1000, 2000)
	want := 6
	r.Events(want)
	ahead := int64(3000)
	for _, c := range []struct {
		to    trigger.Place
		again int // messages of those before
	}{{trigger.Place{Name: "start"}, 6}, {trigger.Place{Name: "end"}, 0}, {trigger.Place{Name: "time", At: at.Add(time.Millisecond)}, 8},
		{trigger.Place{Name: "time", At: at.Add(time.Hour)}, 0}, {trigger.Place{Name: "time", At: at}, 14}} {
		if err := r.Tr.Stop(); err != nil {
			t.Fatal(err)
		}
		src, err := newSource(s)
		if err != nil {
			t.Fatal(err)
		}
		ws, err := src.Seek(t.Context(), trigger.NoState, c.to)
		if err == nil {
			err = trigger.SetPositions(t.Context(), r.Thread, &r.Config, ws)
		}
		if err != nil || len(ws) != 2 {
			t.Fatal(ws, err)
		}
		send(ahead)
		ahead += 1000
		want += c.again + 2
		r.again(s, nil)
		if es := r.Events(want); len(es) != want {
			t.Fatalf("%v: %d events, want %d", c.to, len(es), want)
		}
	}
	s.Queue = "nobody"
	src, _ := newSource(s)
	if _, err := src.Seek(t.Context(), trigger.NoState, trigger.Place{Name: "end"}); !errors.Is(err, kerr.UnknownTopicOrPartition) {
		t.Error(err)
	}
}
