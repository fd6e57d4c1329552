package outbox

import (
	"context"
	"encoding/json"
)

// Recorder keeps the runs of handlers, which only messages that trigger start
// (O-14). A relay without one runs them unrecorded.
type Recorder interface {
	// Begin records the start of a run. It returns the run's id, and a context that
	// ends when the run is to be cancelled. With an empty id the handler runs unrecorded. After an error nothing is run, and the
	// message is tried again later.
	Begin(ctx context.Context, r Run) (running context.Context, id string, err error)
	// End records the end of the run.
	End(ctx context.Context, id string, e RunEnd) error
	// Left returns the id of the run r that a relay which was killed had begun, and which
	// has been ended since; "" for none. Of r only the reference, the initiator and the
	// attempt are set.
	Left(ctx context.Context, r Run) string
}

// Run is a run of the agent's handler.
type Run struct {
	TriggerType string // "message"
	TriggerRef  string // the event_id
	Initiator   string // the actor, "" for none
	TraceID     string
	Traceparent string // as W3C Trace Context has it
	RequestID   string
	ThreadID    string // of the application
	Agent       string // the target
	Attempt     int64
	Message     json.RawMessage
}

// RunEnd is how a run ended.
type RunEnd struct {
	Receipt Receipt
	// ExternalRunID is the run_id that the handler has printed; nil for none.
	ExternalRunID *string
	ExitCode      int64  // -1: by a signal
	Output        []byte // the end of its stdout
	Errors        []byte // the end of its stderr
	Cancelled     bool
	TimedOut      bool
}
