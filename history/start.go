package history

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"thread/lock"
)

// RunOption says how a run is started.
type RunOption func(*runOptions)

type runOptions struct {
	supervised bool
	alone      bool          // no command inherits the lock of a supervised run
	every      time.Duration // 0: as the row says
	agents     []string      // empty for any
	with       func(tx *Tx, row *RunRow) error
}

// With writes more rows in the commit that starts the run.
func With(fn func(tx *Tx, row *RunRow) error) RunOption {
	return func(o *runOptions) { o.with = fn }
}

// BeatEvery sets how often the run will beat: recovery waits for three beats.
func BeatEvery(d time.Duration) RunOption { return func(o *runOptions) { o.every = d } }

// Supervised makes the run one that this process answers for: it holds a lock until
// the run ends, and when it dies, recovery knows at once.
func Supervised() RunOption { return func(o *runOptions) { o.supervised = true } }

// StartRun stores a new run that is running from now on, and notes in its session
// when that was.
//
// An active run of its session whose worker is gone is recovered as [Fail] has it, in the
// same commit; what is left of its command is ended before.
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
	if err := r.claimLock(ctx, &o); err != nil {
		return nil, err
	}
	var recovered []string
	ctx = h.wants(ctx, rowKey(RunEntity, row.ID), rowKey(Session, row.SessionID), rowKey(RunEntity, row.ParentRunID), rowKey(Limit, "workspace:"))
	err := h.afterLeft(ctx, func() error {
		return h.Update(ctx, func(tx *Tx) (err error) {
			if err := tx.prepare(&row); err != nil {
				return err
			}
			if row.SessionID != "" && row.ParentRunID == "" {
				if recovered, err = tx.freeSession(row.SessionID); err != nil {
					return err
				}
			}
			if err := tx.checkLimits(&row, true, true); err != nil {
				return err
			}
			row.Attempt, row.Supervised = 0, o.supervised
			return tx.begin(&row, &o)
		})
	})
	if err != nil {
		r.release(true)
		return nil, err
	}
	for _, id := range recovered {
		h.forget(id)
	}
	return r, nil
}

// StartRunWait is [History.StartRun] that waits while a run of the session is active. It
// returns the cause of the end of ctx.
func (h *History) StartRunWait(ctx context.Context, row RunRow, opts ...RunOption) (*Run, error) {
	if row.ID == "" {
		row.ID = newID(RunEntity)
	}
	t, err := h.thread(true)
	if err != nil {
		return nil, err
	}
	w, err := t.Watch()
	if err != nil {
		return nil, err
	}
	defer h.leaveWatch(w)
	for {
		r, err := h.StartRun(ctx, row, opts...)
		if !errors.Is(err, ErrActive) {
			return r, err
		}
		if err := w.Wait(ctx, h.now().Add(DefaultBeat)); err != nil {
			return nil, err
		}
	}
}

// freeSession recovers the active runs of a session whose workers are gone, and returns their
// ids. It returns ErrActive where one lives, and *leftError where a command does.
func (tx *Tx) freeSession(session string) (recovered []string, err error) {
	o := RecoverOptions{Strategy: Fail}
	for _, id := range tx.ids(prefix(byRunActive, session)) {
		var row RunRow
		if err := tx.must(&row, id); err != nil {
			return nil, err
		}
		v, silent := tx.judge(&row, o.staleAfter(&row))
		switch v {
		case left:
			return nil, &leftError{id}
		case dead:
			if err := tx.recover(&row, &o, silent); err != nil {
				return nil, err
			}
			recovered = append(recovered, id)
			continue
		}
		return nil, fmt.Errorf("%w: %q", ErrActive, session)
	}
	return recovered, nil
}

