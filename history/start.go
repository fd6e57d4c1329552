package history

import (
	"context"
	"fmt"
	"time"
)

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
