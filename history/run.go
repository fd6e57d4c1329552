package history

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"thread/internal/watch"
	"thread/lock"
)

// Run is a run that this process has started or works for. What it writes is refused
// with [ErrRecovered] once recovery has taken the run away, and with [ErrEnded] once
// it has ended. It is safe for concurrent use.
type Run struct {
	h  *History
	id string
	// attempt is the one that this handle is for; 0 for any.
	attempt int64

	mu   sync.Mutex
	lock *lock.File // of a supervised run
}

// RunOption says how a run is started.
type RunOption func(*runOptions)

type runOptions struct {
	supervised bool
	with       func(tx *Tx, row *RunRow) error
}

// With writes more rows in the commit that starts the run.
func With(fn func(tx *Tx, row *RunRow) error) RunOption {
	return func(o *runOptions) { o.with = fn }
}

// Supervised makes the run one that this process answers for: it holds a lock until
// the run ends, and when it dies, recovery knows at once.
func Supervised() RunOption { return func(o *runOptions) { o.supervised = true } }

// ID returns the id of the run.
func (r *Run) ID() string { return r.id }

// Attempt returns which attempt of the run this is, from 1; 0 for a handle of
// [History.Attach] that does not know.
func (r *Run) Attempt() int64 { return r.attempt }

// Row returns the run as it is stored.
func (r *Run) Row(ctx context.Context) (row RunRow, err error) {
	return row, r.h.Get(ctx, &row, r.id)
}

// Attach returns a handle on a run that was started elsewhere, for its attempt of
// that number, or for any with 0. The first write says whether there is such a run.
func (h *History) Attach(id string, attempt int64) *Run { return &Run{h: h, id: id, attempt: attempt} }

// StartSession stores a new session. It returns [ErrExists] when there is one with
// its id.
func (h *History) StartSession(ctx context.Context, s SessionRow) (SessionRow, error) {
	err := h.Update(ctx, func(tx *Tx) error {
		if err := tx.absent(Session, s.ID); err != nil {
			return err
		}
		return tx.Put(&s)
	})
	return s, err
}

func (tx *Tx) absent(e Entity, id string) error {
	if _, ok := tx.versionOf(rowKey(e, id)); ok && id != "" {
		return fmt.Errorf("%w: %s %q", ErrExists, e, id)
	}
	return nil
}

// StartRun stores a new run that is running from now on, and notes in its session
// when that was.
//
// StartRun returns [ErrActive] when a run of its session is active and the new one
// has no parent, [ErrExists], [ErrNotFound] for a session or parent that is not
// there, and *LimitError.
func (h *History) StartRun(ctx context.Context, row RunRow, opts ...RunOption) (*Run, error) {
	var o runOptions
	for _, opt := range opts {
		opt(&o)
	}
	if row.ID == "" {
		row.ID = newID(RunEntity)
	}
	r := &Run{h: h, id: row.ID, attempt: 1}
	if _, err := h.thread(true); err != nil {
		return nil, err
	}
	if err := r.claimLock(o.supervised); err != nil {
		return nil, err
	}
	err := h.Update(ctx, func(tx *Tx) error {
		if err := tx.prepare(&row); err != nil {
			return err
		}
		if row.SessionID != "" && row.ParentRunID == "" && tx.any(prefix(byRunActive, row.SessionID)) {
			return fmt.Errorf("%w: %q", ErrActive, row.SessionID)
		}
		if err := tx.checkLimits(&row, true, true); err != nil {
			return err
		}
		row.Attempt, row.Supervised = 0, o.supervised
		return tx.begin(&row, &o)
	})
	if err != nil {
		r.release(true)
		return nil, err
	}
	return r, nil
}

// prepare completes a new run from its session.
func (tx *Tx) prepare(row *RunRow) error {
	if err := tx.absent(RunEntity, row.ID); err != nil || row.SessionID == "" {
		return err
	}
	var s SessionRow
	if err := tx.must(&s, row.SessionID); err != nil {
		return err
	}
	orElse(&row.WorkspaceID, s.WorkspaceID)
	orElse(&row.InitiatorRef, s.SubjectRef)
	if row.AgentName == "" {
		row.AgentName = s.ActiveAgentName
	}
	return nil
}

