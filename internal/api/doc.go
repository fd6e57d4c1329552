// Package api is what programs use over HTTP: they push events, read them, and take
// deliveries of consumers without a handler, as thread push, peek, next and ack do. What it
// answers is described in openapi.json, which a test holds against the server. It knows
// the process that it is in as a Host only.
//
// Who may ask what is decided before, see Needs; what a request takes is bounded here:
// the size of its body and of one line, the time for each part of it to come, how long
// it may wait, and how much an answer carries.
package api

import (
	"net/http"

	"thread/engine"
)

// Host is the process that serves threads.
type Host interface {
	// Thread returns the one that is called so: the last element of its path, or its path.
	Thread(name string) (Thread, error)
	// Stream answers with the events of a thread as they come.
	Stream(rw http.ResponseWriter, q *http.Request, t Thread)
	// Wait takes a place for a request that waits, which release gives back. The error says
	// why there is none.
	Wait(q *http.Request) (release func(), err error)
	// Behind is told that an event is stored, but not in events.jsonl.
	Behind(t Thread, err error)
	// Audit is told of a request that changed something, or was refused to: the path as the
	// description has it, and the error.
	Audit(q *http.Request, path string, err error)
	Done() <-chan struct{} // closed when the process ends
}

// Thread is one of its threads.
type Thread interface {
	Dir() string
	Engine() *engine.Thread
	Pushed()                  // starts handlers, as after a push
	Changed() <-chan struct{} // closed when it may have changed
	Gone() <-chan struct{}    // closed when it is not served any more
}

// Rights are what a client may do.
type Rights int

// The rights. Read, Write and Admin include those before them; Push is for pushing alone.
const (
	None Rights = iota
	Read
	Write // push, and take and settle deliveries
	Admin // pause and resume, and the forms of the pages
	Push
)

func (r Rights) String() string { return [...]string{"none", "read", "write", "admin", "push"}[r] }

// Include reports whether a client with the rights r may do what needs the right need.
func (r Rights) Include(need Rights) bool {
	switch {
	case need == Push:
		return r == Push || r >= Write
	case r == Push:
		return need == None
	}
	return r >= need
}
