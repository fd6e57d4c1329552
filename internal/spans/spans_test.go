package spans

import (
	"strings"
	"testing"

	"thread/event"
)

const given = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

func TestParse(t *testing.T) {
	for text, ok := range map[string]bool{given: true, strings.TrimSuffix(given, "1") + "0": true, "": false, "ff" + given[2:]: false,
		"00-" + strings.Repeat("0", 32) + "-b7ad6b7169203331-01": false, "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01": false} {
		c, got := Parse(text)
		if got != ok || ok && c.Traceparent() != text {
			t.Errorf("Parse(%q) = %+v, %v", text, c, got)
		}
	}
}

// TestPlace: an event is a child of its context or begins a trace; a handler is in it.
func TestPlace(t *testing.T) {
	e := event.Event{ID: 7, CreatedAt: "2026-03-18T10:30:00.123Z", Content: `{"traceparent":"` + given + `"}`}
	push := Pushed("/srv/inbox", &e)
	if push.Traceparent()[:36] != given[:36] || push.Parent != "b7ad6b7169203331" || push.Start.UnixMilli() != 1773829800123 {
		t.Errorf("the push is %+v", push)
	}
	if again := Pushed("/srv/inbox", &e); again.ID != push.ID {
		t.Error("the same push has two ids")
	}
	if other := Pushed("/srv/other", &e); other.ID == push.ID {
		t.Error("two pushes have one id")
	}
	d := Delivered(&push, "/srv/inbox", "c", "00f067aa0ba902b7")
	if d.Trace != push.Trace || d.Parent != push.ID {
		t.Errorf("the delivery is %+v", d)
	}
	if h := Handler("/srv/inbox", "r", &e); h.Trace != push.Trace || h.ID != Step("/srv/inbox", "handler_r") {
		t.Errorf("the handler is %+v", h)
	}
	e.Content = "x"
	if root := Pushed("/srv/inbox", &e); root.Parent != "" || root.Trace != TraceID("event", "/srv/inbox", "7") {
		t.Errorf("the push without a context is %+v", root)
	}
}

// TestSink: a sink whose program takes nothing drops spans, and counts them. It never waits.
func TestSink(t *testing.T) {
	s := &Sink{spans: make(chan Span, 2), ended: make(chan struct{})}
	s.Send(Span{}, Span{}, Span{}, Span{Context: Context{Unkept: true}})
	close(s.ended)
	if err := s.Close(); err == nil || !strings.HasPrefix(err.Error(), "1 span") {
		t.Errorf("Close returned %v after one span too many", err)
	}
	var none *Sink
	none.Send(Span{})
	if err := none.Close(); err != nil {
		t.Error(err)
	}
}
