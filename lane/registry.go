package lane

import (
	"context"
	"log/slog"
	"maps"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"thread/internal/lanes"
)

// Run has the functions of an active run. Its pointer identifies it, so each run has
// a separate Run, which is not changed after Register. A nil function returns false,
// or does nothing. Functions are called without a lock held, from any goroutine and
// concurrently.
type Run struct {
	// Deliver passes a message into the run. Its error goes to the sender.
	Deliver func(message string) error
	// Abort asks the run to end and does not wait for it.
	Abort func()
	// Streaming tells whether the run is producing its answer and so can take a
	// message.
	Streaming func() bool
	// Compacting tells whether the run is busy compacting its context.
	Compacting func() bool
	// Stopped tells whether the run will take no more messages, whatever
	// Streaming says.
	Stopped func() bool
}

// Refusal is why a message was not delivered. It is an error whose text is the
// reason as users know it (L-16).
type Refusal string

const (
	NoActiveRun  Refusal = "no_active_run"
	NotStreaming Refusal = "not_streaming"
	Compacting   Refusal = "compacting"
)

func (r Refusal) Error() string { return string(r) }

// Bounds of the wait in [Registry.WaitEnd] (L-18).
const (
	DefaultEndTimeout = 15 * time.Second
	MinEndTimeout     = 100 * time.Millisecond
)

// Registry knows the active run of each session. Make one with [NewRegistry];
// its methods may be called from any goroutine. It starts none.
type Registry struct {
	log *slog.Logger

	mu   sync.Mutex
	runs map[string]*record
}

// record is a session that has an active run. It outlives a replacement of the
// run: the session is then active throughout.
type record struct {
	run   *Run
	notes map[string]any
	ended chan struct{} // closed when the session has no run any more
}

// NewRegistry returns an empty registry. It logs refused messages at DEBUG and
// panics of Abort at ERROR; a nil logger discards them.
func NewRegistry(logger *slog.Logger) *Registry {
	return &Registry{log: orDiscard(logger), runs: make(map[string]*record)}
}

// Register makes run the active run of a session, in place of the one it may
// have had, whose notes are dropped. The session must not be empty, nor run nil:
// Register panics then.
func (r *Registry) Register(session string, run *Run) {
	if session == "" || run == nil {
		panic("lane: Register without a session or a run")
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	rec := r.runs[session]
	if rec == nil {
		rec = &record{ended: make(chan struct{})}
		r.runs[session] = rec
	}
	rec.run, rec.notes = run, nil
}

// Clear ends the active run of a session if it is run, and tells whether it was.
// So the clean-up of an old run cannot remove a newer one (L-17).
func (r *Registry) Clear(session string, run *Run) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	rec := r.runs[session]
	if rec == nil || rec.run != run {
		return false
	}
	r.remove(session, rec)
	return true
}

// Detach ends the active run of a session, whichever it is, for a run that hangs. It
// is not aborted; its own [Registry.Clear] does nothing later. Detach returns false
// when there was none.
func (r *Registry) Detach(session string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	rec := r.runs[session]
	if rec == nil {
		return false
	}
	r.remove(session, rec)
	return true
}

// remove needs r.mu.
func (r *Registry) remove(session string, rec *record) {
	delete(r.runs, session)
	close(rec.ended)
}

// Active tells whether a session has an active run.
func (r *Registry) Active(session string) bool { return r.get(session) != nil }

// Sessions returns the sessions that have an active run, sorted.
func (r *Registry) Sessions() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Sorted(maps.Keys(r.runs))
}

// get returns the active run of a session, or nil.
func (r *Registry) get(session string) *Run {
	r.mu.Lock()
	defer r.mu.Unlock()
	if rec := r.runs[session]; rec != nil {
		return rec.run
	}
	return nil
}

