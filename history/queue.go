package history

import (
	"context"
	"errors"

	"thread/internal/watch"
)

// Enqueue stores a new run that waits until [History.Claim] starts it: after those of
// its session that came before. The errors are those of [History.StartRun], but for
// [ErrActive].
func (h *History) Enqueue(ctx context.Context, row RunRow) (RunRow, error) {
	err := h.Update(ctx, func(tx *Tx) error {
		if err := tx.prepare(&row); err != nil {
			return err
		}
		if err := tx.checkLimits(&row, false, true); err != nil {
			return err
		}
		row.Status, row.Attempt, row.Supervised = Queued, 0, false
		return tx.Put(&row)
	})
	return row, err
}

// Claim starts the oldest run in the queue whose session has no active one, and whose
// workspace and subject may have one more. It returns [ErrNoneReady] when there is
// none. No two callers get the same run.
func (h *History) Claim(ctx context.Context, opts ...RunOption) (*Run, RunRow, error) {
	var o runOptions
	for _, opt := range opts {
		opt(&o)
	}
	if t, err := h.thread(false); err != nil || t == nil {
		return nil, RunRow{}, errors.Join(err, ErrNoneReady)
	}
	var row RunRow
	var r *Run
	err := h.Update(ctx, func(tx *Tx) error {
		row = RunRow{}
		for _, id := range tx.ids([]byte{byReady}) {
			candidate := RunRow{}
			if err := tx.must(&candidate, id); err != nil {
				return err
			}
			err := tx.checkLimits(&candidate, true, false)
			if errors.Is(err, ErrLimit) {
				continue
			}
			if err != nil {
				return err
			}
			row = candidate
			break
		}
		if row.ID == "" {
			return ErrNoneReady
		}
		row.Supervised = o.supervised
		r = &Run{h: h, id: row.ID, attempt: row.Attempt + 1}
		if err := r.claimLock(o.supervised); err != nil {
			return err
		}
		return tx.begin(&row, &o)
	})
	if err != nil {
		if r != nil {
			r.release(true)
		}
		return nil, RunRow{}, err
	}
	return r, row, nil
}

// Waiting returns how many runs are ready, of each session one at most and whatever the
// limits say, how many are active, and the id of the newest history event: while that
// stays the same, so do the numbers.
func (h *History) Waiting(ctx context.Context) (ready, active int, head int64, err error) {
	err = h.View(ctx, func(tx *Tx) error {
		ready, active, head = len(tx.ids([]byte{byReady})), len(tx.ids([]byte{byActiveAll})), tx.e.Head()
		return nil
	})
	return ready, active, head, err
}

// ClaimWait is [History.Claim] that waits until a run is ready. It returns the cause
// of the end of ctx.
func (h *History) ClaimWait(ctx context.Context, opts ...RunOption) (*Run, RunRow, error) {
	if _, err := h.thread(true); err != nil {
		return nil, RunRow{}, err
	}
	w, err := watch.New(h.dir)
	if err != nil {
		return nil, RunRow{}, err
	}
	defer w.Close()
	for {
		r, row, err := h.Claim(ctx, opts...)
		if !errors.Is(err, ErrNoneReady) {
			return r, row, err
		}
		if err := w.Wait(ctx, h.now().Add(DefaultBeat)); err != nil {
			return nil, RunRow{}, err
		}
	}
}

// Requeue gives a run that has failed or timed out back to the queue, where its old
// place is the first of its session. It returns [ErrState] for any other one.
func (h *History) Requeue(ctx context.Context, id string) (row RunRow, err error) {
	err = h.Update(ctx, func(tx *Tx) error {
		row = RunRow{}
		if err := tx.must(&row, id); err != nil {
			return err
		}
		if row.Status != Failed && row.Status != TimedOut {
			return stateError(&row, "requeued")
		}
		rec := recoveryOf(&row)
		rec.Attempts, rec.Quarantined, rec.Reason = 0, false, "requeued by hand"
		return tx.requeue(&row, rec)
	})
	return row, err
}

// requeue stores the run as queued.
func (tx *Tx) requeue(row *RunRow, rec Recovery) error {
	var err error
	if row.Metadata, err = SetMember(row.Metadata, "recovery", rec); err != nil {
		return err
	}
	beat := row.HeartbeatAt
	*row = RunRow{ID: row.ID, WorkspaceID: row.WorkspaceID, SessionID: row.SessionID, ParentRunID: row.ParentRunID,
		TriggerType: row.TriggerType, TriggerRef: row.TriggerRef, InitiatorRef: row.InitiatorRef,
		AgentName: row.AgentName, EffectiveAgentName: row.EffectiveAgentName, SwitchCount: row.SwitchCount,
		Status: Queued, Metadata: row.Metadata, CreatedAt: row.CreatedAt, Attempt: row.Attempt, BeatEvery: row.BeatEvery, HeartbeatAt: beat}
	return tx.Put(row)
}
