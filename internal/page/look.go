package page

import (
	"time"

	"thread/engine"
	"thread/internal/jsonform"
)

// Look counts in threads as the pages do, and remembers it for as long as their
// databases are not written. It is for one goroutine.
type Look struct{ s *summaries }

// NewLook returns one that knows nothing yet.
func NewLook() *Look { return &Look{newSummaries(nil)} }

// Seen is what a look at a thread has found.
type Seen struct {
	Dir       string
	Info      engine.Info
	Consumers []jsonform.ConsumerState
	Pushed    string // created_at of the newest event, "" when there is none
	Err       error  // why the rest is not known
}

// At looks at the thread in dir.
func (l *Look) At(dir string, t *engine.Thread) Seen {
	l.s.lookAt(dir, t)
	k := l.s.known[dir]
	return Seen{Dir: dir, Info: k.info, Consumers: withHandlers(t, k.of), Pushed: k.newest, Err: k.err}
}

// Row is its line in the map, but for the name.
func (s *Seen) Row() Row {
	r := Row{Dir: s.Dir}
	r.fill(&summary{info: s.Info, of: s.Consumers, err: s.Err, at: time.Now()}, nil)
	for i := range s.Consumers {
		if s.Consumers[i].Handler.Running {
			r.Running++
		}
	}
	return r
}
