package history

import (
	"encoding/binary"
	"strings"

	"thread/event"
)

// version says where a row stands, and is the row, too, when that is short.
type version struct {
	latest  int64  // the event with its newest version
	first   int64  // the event with which it came to be; the order of rows
	session string // whose session it belongs to; "" for none
	row     []byte // in its compact form; nil where it stands in the event only
}

// inlined marks the record of a row that stands in the record itself. Ids of events leave
// that bit free; older versions of this program wrote records without it only.
const inlined = 1 << 63

// encode returns the record:
//
//	latest   8 bytes, big-endian, with inlined
//	first    8 bytes
//	session  the rest; with inlined uvarint length, bytes, and the row is the rest
func (v *version) encode() []byte {
	if v.row == nil {
		b := binary.BigEndian.AppendUint64(nil, uint64(v.latest))
		b = binary.BigEndian.AppendUint64(b, uint64(v.first))
		return append(b, v.session...)
	}
	b := make([]byte, 0, 16+2+len(v.session)+len(v.row))
	b = binary.BigEndian.AppendUint64(b, uint64(v.latest)|inlined)
	b = binary.BigEndian.AppendUint64(b, uint64(v.first))
	b = append(binary.AppendUvarint(b, uint64(len(v.session))), v.session...)
	return append(b, v.row...)
}

// decodeVersion reads a record. The version keeps a part of it.
func decodeVersion(b []byte) (v version, ok bool) {
	if len(b) < 16 {
		return v, false
	}
	latest := binary.BigEndian.Uint64(b)
	v.latest, v.first = int64(latest&^inlined), int64(binary.BigEndian.Uint64(b[8:]))
	if b = b[16:]; latest&inlined == 0 {
		v.session = string(b)
		return v, true
	}
	n, size := binary.Uvarint(b)
	if size <= 0 || n > uint64(len(b)-size) {
		return v, false
	}
	b = b[size:]
	v.session, v.row = string(b[:n]), b[n:]
	return v, true
}

// inlineRow returns the row in a record, nil when there is none.
func inlineRow(b []byte) []byte {
	if len(b) < 16 || b[0]&(inlined>>56) == 0 {
		return nil
	}
	n, size := binary.Uvarint(b[16:])
	if b = b[16:]; size <= 0 || n > uint64(len(b)-size) {
		return nil
	}
	return b[uint64(size)+n:]
}

// inline returns the row of a history event for its record, nil for one that is too
// long. It is made from the event's text, so that rebuilding the tables makes the same.
func inline(e Entity, text []byte) ([]byte, error) {
	if len(text) > maxInline {
		return nil, nil
	}
	r := NewRow(e)
	if err := ParseJSON(r, text); err != nil {
		return nil, err
	}
	return appendCompact(make([]byte, 0, len(text)), r), nil
}

var entityTags = map[Entity]byte{
	Workspace: 'w', Session: 's', Message: 'm', RunEntity: 'r', RunStep: 'p', ToolCall: 't',
	HookRun: 'h', ActionRun: 'a', Artifact: 'f', Limit: 'l',
}

// rowKey returns the key of a row. The workspace of the directory has one of its
// own: its id changes when the directory is copied.
func rowKey(e Entity, id string) []byte {
	return append([]byte{entityTags[e]}, id...)
}

func keyOf(r Row) []byte {
	if w, ok := r.(*WorkspaceRow); ok && w.Own {
		return rowKey(Workspace, "")
	}
	return rowKey(r.Entity(), *idOf(r))
}

// versionOf returns where the row with that key stands.
func (tx *Tx) versionOf(key []byte) (version, bool) { return decodeVersion(tx.rows.Get(key)) }

// event returns the history event with that id.
func (tx *Tx) event(id int64) (event.Event, bool, error) {
	if e, ok := tx.pushed[id]; ok {
		return e, true, nil
	}
	return tx.e.Event(id)
}

// read fills r with the newest version of the row of that key.
func (tx *Tx) read(r Row, key []byte) (v version, ok bool, err error) {
	if v, ok = tx.versionOf(key); !ok {
		return v, false, nil
	}
	if v.row != nil {
		return v, true, parseCompact(r, string(v.row))
	}
	e, ok, err := tx.event(v.latest)
	if err != nil {
		return v, false, err
	}
	row := rowOf(e.Content)
	if !ok || row == "" {
		return v, false, corrupt(r.Entity(), string(key[1:]))
	}
	return v, true, ParseJSON(r, []byte(row))
}

// rowOf returns the row in the content of a history event, "" where there is none.
// A quote inside of a text is escaped, so the first of these is the member.
func rowOf(content string) string {
	if _, row, ok := strings.Cut(content, `,"row":`); ok && strings.HasSuffix(row, "}}") {
		return row[:len(row)-1]
	}
	return ""
}
