package history

import (
	"encoding/binary"
	"errors"
	"time"
)

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
