package history

import (
	"context"

	"thread/engine"
	"thread/event"
)

// replaceRows is how many rows are written again in one commit.
const replaceRows = 500

// Prune drops history events as [engine.Thread.Prune] does, and keeps every row: one
// whose newest version is among what goes is first written again, unchanged, as
// OpReplace. It returns how many those were. The errors are the errors of
// [engine.Thread.Prune], and [ErrOwner], as pruning may put another file in the place of
// the database.
func (h *History) Prune(ctx context.Context, r engine.Retention) (c engine.Compaction, replaced int64, err error) {
	t, err := h.thread(false)
	if err != nil || t == nil {
		return c, 0, err
	}
	if err := h.mayReplace(); err != nil && !r.DryRun {
		return c, 0, err
	}
	dry := r
	dry.DryRun = true
	if c, err = t.Prune(ctx, dry); err != nil || c.Through == 0 {
		return c, 0, err
	}
	through := c.Through
	for from := int64(0); from < through; {
		n, next, err := h.replaceSome(ctx, from, through, r.DryRun)
		replaced += n
		if err != nil {
			return c, replaced, err
		}
		from = next
	}
	if !r.DryRun {
		c, err = t.Prune(ctx, engine.Retention{Through: through, Force: r.Force, Lines: r.Lines})
	}
	return c, replaced, err
}

// replaceSome writes the rows again whose newest version is an event in (from,
// through], as many as go into one commit, and returns how far it came.
func (h *History) replaceSome(ctx context.Context, from, through int64, dry bool) (n, next int64, err error) {
	do := h.Update
	if dry {
		do = h.View
	}
	err = do(ctx, func(tx *Tx) error {
		var live []Change
		next = through
		seen := 0
		for e, err := range tx.e.Events(from) {
			if err != nil {
				return err
			}
			if e.ID > through {
				break
			}
			if seen++; len(live) >= replaceRows || seen > 20*replaceRows {
				next = e.ID - 1
				break
			}
			c, newest, err := tx.newest(e)
			if err != nil {
				return err
			}
			if newest {
				c.Row = append([]byte(nil), c.Row...)
				live = append(live, c)
			}
		}
		n = int64(len(live))
		for i := 0; i < len(live) && !dry; i++ {
			row := NewRow(live[i].Entity)
			if err := ParseJSON(row, live[i].Row); err != nil {
				return err
			}
			if err := tx.store(row, keyOf(row), OpReplace, live[i].Session); err != nil {
				return err
			}
		}
		return nil
	})
	return n, next, err
}

// newest reads a history event and reports whether it is the newest of a row, which is
// written again before the event goes.
func (tx *Tx) newest(e *event.Event) (c Change, newest bool, err error) {
	if c, err = ParseChange(e); err != nil || c.Op == OpDelete {
		return c, false, nil
	}
	row := NewRow(c.Entity)
	if err := ParseJSON(row, c.Row); err != nil {
		return c, false, err
	}
	v, ok := tx.versionOf(keyOf(row))
	return c, ok && v.latest == e.ID, nil
}
