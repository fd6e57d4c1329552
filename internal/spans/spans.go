// Package spans makes the spans of OpenTelemetry traces: their ids, their parents, and a
// way to the program that exports them. It links no exporter.
//
// Ids are hashes of what a span is about. So two processes that do not know each other
// give a span the same id, and one that exports it again after a kill adds no second span.
package spans

import (
	"crypto/sha256"
	"encoding/hex"
	"net/url"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"thread/event"
	"thread/internal/redact"
)

// Kind is the kind of a span, with the numbers of OTLP.
type Kind int32

// The kinds that are used.
const (
	Internal Kind = 1
	Client   Kind = 3
	Producer Kind = 4
	Consumer Kind = 5
)

// Span is a span that has ended.
type Span struct {
	Context
	Parent     string         `json:"parent,omitempty"` // 16 hex digits, "" for a root
	Name       string         `json:"name"`
	Kind       Kind           `json:"kind"`
	Start      time.Time      `json:"start"`
	End        time.Time      `json:"end"`
	Failed     bool           `json:"failed,omitempty"`
	Error      string         `json:"error,omitempty"`      // of a failed one
	Attributes map[string]any `json:"attributes,omitempty"` // of string, int64, float64 or []string
}

// Context is a place in a trace, as of W3C Trace Context.
type Context struct {
	Trace  string `json:"trace"`            // 32 hex digits
	ID     string `json:"id"`               // of a span, 16 hex digits
	Unkept bool   `json:"unkept,omitempty"` // the sampled flag is not set: it is not exported
}

// Parse reads a traceparent. It returns false for a text of another form.
func Parse(traceparent string) (Context, bool) {
	if !event.IsTraceparent(traceparent) {
		return Context{}, false
	}
	part := strings.Split(traceparent, "-")
	flags, _ := strconv.ParseUint(part[3], 16, 8)
	c := Context{Trace: part[1], ID: part[2], Unkept: flags&1 == 0}
	return c, strings.Trim(c.Trace, "0") != "" && strings.Trim(c.ID, "0") != "" && part[0] != "ff"
}

// Traceparent is the opposite of [Parse].
func (c Context) Traceparent() string {
	flags := "-01"
	if c.Unkept {
		flags = "-00"
	}
	return "00-" + c.Trace + "-" + c.ID + flags
}

// Child returns the context of a span in the same trace.
func (c Context) Child(id string) Context { return Context{c.Trace, id, c.Unkept} }

// TraceID returns the id of the trace that belongs to what the parts name.
func TraceID(parts ...string) string { return hash(16, append([]string{"trace"}, parts...)) }

// ID returns the id of the span about what the parts name.
func ID(parts ...string) string { return hash(8, append([]string{"span"}, parts...)) }

func hash(bytes int, parts []string) string {
	sum := sha256.Sum256([]byte(strings.Join(parts, "\x00")))
	return hex.EncodeToString(sum[:bytes])
}

// Pushed returns the span of the push of an event into a thread, a directory or an
// address. An event without a trace context begins a trace.
func Pushed(thread string, e *event.Event) Span {
	thread = redact.Text(thread)
	id := strconv.FormatInt(e.ID, 10)
	s := Span{Name: "push " + nameOf(thread), Kind: Producer, Attributes: messaging(thread, "send", "push")}
	traceparent, request := e.Trace()
	parent, ok := Parse(traceparent)
	if !ok {
		parent = Context{Trace: TraceID("event", thread, id)}
	}
	s.Context, s.Parent = parent.Child(ID("event", thread, id)), parent.ID
	ms, _ := event.ParseTime(e.CreatedAt)
	s.Start = time.UnixMilli(ms)
	s.End = s.Start
	s.Attributes["messaging.message.id"] = id
	s.Attributes["thread.event.source"] = e.Source
	s.Attributes["thread.event.type"] = e.Type
	if request != "" {
		s.Attributes["thread.request.id"] = request
	}
	return s
}

// nameOf returns the short name of a thread.
func nameOf(thread string) string {
	if u, err := url.Parse(thread); err == nil && u.Query().Has("thread") {
		return u.Query().Get("thread")
	}
	return filepath.Base(thread)
}

// Delivered returns the span of a delivery to a consumer: a child of the push. Its id
// is id, which [ID] has made.
func Delivered(push *Span, thread, consumer, id string) Span {
	s := Span{Context: push.Child(id), Parent: push.ID, Name: "process " + consumer, Kind: Consumer, Attributes: messaging(redact.Text(thread), "process", "deliver")}
	s.Attributes["messaging.consumer.group.name"] = consumer
	s.Attributes["messaging.message.id"] = push.Attributes["messaging.message.id"]
	return s
}

// Run returns the id of the span of a run that is recorded in a thread.
func Run(thread, run string) string { return ID("run", redact.Text(thread), run) }

// Step returns the id of the span of a step, a call of a tool or the command of a run.
func Step(thread, step string) string { return ID("step", redact.Text(thread), step) }

// Handler returns the context for the environment of a handler: the span of the command of
// its run, which the first unread event has caused.
func Handler(thread, run string, first *event.Event) Context {
	return Pushed(thread, first).Child(Step(thread, "handler_"+run))
}

func messaging(destination, kind, operation string) map[string]any {
	return map[string]any{"messaging.system": "thread", "messaging.destination.name": destination, "messaging.operation.type": kind, "messaging.operation.name": operation}
}
