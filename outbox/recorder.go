package outbox

import (
	"context"
	"encoding/json"
)

// Recorder keeps the runs of handlers, which only messages that trigger start
// (O-14). A relay without one runs them unrecorded.
type Recorder interface {
	// Begin records the start of a run. It returns the run's id, and a context that
	// ends when the run is to be cancelled. After an error nothing is run, and the
	// message is tried again later.
	Begin(ctx context.Context, r Run) (running context.Context, id string, err error)
	// End records the end of the run.
	End(ctx context.Context, id string, e RunEnd) error
}

// Run is a run of the agent's handler.
type Run struct {
	TriggerType string // "message"
	TriggerRef  string // the event_id
	TraceID     string
	ThreadID    string // of the application
	Agent       string // the target
	Attempt     int64
	Message     json.RawMessage
}

// RunEnd is how a run ended.
type RunEnd struct {
	Receipt   Receipt
	ExitCode  int64  // -1: by a signal
	Output    []byte // the end of its stdout
	Errors    []byte // the end of its stderr
	Cancelled bool
	TimedOut  bool
}