// begin stores the run as running.
func (tx *Tx) begin(row *RunRow, o *runOptions) error {
	row.Status, row.StartedAt, row.HeartbeatAt = Running, tx.now, tx.now
	row.EndedAt = time.Time{}
	row.Attempt++
	if err := tx.Put(row); err != nil {
		return err
	}
	if row.SessionID != "" {
		var s SessionRow
		if err := tx.must(&s, row.SessionID); err != nil {
			return err
		}
		s.LastRunAt = tx.now
		if err := tx.Put(&s); err != nil {
			return err
		}
	}
	if o.with != nil {
		return o.with(tx, row)
	}
	return nil
}

// claimLock makes the run beat, and takes its lock where it is supervised.
func (r *Run) claimLock(supervised bool) error {
	if supervised {
		l, err := r.h.supervise(r.id)
		if err != nil {
			return err
		}
		r.lock = l
	}
	return r.h.touch(r.id)
}

// release gives the lock back; over says that the beat is of no use any more.
func (r *Run) release(over bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if over {
		r.h.forget(r.id)
	}
	if r.lock != nil {
		_ = r.lock.Close() // it was only held
		r.lock = nil
	}
}

// fenced returns the run if it is active and in that attempt, 0 for any.
func (tx *Tx) fenced(id string, attempt int64) (row RunRow, err error) {
	if err := tx.must(&row, id); err != nil {
		return row, err
	}
	superseded := attempt != 0 && row.Attempt != attempt
	switch {
	case superseded, row.Status == Queued && row.Attempt > 0, row.Ended() && recoveredBy(&row):
		return row, fmt.Errorf("%w: %q is %s in attempt %d", ErrRecovered, id, row.Status, row.Attempt)
	case !row.Active():
		return row, fmt.Errorf("%w: %q is %s", ErrEnded, id, row.Status)
	}
	return row, nil
}

// Update runs fn in one transaction, if the run still belongs to this handle; see
// [History.Update]. It counts as a beat.
func (r *Run) Update(ctx context.Context, fn func(tx *Tx, row *RunRow) error) error {
	err := r.h.Update(ctx, func(tx *Tx) error {
		row, err := tx.fenced(r.id, r.attempt)
		if err != nil {
			return err
		}
		return fn(tx, &row)
	})
	if err == nil {
		_ = r.h.touch(r.id) // the write itself has shown that it lives
	}
	return err
}

func (r *Run) put(ctx context.Context, row Row) error {
	return r.Update(ctx, func(tx *Tx, _ *RunRow) error { return tx.Put(row) })
}

// Message stores a message of the run's session.
func (r *Run) Message(ctx context.Context, m MessageRow) (MessageRow, error) {
	err := r.Update(ctx, func(tx *Tx, row *RunRow) error {
		m.RunID = r.id
		orElse(&m.SessionID, row.SessionID)
		return tx.Put(&m)
	})
	return m, err
}

// Step stores a step of the run, or a new version of the one with its id. Its seq is
// the next one when it is 0.
func (r *Run) Step(ctx context.Context, s StepRow) (StepRow, error) {
	err := r.Update(ctx, func(tx *Tx, row *RunRow) error {
		s.RunID = r.id
		orElse(&s.AgentName, row.EffectiveAgentName)
		return tx.Put(&s)
	})
	return s, err
}

// ToolCall stores a call of a tool, or a new version of the one with its id.
func (r *Run) ToolCall(ctx context.Context, c ToolCallRow) (ToolCallRow, error) {
	c.RunID = r.id
	return c, r.put(ctx, &c)
}

// HookRun stores a run of a hook, or a new version of the one with its id.
func (r *Run) HookRun(ctx context.Context, c HookRunRow) (HookRunRow, error) {
	c.RunID = r.id
	return c, r.put(ctx, &c)
}

// ActionRun stores a run of an action, or a new version of the one with its id.
func (r *Run) ActionRun(ctx context.Context, c ActionRunRow) (ActionRunRow, error) {
	c.RunID = r.id
	return c, r.put(ctx, &c)
}

// Artifact stores something that the run has made.
func (r *Run) Artifact(ctx context.Context, c ArtifactRow) (ArtifactRow, error) {
	c.RunID = r.id
	return c, r.put(ctx, &c)
}

