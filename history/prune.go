package history

import (
	"context"
	"encoding/binary"
	"errors"
	"time"

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

// A row in the table "rows" has its columns in their order, without their names:
//
//	text, JSON   length uvarint, bytes
//	number       varint
//	flag         varint, 0 or 1
//	time         varint: milliseconds since 1970, and one more from 1970 on; 0 for null
//
// Where the row ends, the columns that follow are empty, so that a column can be added
// behind the others.

// maxInline is how long a row may be as JSON to stand in the table, too: a page of the
// table holds several then, and all of them are written when one changes.
const maxInline = 1024

// compact is the state of columns that go through the compact form.
type compact struct {
	in  string // what of it is not read yet
	out []byte
}

var errCompact = errors.New("a row is cut short")

// appendCompact appends the row in its compact form.
func appendCompact(b []byte, r Row) []byte {
	c := columns{compact: &compact{out: b}}
	walk(r, &c)
	return c.compact.out
}

// parseCompact fills the row. The row keeps parts of text.
func parseCompact(r Row, text string) error {
	c := columns{decode: true, compact: &compact{in: text}}
	walk(r, &c)
	if c.err == nil && c.compact.in != "" {
		c.err = corrupt(r.Entity(), *idOf(r))
	}
	return c.err
}

// uvarint takes a number off the front.
func (p *compact) uvarint() (n uint64, ok bool) {
	for shift := 0; shift < 64 && len(p.in) > 0; shift += 7 {
		b := p.in[0]
		p.in = p.in[1:]
		if n |= uint64(b&0x7F) << shift; b < 0x80 {
			return n, true
		}
	}
	return 0, false
}

// bytes takes a text off the front; there is none at the end.
func (p *compact) bytes() (string, error) {
	if p.in == "" {
		return "", nil
	}
	n, ok := p.uvarint()
	if !ok || n > uint64(len(p.in)) {
		return "", errCompact
	}
	s := p.in[:n]
	p.in = p.in[n:]
	return s, nil
}

// varint takes a number off the front; there is 0 at the end.
func (p *compact) varint() (int64, error) {
	if p.in == "" {
		return 0, nil
	}
	n, ok := p.uvarint()
	if !ok {
		return 0, errCompact
	}
	return int64(n>>1) ^ -int64(n&1), nil
}

func (p *compact) putText(s string) {
	p.out = append(binary.AppendUvarint(p.out, uint64(len(s))), s...)
}

func (p *compact) putNumber(n int64) { p.out = binary.AppendVarint(p.out, n) }

func (p *compact) putTime(t time.Time) {
	ms := int64(0)
	if !t.IsZero() {
		if ms = t.UnixMilli(); ms >= 0 {
			ms++
		}
	}
	p.putNumber(ms)
}

// time returns the time of a number that putTime has put.
func (p *compact) time() (time.Time, error) {
	switch ms, err := p.varint(); {
	case ms == 0 || err != nil:
		return time.Time{}, err
	case ms > 0:
		return time.UnixMilli(ms - 1).UTC(), nil
	default:
		return time.UnixMilli(ms).UTC(), nil
	}
}
