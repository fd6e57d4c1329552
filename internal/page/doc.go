// Package page is what people look at in a browser: the pages of thread serve --ui.
// Each works without JavaScript, and has a twin of the same name with .json, in the
// shapes of docs/reference/json.md. It knows the process that it is in as a Host only.
//
// No page waits for more than a moment. Counts are made in the background and remembered
// for as long as a database is not written (summary.go); a search is made in pieces until
// its time has passed (events.go, dead.go). An open page asks for what has changed since
// its version, and gets the elements that differ (patch.go).
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
	Dir() string // or its URL
	Engine() *engine.Thread
	Version() int64 // of a thread on a server: another number when it may have changed; 0: not known
	Runs() []Run
	Wake()                      // starts handlers, as after a push
	Abort(consumer string) bool // ends what runs of a consumer; false: nothing does
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