// ModelCall is what was sent to a model and what came back, each as JSON; nil for
// what is not known.
type ModelCall struct {
	ID, Name        string
	Status          string          // completed without one
	Request         json.RawMessage // model, canonicalModelRef, provider, temperature, maxTokens, messages
	RequestRuntime  json.RawMessage // messageCount, activeToolNames, runtimeTools, toolServers
	Response        json.RawMessage // text, content, reasoning, toolCalls, toolResults, usage, finishReason, providerMetadata
	ResponseRuntime json.RawMessage // toolCallsCount, toolResultsCount
	StartedAt       time.Time
	EndedAt         time.Time
}

// Row returns the step that holds the call.
func (m ModelCall) Row() StepRow {
	return StepRow{ID: m.ID, Name: m.Name, Status: m.Status, StepType: "model_call", StartedAt: m.StartedAt, EndedAt: m.EndedAt,
		Input: pair("request", m.Request, m.RequestRuntime), Output: pair("response", m.Response, m.ResponseRuntime)}
}

// pair returns {first:…,"runtime":…}, of what there is.
func pair(first string, value, runtime json.RawMessage) json.RawMessage {
	if value == nil && runtime == nil {
		return nil
	}
	c := columns{b: []byte("{")}
	c.value(first, &value)
	c.value("runtime", &runtime)
	return append(c.b, '}')
}

// Switch changes the agent of the run and of its session, in one commit.
func (r *Run) Switch(ctx context.Context, agent string) error {
	if agent == "" {
		return invalidf("agent is empty")
	}
	return r.Update(ctx, func(tx *Tx, row *RunRow) error {
		row.EffectiveAgentName = agent
		row.SwitchCount++
		if err := tx.Put(row); err != nil || row.SessionID == "" {
			return err
		}
		var s SessionRow
		if err := tx.must(&s, row.SessionID); err != nil {
			return err
		}
		s.ActiveAgentName, s.UpdatedAt = agent, tx.now
		return tx.Put(&s)
	})
}

// Waits says whether the run waits for a tool.
func (r *Run) Waits(ctx context.Context, waits bool) error {
	return r.Update(ctx, func(tx *Tx, row *RunRow) error {
		row.Status = Running
		if waits {
			row.Status = WaitingTool
		}
		return tx.Put(row)
	})
}

// End is how a run ends.
type End struct {
	Status                  string // Completed, Failed, Cancelled or TimedOut
	ErrorCode, ErrorMessage string
	// Also writes more rows in the same commit, if it is set.
	Also func(tx *Tx) error
}

// End ends the run. The time of its last beat goes into the row.
func (r *Run) End(ctx context.Context, e End) error {
	end := RunRow{Status: e.Status}
	if !end.Ended() {
		return invalidf("a run does not end as %q", e.Status)
	}
	err := r.h.Update(ctx, func(tx *Tx) error {
		row, err := tx.fenced(r.id, r.attempt)
		if err != nil {
			return err
		}
		row.Status, row.EndedAt = e.Status, tx.now
		row.ErrorCode, row.ErrorMessage = e.ErrorCode, e.ErrorMessage
		if e.Also != nil {
			if err := e.Also(tx); err != nil {
				return err
			}
		}
		return tx.Put(&row)
	})
	if err == nil || errors.Is(err, ErrRecovered) || errors.Is(err, ErrEnded) {
		r.release(err == nil)
	}
	return err
}

// Leave gives up a run without ending it: recovery finds it.
func (r *Run) Leave() { r.release(false) }

// BeatOnce says that the run lives. It returns [ErrCancelled] when the run is to be
// cancelled, and [ErrRecovered] and [ErrEnded].
func (r *Run) BeatOnce(ctx context.Context) error {
	cancelled := false
	err := r.h.View(ctx, func(tx *Tx) error {
		row, err := tx.fenced(r.id, r.attempt)
		cancelled = !row.CancelRequestedAt.IsZero()
		return err
	})
	switch {
	case err != nil:
		return err
	case cancelled:
		err = ErrCancelled
	}
	return errors.Join(err, r.keep())
}

