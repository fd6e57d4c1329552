package trigger

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"thread/engine"
	"thread/event"
)

// memorySink keeps what is published. It fails while broken.
type memorySink struct {
	ms        []Outgoing
	broken    int // that many calls of Publish fail
	connected int // that many calls of Connect
}

func (s *memorySink) Connect(context.Context) (int64, error) { s.connected++; return 0, nil }
func (s *memorySink) Health(context.Context) Health          { return Health{OK: true} }
func (s *memorySink) Capabilities() Caps                     { return Caps{} }
func (s *memorySink) Close() error                           { return nil }
func (s *memorySink) Publish(_ context.Context, ms []Outgoing) error {
	if s.broken > 0 {
		s.broken--
		return errors.New("no network")
	}
	s.ms = append(s.ms, ms...)
	return nil
}

func pushed(t *testing.T, th *engine.Thread, from, to int) {
	t.Helper()
	for n := from; n <= to; n++ {
		if _, err := th.Push(context.Background(), event.Draft{Source: "s", Type: "a", Content: fmt.Sprintf(`{"n":%d}`, n)}); err != nil {
			t.Fatal(err)
		}
	}
}

func publishAll(t *testing.T, th *engine.Thread, s Sink, c PublishConfig) {
	t.Helper()
	p, err := NewPublisher(context.Background(), th, s, c, nil)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	p.OnIdle = stop
	if err := p.Run(ctx); err != nil {
		t.Fatal(err)
	}
}

// Case 89: one connection for all batches, and another one only after it failed.
func TestConnectsOnce(t *testing.T) {
	for _, broken := range []int{0, 1, 2} {
		th, err := engine.Init(t.TempDir() + "/t")
		if err != nil {
			t.Fatal(err)
		}
		pushed(t, th, 1, 25)
		c := NewPublishConfig()
		c.Name, c.Queue, c.Adapter, c.MaxBatch = "out", "q", "mock", 2
		s := &memorySink{broken: broken}
		publishAll(t, th, s, c)
		if s.connected != 1+broken || len(s.ms) != 25 {
			t.Errorf("connected %d times for %d failures, %d messages", s.connected, broken, len(s.ms))
		}
	}
}

// TestPruneAfter: what was confirmed is dropped, what was not stays, and what
// another consumer has not acked stays, too.
func TestPruneAfter(t *testing.T) {
	ctx := context.Background()
	th, err := engine.Init(t.TempDir() + "/t")
	if err != nil {
		t.Fatal(err)
	}
	c := NewPublishConfig()
	c.Name, c.Queue, c.Adapter, c.MaxBatch, c.PruneAfter = "out", "q", "mock", 4, 10
	s := &memorySink{broken: 2}
	pushed(t, th, 1, 25)
	publishAll(t, th, s, c)
	left := func() (ids []int64) {
		for e, err := range th.Events(ctx, engine.Query{}) {
			if err != nil {
				t.Fatal(err)
			}
			ids = append(ids, e.ID)
		}
		return ids
	}
	if got := left(); len(s.ms) != 25 || fmt.Sprint(got) != "[25]" { // 12, 24 and one more
		t.Errorf("%d published, left %v", len(s.ms), got)
	}
	if err := th.Subscribe(ctx, engine.Subscription{Consumer: "other", Handler: "true", Paused: true}); err != nil {
		t.Fatal(err)
	}
	pushed(t, th, 26, 60)
	publishAll(t, th, s, c)
	if got := left(); len(s.ms) != 60 || len(got) != 36 {
		t.Errorf("%d published, left %v", len(s.ms), got)
	}
	for i, m := range s.ms {
		if m.Event != int64(i+1) {
			t.Fatalf("message %d is event %d", i, m.Event)
		}
	}
}

// TestPreviewPublish: it shows what is sent afterwards, and changes nothing.
func TestPreviewPublish(t *testing.T) {
	ctx := context.Background()
	th, err := engine.Init(t.TempDir() + "/t")
	if err != nil {
		t.Fatal(err)
	}
	c := NewPublishConfig()
	c.Name, c.Queue, c.Adapter, c.Key, c.Headers = "out", "q", "mock", "string(message.n)", map[string]string{"x-n": "message.n + 1"}
	pushed(t, th, 1, 3)
	if _, err := th.Push(ctx, event.Draft{Source: "s", Type: "a", Content: "not JSON"}); err != nil {
		t.Fatal(err)
	}
	preview := func(limit int) (ms []Outgoing, bad []int64) {
		err := PreviewPublish(ctx, th, c, limit, func(m Outgoing) error { ms = append(ms, m); return nil }, func(id int64, _ error) { bad = append(bad, id) })
		if err != nil {
			t.Fatal(err)
		}
		return ms, bad
	}
	before, bad := preview(0)
	if len(before) != 3 || fmt.Sprint(bad) != "[4]" || !strings.HasPrefix(before[0].ID, strings.Repeat("0", 32)) {
		t.Fatalf("%v %v", before, bad)
	}
	if _, _, err := th.Backlog(ctx, "out"); !errors.Is(err, engine.ErrNoSubscription) {
		t.Errorf("it is subscribed: %v", err)
	}
	if ms, _ := preview(2); len(ms) != 2 {
		t.Errorf("%v", ms)
	}
	c.Filter = "id < 4"
	s := &memorySink{}
	publishAll(t, th, s, c)
	for i, m := range s.ms {
		m.ID, before[i].ID, m.Headers[HeaderMessageID], before[i].Headers[HeaderMessageID] = "", "", "", ""
		if fmt.Sprint(m) != fmt.Sprint(before[i]) {
			t.Errorf("%v, and shown was %v", m, before[i])
		}
	}
	if ms, _ := preview(0); len(ms) != 0 || len(s.ms) != 3 {
		t.Errorf("%v %v", ms, s.ms)
	}
}
