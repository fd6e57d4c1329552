// Package tracing has the flag --otlp of the verbs that deliver and run.
package tracing

import (
	"errors"

	"thread/internal/cli"
	"thread/internal/spans"
)

// Flag is embedded by the verbs that have it.
type Flag struct {
	OTLP cli.Text `name:"otlp" placeholder:"URL" help:"Export traces to this OTLP/HTTP endpoint, as http://127.0.0.1:4318."`
}

// Open starts the exporter. It returns nil without the flag, which takes no spans. The runs
// that are recorded in the thread are exported also, unless it is "".
func (f *Flag) Open(thread string) (*spans.Sink, error) {
	if !f.OTLP.Set {
		return nil, nil
	}
	sink, err := spans.Open(f.OTLP.Value, thread)
	var refused *spans.RefusedError
	if errors.As(err, &refused) {
		return nil, &cli.Failure{Code: refused.Code, What: refused.What, Fix: refused.Fix}
	}
	return sink, err
}
