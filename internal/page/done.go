package page

import (
	"context"
	"crypto/rand"
	"sync"
	"time"
)

// undoTime is for how long a change can be undone.
const undoTime = time.Minute

// Link is a place, and where it is.
type Link struct{ Text, Address string }

// Toast says what was done.
type Toast struct {
	Text    string
	Link    Link   // where it is seen, without an address for nowhere
	Undo    string // the key of what undoes it, "" for nothing
	Thread  string
	session string
	at      time.Time
	undo    func(ctx context.Context) error
}

// done is what was done a moment ago, by session.
type done struct {
	mu   sync.Mutex
	said map[string]*Toast // not shown yet
	undo map[string]*Toast // by key
}

// say has a session shown what was done, on its next page.
func (d *done) say(session string, t Toast, now time.Time) {
	if session == "" {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.said == nil {
		d.said, d.undo = map[string]*Toast{}, map[string]*Toast{}
	}
	for key, old := range d.undo {
		if now.Sub(old.at) > undoTime {
			delete(d.undo, key)
		}
	}
	if t.at, t.session = now, session; t.undo != nil {
		t.Undo = rand.Text()
		d.undo[t.Undo] = &t
	}
	d.said[session] = &t
}

// take returns what was done, once; nil for nothing.
func (d *done) take(session string, now time.Time) *Toast {
	d.mu.Lock()
	defer d.mu.Unlock()
	t := d.said[session]
	delete(d.said, session)
	if t == nil || now.Sub(t.at) > undoTime {
		return nil
	}
	return t
}

// undoing returns what undoes a change of the session, nil for nothing.
func (d *done) undoing(session, key string, now time.Time) *Toast {
	d.mu.Lock()
	defer d.mu.Unlock()
	t := d.undo[key]
	if t == nil || t.session != session || now.Sub(t.at) > undoTime {
		return nil
	}
	delete(d.undo, key)
	return t
}
