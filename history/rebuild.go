package history

import (
	"bytes"
	"context"

	"thread/engine"
)

// Rebuild makes the tables again from the log, in one commit, and returns how many
// history events it read. Events that are none are passed over.
func (h *History) Rebuild(ctx context.Context) (n int64, err error) {
	t, err := h.thread(false)
	if err != nil || t == nil {
		return 0, err
	}
	err = t.Update(ctx, func(e *engine.Tx) error {
		tx, err := newTx(ctx, h, e)
		if err != nil {
			return err
		}
		for _, table := range []*engine.Records{tx.rows, tx.by.Records} {
			if err := empty(table); err != nil {
				return err
			}
		}
		n = 0
		for e, err := range e.Events(0) {
			if err != nil {
				return err
			}
			c, err := ParseChange(e)
			if err != nil {
				continue // another process pushed it
			}
			if err := tx.replay(&c); err != nil {
				return err
			}
			n++
		}
		return nil
	})
	return n, err
}

// replay does to the tables what the write of that history event did.
func (tx *Tx) replay(c *Change) error {
	row, old := NewRow(c.Entity), NewRow(c.Entity)
	key := rowKey(c.Entity, c.EntityID)
	if c.Op != OpDelete {
		if err := ParseJSON(row, c.Row); err != nil {
			return err
		}
		key = keyOf(row)
	}
	was, had, err := tx.read(old, key)
	if err != nil {
		return err
	}
	if !had {
		old = nil
	}
	if c.Op == OpDelete {
		if !had {
			return nil // its rows were pruned
		}
		return tx.apply(key, old, was, nil, version{})
	}
	is := version{latest: c.ID, first: c.ID, session: c.Session}
	if is.row, err = inline(c.Entity, c.Row); err != nil {
		return err
	}
	if c.first != 0 {
		is.first = c.first
	}
	return tx.apply(key, old, was, row, is)
}

// empty deletes all records of a table.
func empty(table *engine.Records) error {
	for {
		var keys [][]byte
		for rec := range table.Ascend(nil, nil) {
			if keys = append(keys, bytes.Clone(rec.Key)); len(keys) == 1000 {
				break
			}
		}
		if len(keys) == 0 {
			return nil
		}
		for _, k := range keys {
			if err := table.Delete(k); err != nil {
				return err
			}
		}
	}
}
