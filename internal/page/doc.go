// Package page is what people look at in a browser: the pages of thread serve --ui.
// Each works without JavaScript, and has a twin of the same name with .json, in the
// shapes of docs/JSON.md. It knows the process that it is in as a Host only.
//
// No page waits for more than a moment. What is counted for the map is counted in the
// background and remembered for as long as a database is not written (summary.go), and
// what is searched is searched in pieces until a time is over (events.go, dead.go).
package page

import (
	"time"

	"thread/engine"
)

// Host is the process that serves threads.
type Host interface {
	Threads() []Thread // by directory
	Lanes() []Lane
	Changed() <-chan struct{} // closed when something may have changed
	Done() <-chan struct{}    // closed when the process ends
}

// Thread is one of its threads.
type Thread interface {
	Dir() string
	Engine() *engine.Thread
	Runs() []Run
	Wake() // starts handlers, as after a push
}

// Run is a consumer that is on its way, or a delivery of one, as thread runs shows it.
type Run struct {
	Consumer string    `json:"consumer_id"`
	Event    int64     `json:"event_id,omitempty"`
	Key      *string   `json:"key,omitempty"`
	State    string    `json:"state"` // "queued", "running", or "waiting" for a retry
	Lane     string    `json:"lane"`
	Since    time.Time `json:"since"`
	RunID    string    `json:"run_id"`
	PID      int       `json:"pid"`
	Activity string    `json:"activity"`
	RetryAt  time.Time `json:"retry_at,omitzero"`
}

// Lane is a lane of the process, as thread lanes shows it.
type Lane struct {
	Name     string `json:"name"`
	Limit    int    `json:"limit"`
	Active   int    `json:"active"`
	Queued   int    `json:"queued"`
	OldestMS int64  `json:"oldest_ms"`
}
