package core

import (
	"strconv"
	"time"

	"thread/engine"
	"thread/event"
)

// appendInfoJSON appends the summary as JSON indented by two spaces. The keys up
// to subscriptions, and in a subscription up to updated_at, are those of
// T-53 in its order; the others follow.
func appendInfoJSON(b []byte, info engine.Info, consumers []consumer) []byte {
	top := indented{buf: append(b, '{'), margin: "\n  "}
	top.number("event_count", info.EventCount)
	top.key("subscriptions")
	top.buf = append(top.buf, '[')
	for i := range consumers {
		if i > 0 {
			top.buf = append(top.buf, ',')
		}
		o := indented{buf: append(top.buf, "\n    {"...), margin: "\n      "}
		o.consumer(&consumers[i])
		top.buf = append(o.buf, "\n    }"...)
	}
	if len(consumers) > 0 {
		top.buf = append(top.buf, "\n  "...)
	}
	top.buf = append(top.buf, ']')
	top.number("stored_count", info.Stored)
	top.number("last_event_id", info.Newest)
	top.number("scheduled_count", info.Scheduled)
	var next *time.Time
	if info.Scheduled > 0 {
		next = &info.NextScheduled
	}
	top.time("next_scheduled_at", next)
	top.text("thread", &info.Dir)
	return append(top.buf, "\n}\n"...)
}

func (o *indented) consumer(c *consumer) {
	o.text("consumer_id", &c.Consumer)
	o.text("handler_cmd", &c.Handler)
	o.text("filter", c.Filter)
	o.number("last_acked_id", c.LastAcked)
	o.text("updated_at", c.UpdatedAt)
	o.number("timeout_ms", c.Timeout.Milliseconds())
	o.boolean("ack_on_success", c.AckOnSuccess)
	o.optional("lane", c.Lane)
	if c.pendingErr == nil {
		o.number("pending_count", c.pending)
		o.optional("oldest_pending_at", c.oldest)
	} else {
		o.text("pending_count", nil)
		o.text("oldest_pending_at", nil)
		reason := c.pendingErr.Error()
		o.text("pending_error", &reason)
	}
	o.boolean("paused", c.Paused)
	o.number("dead_count", c.Dead)
	o.number("retry_count", c.Retries)
	if c.Failing != 0 {
		o.number("failing_event_id", c.Failing)
		o.number("failing_attempts", c.Attempts)
		o.optional("failing_error", c.LastError)
		o.time("failing_next_at", &c.NextAt)
	}
	h := &c.handler
	o.boolean("running", h.Running)
	o.time("running_since", h.RunningSince)
	o.optional("last_exit", h.LastExit)
	o.time("last_exit_at", h.LastExitAt)
	o.number("failures", int64(h.Failures))
	o.time("retry_at", h.RetryAt)
	o.boolean("stalled", h.Stalled)
	o.boolean("stopped", h.Stopped)
	o.boolean("interrupted", h.Interrupted)
}

// indented is a JSON object under construction, one member per line.
type indented struct {
	buf    []byte
	margin string // newline and indentation of a member
	more   bool   // a member is there already
}

func (o *indented) key(name string) {
	if o.more {
		o.buf = append(o.buf, ',')
	}
	o.more = true
	o.buf = append(event.AppendString(append(o.buf, o.margin...), name), ": "...)
}

func (o *indented) number(name string, n int64) {
	o.key(name)
	o.buf = strconv.AppendInt(o.buf, n, 10)
}

func (o *indented) boolean(name string, v bool) {
	o.key(name)
	o.buf = strconv.AppendBool(o.buf, v)
}

// text writes null for nil.
func (o *indented) text(name string, s *string) {
	o.key(name)
	o.buf = appendText(o.buf, s)
}

// optional writes null for "".
func (o *indented) optional(name, s string) {
	if s == "" {
		o.text(name, nil)
		return
	}
	o.text(name, &s)
}

// time writes null for nil.
func (o *indented) time(name string, t *time.Time) {
	if t == nil {
		o.text(name, nil)
		return
	}
	o.optional(name, event.FormatTime(*t))
}