// afterLeft calls fn until nothing is left of the command of a run that is in its way. Where
// that cannot be ended, it returns ErrActive.
func (h *History) afterLeft(ctx context.Context, fn func() error) error {
	for {
		err := fn()
		var in *leftError
		if !errors.As(err, &in) {
			return err
		}
		switch ended, eerr := h.endLeft(ctx, in.run); {
		case eerr != nil:
			return eerr
		case !ended:
			return fmt.Errorf("%w: %w", ErrActive, err)
		}
	}
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
	if o.every > 0 {
		row.BeatEvery = o.every.Milliseconds()
	}
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

// Input returns the input of a run, nil where it has none.
func (h *History) Input(ctx context.Context, run string) (json.RawMessage, error) {
	var s StepRow
	err := h.Get(ctx, &s, inputStep(run))
	if errors.Is(err, ErrNotFound) {
		return nil, nil
	}
	return s.Input, err
}

func (tx *Tx) deleteAll(e Entity, ids []string) error {
	for _, id := range ids {
		if err := tx.Delete(e, id); err != nil {
			return err
		}
	}
	return nil
}

func (tx *Tx) enqueue(row *RunRow, job *Job, input json.RawMessage) error {
	if err := tx.prepare(row); err != nil {
		return err
	}
	if err := tx.checkLimits(row, false, true); err != nil {
		return err
	}
	row.Status, row.Attempt, row.Supervised = Queued, 0, false
	if err := tx.Put(row); err != nil {
		return err
	}
	if input != nil {
		step := StepRow{ID: inputStep(row.ID), RunID: row.ID, Seq: 1, StepType: "input", Name: "input", AgentName: row.AgentName, Status: Completed, Input: input}
		if err := tx.Put(&step); err != nil {
			return err
		}
	}
	return tx.joinNew(row, job)
}

func (tx *Tx) input(run string) (json.RawMessage, error) {
	var s StepRow
	_, err := tx.Get(&s, inputStep(run))
	return s.Input, err
}

// take begins the run that is to start next, and returns noneReady where there is none.
func (tx *Tx) take(ctx context.Context, o *runOptions) (r *Run, row RunRow, err error) {
	none := new(noneReady)
	limits := tx.startLimits()
	passed := map[string]bool{}
	for {
		id, err := tx.next(o, limits, passed, none)
		if err != nil {
			return nil, row, err
		}
		if id == "" {
			if none.commit, err = limits.anchor(); err != nil {
				return nil, row, err
			}
			return nil, row, none
		}
		if err := tx.must(&row, id); err != nil {
			return nil, row, err
		}
		row.Supervised = o.supervised
		r = &Run{h: tx.h, id: row.ID, attempt: row.Attempt + 1}
		switch err := r.claimLock(ctx, o); {
		case errors.Is(err, lock.ErrHeld):
			passed[id] = true
			none.sooner(tx.local(tx.now.Add(heldAgain)))
			continue
		case err != nil:
			return r, row, err
		}
		if err := limits.count(&row); err != nil {
			return r, row, err
		}
		if o.alone { // its function will most likely ask
			if r.input, err = tx.input(row.ID); err != nil {
				return r, row, err
			}
			r.hasInput = true
		}
		return r, row, tx.begin(&row, o)
	}
}

// claimLock makes the run beat, and takes its lock where it is supervised.
func (r *Run) claimLock(ctx context.Context, o *runOptions) error {
	if o.supervised {
		var err error
		r.lock, r.tree, err = r.h.supervise(r.id, o.alone)
		if err != nil && (r.h.of == nil || errors.Is(err, lock.ErrHeld) || errors.As(err, new(*leftError))) {
			return err
		}
	}
	if r.h.of != nil {
		r.noteAttempt()
		r.silent = true
		return nil // its row has the time of the start
	}
	return r.h.touch(ctx, r.id)
}

// next returns the id of the run that is to start next, "" where there is none.
func (tx *Tx) next(o *runOptions, limits *startLimits, passed map[string]bool, none *noneReady) (id string, err error) {
	var best []byte
	for _, p := range tx.readyAgents(o.agents) {
		for rec := range tx.by.Ascend(p, after(p)) {
			if best != nil && bytes.Compare(rankOf(rec.Key), best) > 0 {
				break
			}
			if passed[string(rec.Value)] {
				continue
			}
			var row RunRow
			if err := tx.must(&row, string(rec.Value)); err != nil {
				return "", err
			}
			switch err := tx.checkLimits(&row, true, false); {
			case errors.Is(err, ErrLimit):
				continue
			case err != nil:
				return "", err
			}
			at, all, err := limits.when(&row)
			switch {
			case err != nil:
				return "", err
			case !at.IsZero():
				none.sooner(tx.local(at))
				if all {
					return "", nil
				}
				continue
			}
			best, id = bytes.Clone(rankOf(rec.Key)), row.ID
			break
		}
	}
	return id, nil
}

// rankOf returns the part of a key in byReady that orders runs of all agents.
func rankOf(key []byte) []byte { return key[len(key)-16:] }

// heldAgain is how long a run is passed over whose last worker has not let go of it.
const heldAgain = 20 * time.Millisecond
