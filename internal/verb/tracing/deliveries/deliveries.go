//go:build !lite

// Package deliveries has the flag --otlp of consume. In thread-lite there is none.
package deliveries

import (
	"strconv"
	"strings"
	"time"

	"thread/engine"
	"thread/internal/consume"
	"thread/internal/spans"
	"thread/internal/verb/tracing"
)

// Flag is embedded by consume.
type Flag struct{ tracing.Flag }

// Trace has the deliveries of a run exported. end is to be called after it.
func Trace(f *Flag, t *engine.Thread, consumer string, o *consume.Options) (end func(), err error) {
	address := t.Address()
	sink, err := f.Open(address)
	if sink == nil {
		return func() {}, err
	}
	o.Trace = func(d *engine.Delivery) (env []string, ended func(*engine.Result)) {
		push, begun := spans.Pushed(address, &d.Events[0]), time.Now()
		s := spans.Delivered(&push, address, consumer, spans.ID("delivery", address, consumer, strconv.FormatInt(d.Events[0].ID, 10), begun.String()))
		s.Start = begun
		if d.Attempt > 0 {
			s.Attributes["thread.delivery.attempt"] = d.Attempt
		}
		if len(d.Events) > 1 {
			s.Attributes["messaging.batch.message_count"] = int64(len(d.Events))
		}
		return []string{"TRACEPARENT=" + s.Traceparent()}, func(r *engine.Result) {
			s.End = time.Now()
			s.Failed = r.Verdict == engine.Failed || r.Verdict == engine.Rejected
			s.Error, _, _ = strings.Cut(r.Error, "\n")
			s.Attributes["thread.delivery.exit_code"] = r.ExitCode
			sink.Send(push, s)
		}
	}
	return func() {
		if err := sink.Close(); err != nil {
			o.Warn("%v", err)
		}
	}, nil
}
