package history

import (
	"context"

	"thread/event"
)

// replaceRows is how many rows are written again in one commit.
const replaceRows = 500

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

// A row in the table "rows" has its columns in their order, without their names:
//
//	text, JSON   length uvarint, bytes
//	number       varint
//	flag         varint, 0 or 1
//	time         varint: milliseconds since 1970, and one more from 1970 on; 0 for null
//
// Where the row ends, the columns that follow are empty, so that a column can be added
// behind the others.

// appendCompact appends the row in its compact form.
func appendCompact(b []byte, r Row) []byte {
	c := columns{compact: &compact{out: b}}
	walk(r, &c)
	return c.compact.out
}

// maxInline is how long a row may be as JSON to stand in the table, too: a page of the
// table holds several then, and all of them are written when one changes.
const maxInline = 1024
