package history

import (
	"context"
	"errors"
	"fmt"
)

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
