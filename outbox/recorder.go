package outbox

import "context"

// Recorder keeps the runs of handlers, which only messages that trigger start
// (O-14). A relay without one runs them unrecorded.
type Recorder interface {
	// Begin records the start of a run and returns its id.
	Begin(ctx context.Context, r Run) (id string, err error)
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
}

// RunEnd is how a run ended.
type RunEnd struct {
	Receipt  Receipt
	ExitCode int64  // -1: by a signal
	Output   []byte // the end of its stdout
	Errors   []byte // the end of its stderr
}
