// Package steer passes requests to the hosts that serve a thread on a server, and their answers
// back. Both are notes on the store's board. A request that a host takes is carried out there
// once at most; the asking process repeats it for as long as it waits.
package steer

import (
	"context"
	"crypto/rand"
	"errors"
	"strings"
	"sync"
	"time"

	"thread/engine"
	"thread/internal/store"
)

const (
	// beatEvery is the time between notes of a host or of a request.
	beatEvery = 5 * time.Second
	// fresh is the age of a host that is gone, or of a request that is given up.
	fresh = store.HostFresh
	// stale is the age at which a note is removed.
	stale = time.Minute
	// noteTime bounds a look at the board, and the writing of a note.
	noteTime = 10 * time.Second
)

// The beginnings of names of notes.
const (
	requestNote = "q/" // and the id of the request
	answerNote  = "a/" // and both
)

// ErrNobody reports that no host serves the thread, ErrSilent that none has answered.
var (
	ErrNobody = errors.New("no process serves the thread")
	ErrSilent = errors.New("thread serve does not answer")
)

// Ask passes a request to all hosts that serve the thread. take gets each answer, until it
// reports that this is enough, all hosts have answered, or the time for waiting has passed.
func Ask(ctx context.Context, t *engine.Thread, request []byte, wait time.Duration, take func(answer []byte) (enough bool)) error {
	b := t.Store().(store.Board)
	hosts, err := store.Hosts(ctx, b)
	if err != nil {
		return err
	}
	if len(hosts) == 0 {
		return ErrNobody
	}
	w, err := t.Watch()
	if err != nil {
		return err
	}
	defer w.Close()
	q := &question{b: b, id: rand.Text(), request: string(request), seen: map[string]bool{}}
	defer q.remove(ctx)
	deadline := time.Now().Add(wait)
	for {
		enough, err := q.look(ctx, take)
		switch {
		case err != nil:
			return err
		case enough || len(q.seen) >= len(hosts):
			return nil
		case time.Now().After(deadline) && len(q.seen) == 0:
			return ErrSilent
		case time.Now().After(deadline):
			return nil
		}
		next := time.Now().Add(beatEvery)
		if deadline.Before(next) {
			next = deadline
		}
		if err := w.Wait(ctx, next); err != nil {
			return err
		}
	}
}

// question is a request that waits for its answers.
type question struct {
	b           store.Board
	id, request string
	posted      time.Time // zero: not yet
	seen        map[string]bool
}

// look repeats the request, and reads its answers.
func (q *question) look(ctx context.Context, take func(answer []byte) bool) (enough bool, err error) {
	if time.Since(q.posted) >= beatEvery {
		if err := q.b.PutNote(ctx, requestNote+q.id, q.request, q.posted.IsZero()); err != nil {
			return false, err
		}
		q.posted = time.Now()
	}
	answers, err := q.b.Notes(ctx, answerNote+q.id+"/")
	if err != nil {
		return false, err
	}
	for name, note := range answers {
		if !q.seen[name] {
			q.seen[name] = true
			enough = take([]byte(note.Text)) || enough
		}
	}
	return enough, nil
}

func (q *question) remove(ctx context.Context) {
	limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), noteTime)
	defer cancel()
	for _, prefix := range []string{requestNote, answerNote} {
		_ = q.b.RemoveNotes(limited, prefix+q.id, 0) // what stays is removed by a host later
	}
}

// Host is one process that serves a thread.
type Host struct {
	b      store.Board
	id     string
	answer func(ctx context.Context, request []byte) []byte

	mu    sync.Mutex
	asked map[string]context.CancelFunc // by the id of the request
	work  sync.WaitGroup
}

// NewHost returns a host that answers with that function.
func NewHost(t *engine.Thread, answer func(ctx context.Context, request []byte) []byte) *Host {
	return &Host{b: t.Store().(store.Board), id: rand.Text(), answer: answer, asked: map[string]context.CancelFunc{}}
}

// Run notes that the host is there until ctx ends.
func (h *Host) Run(ctx context.Context) {
	tick := time.NewTicker(beatEvery)
	defer tick.Stop()
	for ctx.Err() == nil {
		limited, cancel := context.WithTimeout(ctx, noteTime)
		_ = h.b.PutNote(limited, store.HostNote+h.id, "", false) // a server that does not answer passes no requests on
		_ = h.b.RemoveNotes(limited, "", stale)
		cancel()
		select {
		case <-ctx.Done():
		case <-tick.C:
		}
	}
	limited, cancel := context.WithTimeout(context.Background(), noteTime)
	defer cancel()
	_ = h.b.RemoveNotes(limited, store.HostNote+h.id, 0)
	h.work.Wait()
}

// Look takes the requests that have come. It is called when the thread may have changed.
func (h *Host) Look(ctx context.Context) {
	limited, cancel := context.WithTimeout(ctx, noteTime)
	defer cancel()
	notes, err := h.b.Notes(limited, requestNote)
	if err != nil {
		return // the next look comes soon
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for name, note := range notes {
		id := strings.TrimPrefix(name, requestNote)
		if _, known := h.asked[id]; known || note.Age > fresh {
			continue
		}
		asking, cancel := context.WithCancel(ctx)
		h.asked[id] = cancel
		h.work.Go(func() { h.reply(asking, id, note.Text) })
	}
	for id, cancel := range h.asked {
		if note, there := notes[requestNote+id]; !there || note.Age > fresh { // no process waits any more
			cancel()
		}
		if _, there := notes[requestNote+id]; !there {
			delete(h.asked, id)
		}
	}
}

func (h *Host) reply(ctx context.Context, id, request string) {
	text := h.answer(ctx, []byte(request))
	limited, cancel := context.WithTimeout(ctx, noteTime)
	defer cancel()
	_ = h.b.PutNote(limited, answerNote+id+"/"+h.id, string(text), true) // the asking process waits no longer than it has to
}
