package history

import (
	"context"
	"fmt"
	"sync"

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
	handler string // not "": the consumer whose handler it is, to be stored with the first write

	mu   sync.Mutex
	lock *lock.File // of a supervised run
}

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
		if r.handler != "" {
			if err := tx.beginHandler(r.id, r.handler); err != nil {
				return err
			}
		}
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
