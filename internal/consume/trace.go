//go:build !lite

package consume

import "thread/engine"

// tracing is a part of Options.
type tracing struct {
	// Trace is called before each delivery. It returns variables for the environment of the
	// command, without Worker, and what is called with the result. May be nil.
	Trace func(d *engine.Delivery) (env []string, ended func(*engine.Result))
}

// traced is a delivery that may have a span.
type traced struct {
	env   []string
	ended func(*engine.Result) // nil: it has none
}

func (t *tracing) begin(d *engine.Delivery) (begun traced) {
	if t.Trace != nil {
		begun.env, begun.ended = t.Trace(d)
	}
	return begun
}

func (t *traced) environment(env []string) []string { return append(env, t.env...) }

func (t *traced) end(r *engine.Result) {
	if t.ended != nil {
		t.ended(r)
	}
}