// keep touches the beat of the run. If run/ was deleted, the lock went with it: a
// supervised run takes the new one.
func (r *Run) keep() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.lock != nil {
		if same, _ := lock.Names(r.h.beatPath(r.id), r.lock.File()); !same {
			l, err := r.h.supervise(r.id)
			if err != nil {
				return err
			}
			_ = r.lock.Close() // of a file that has no name
			r.lock = l
		}
	}
	return r.h.touch(r.id)
}

// Beat lets the run beat every so often, 0 for [DefaultBeat] and at least [MinBeat],
// until stop is called or ctx ends. The context that it returns ends when the run is
// to be cancelled or is not this handle's any more; its cause is then [ErrCancelled],
// [ErrRecovered] or [ErrEnded]. A history that cannot be read for a while ends
// nothing.
func (r *Run) Beat(ctx context.Context, every time.Duration) (_ context.Context, stop func()) {
	if every <= 0 {
		every = DefaultBeat
	}
	every = max(every, MinBeat)
	ctx, cancel := context.WithCancelCause(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		w, err := watch.New(r.h.dir)
		if err == nil {
			defer w.Close()
		}
		for {
			switch err := r.BeatOnce(ctx); {
			case errors.Is(err, ErrCancelled), errors.Is(err, ErrRecovered), errors.Is(err, ErrEnded), errors.Is(err, ErrNotFound):
				cancel(err)
				return
			}
			if !r.wait(ctx, w, every) {
				return
			}
		}
	}()
	return ctx, func() {
		cancel(context.Canceled)
		<-ended
	}
}

// wait returns true when it is time to beat again, or something was written, which
// may be that the run is to be cancelled.
func (r *Run) wait(ctx context.Context, w *watch.Watcher, every time.Duration) bool {
	if w != nil {
		return w.Wait(ctx, time.Now().Add(every)) == nil
	}
	timer := time.NewTimer(every)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

// Cancel asks a run to end: one that is queued is cancelled at once, one that is
// active learns of it by its next beat. It returns [ErrEnded] for one that has ended.
func (h *History) Cancel(ctx context.Context, id string) (row RunRow, err error) {
	err = h.Update(ctx, func(tx *Tx) error {
		row = RunRow{}
		if err := tx.must(&row, id); err != nil {
			return err
		}
		switch {
		case row.Status == Queued:
			row.Status, row.EndedAt = Cancelled, tx.now
		case row.Active() && row.CancelRequestedAt.IsZero():
		case row.Active():
			return nil
		default:
			return fmt.Errorf("%w: %q is %s", ErrEnded, id, row.Status)
		}
		row.CancelRequestedAt = tx.now
		return tx.Put(&row)
	})
	return row, err
}

// DeleteSession deletes a session with all that hangs on it, in one commit. It
// returns [ErrActive] when a run of it is active.
func (h *History) DeleteSession(ctx context.Context, id string) error {
	return h.Update(ctx, func(tx *Tx) error {
		if _, ok := tx.versionOf(rowKey(Session, id)); !ok {
			return notFound(Session, id)
		}
		if tx.any(prefix(byRunActive, id)) {
			return fmt.Errorf("%w: %q", ErrActive, id)
		}
		runs := tx.ids(prefix(byRunSession, id))
		for _, of := range []struct {
			entity Entity
			index  byte
		}{{Artifact, byArtifactRun}, {ActionRun, byActionRun}, {HookRun, byHookRun}, {ToolCall, byToolRun}, {RunStep, byStepRun}} {
			for _, run := range runs {
				if err := tx.deleteAll(of.entity, tx.ids(prefix(of.index, run))); err != nil {
					return err
				}
			}
		}
		if err := tx.deleteAll(RunEntity, runs); err != nil {
			return err
		}
		if err := tx.deleteAll(Message, tx.ids(prefix(byMessageSession, id))); err != nil {
			return err
		}
		return tx.Delete(Session, id)
	})
}

// ids returns the ids of the rows in an index, in its order.
func (tx *Tx) ids(p []byte) (ids []string) {
	for rec := range tx.by.Ascend(p, after(p)) {
		ids = append(ids, string(rec.Value))
	}
	return ids
}

func (tx *Tx) deleteAll(e Entity, ids []string) error {
	for _, id := range ids {
		if err := tx.Delete(e, id); err != nil {
			return err
		}
	}
	return nil
}