// Send passes a message into the active run of a session. The error is a [Refusal],
// looked for in this order: [NoActiveRun], [NotStreaming], [Compacting]; or else what
// Deliver returned. A run may change its mind between the questions and the delivery,
// so Deliver has the last word.
func (r *Registry) Send(session, message string) error {
	err := r.send(r.get(session), message)
	if err != nil {
		r.log.Debug("message refused", "session", lanes.Shown(session), "reason", err)
	}
	return err
}

func (r *Registry) send(run *Run, message string) error {
	switch {
	case run == nil:
		return NoActiveRun
	case !ask(run.Streaming), ask(run.Stopped):
		return NotStreaming
	case ask(run.Compacting):
		return Compacting
	case run.Deliver == nil:
		return nil
	}
	return run.Deliver(message)
}

func ask(f func() bool) bool { return f != nil && f() }

// Abort aborts the active run of a session. It returns false when there is none
// (L-19). The run stays registered until it is cleared.
func (r *Registry) Abort(session string) bool {
	run := r.get(session)
	if run == nil {
		return false
	}
	r.abort(session, run)
	return true
}

// AbortAll aborts every active run and returns how many.
func (r *Registry) AbortAll() int {
	return r.abortIf(func(*Run) bool { return true })
}

// AbortCompacting aborts the active runs that are compacting and returns how
// many.
func (r *Registry) AbortCompacting() int {
	return r.abortIf(func(run *Run) bool { return ask(run.Compacting) })
}

func (r *Registry) abortIf(match func(*Run) bool) int {
	n := 0
	for _, session := range r.Sessions() {
		if run := r.get(session); run != nil && match(run) {
			r.abort(session, run)
			n++
		}
	}
	return n
}

// abort contains a panic, so that one broken run does not spare the others.
func (r *Registry) abort(session string, run *Run) {
	defer func() {
		if v := recover(); v != nil {
			r.log.Error("abort panicked", "session", lanes.Shown(session), "panic", v, "stack", string(debug.Stack()))
		}
	}()
	if run.Abort != nil {
		run.Abort()
	}
}

// WaitEnd waits until a session has no active run. It returns true then, at once when
// there is none, and false when the timeout or ctx ends first; never an error (L-18).
// A timeout shorter than [MinEndTimeout] counts as that; callers that were given none
// use DefaultEndTimeout.
func (r *Registry) WaitEnd(ctx context.Context, session string, timeout time.Duration) bool {
	return r.WaitEnds(ctx, []string{session}, timeout)
}

// WaitEnds is [Registry.WaitEnd] for several sessions at once. It does not wait for
// runs that start after the call (L-13).
func (r *Registry) WaitEnds(ctx context.Context, sessions []string, timeout time.Duration) bool {
	var active []*record
	r.mu.Lock()
	for _, session := range sessions {
		if rec := r.runs[session]; rec != nil {
			active = append(active, rec)
		}
	}
	r.mu.Unlock()
	timer := time.NewTimer(max(timeout, MinEndTimeout))
	defer timer.Stop()
	for _, rec := range active {
		if !waitEnd(ctx, rec, timer.C) {
			return false
		}
	}
	return true
}

// WaitIdle waits until no session has an active run, those registered meanwhile
// included. It returns true then, at once when there is none, and false when the
// timeout or ctx ends first.
func (r *Registry) WaitIdle(ctx context.Context, timeout time.Duration) bool {
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	for {
		rec := r.any()
		if rec == nil {
			return true
		}
		if !waitEnd(ctx, rec, timer.C) {
			return false
		}
	}
}

// any returns the record of some session, or nil.
func (r *Registry) any() *record {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, rec := range r.runs {
		return rec
	}
	return nil
}

func waitEnd(ctx context.Context, rec *record, timeout <-chan time.Time) bool {
	select {
	case <-rec.ended:
		return true
	case <-timeout:
	case <-ctx.Done():
	}
	// Both may have happened; the end is the better news.
	select {
	case <-rec.ended:
		return true
	default:
		return false
	}
}
