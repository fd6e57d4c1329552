package history

import (
	"encoding/json"
	"strconv"
	"strings"

	"thread/event"
)

// The kinds of change.
const (
	OpUpsert  = "upsert"
	OpDelete  = "delete"
	OpReplace = "replace" // the row again, unchanged, because the older event goes
)

// Change is one history event.
type Change struct {
	ID       int64  // rises; the cursor of a mirror
	At       string // event.TimeLayout
	Session  string // "" for a row that belongs to none
	Entity   Entity
	EntityID string
	Op       string          // OpUpsert, OpDelete or OpReplace
	Row      json.RawMessage // all columns that are not null; nil for OpDelete

	first int64
}

// ParseChange reads a history event. It returns [ErrInvalid] for any other event.
func ParseChange(e *event.Event) (Change, error) {
	c := Change{ID: e.ID, At: e.CreatedAt, Entity: Entity(e.Type)}
	c.Session, _ = strings.CutPrefix(e.Source, "session:")
	if c.Session == e.Source {
		c.Session = ""
	}
	row := rowOf(e.Content)
	head := e.Content
	if row != "" {
		c.Row = json.RawMessage(row)
		head = e.Content[:len(e.Content)-len(`,"row":}`)-len(row)] + "}"
	}
	var in struct {
		Op    string `json:"op"`
		ID    string `json:"id"`
		First int64  `json:"first"`
	}
	if err := json.Unmarshal([]byte(head), &in); err != nil || NewRow(c.Entity) == nil || (row == "") != (in.Op == OpDelete) {
		return c, invalidf("event %d is not a history event", e.ID)
	}
	c.Op, c.EntityID, c.first = in.Op, in.ID, in.First
	return c, nil
}

// AppendJSON appends the history event as a JSON object.
func (c *Change) AppendJSON(b []byte) []byte {
	b = strconv.AppendInt(append(b, `{"id":`...), c.ID, 10)
	b = event.AppendString(append(b, `,"occurred_at":`...), c.At)
	b = append(b, `,"session_id":`...)
	if c.Session == "" {
		b = append(b, "null"...)
	} else {
		b = event.AppendString(b, c.Session)
	}
	b = event.AppendString(append(b, `,"entity_type":`...), string(c.Entity))
	b = event.AppendString(append(b, `,"entity_id":`...), c.EntityID)
	b = event.AppendString(append(b, `,"op":`...), c.Op)
	b = append(b, `,"payload":`...)
	if c.Row == nil {
		return append(b, "null}"...)
	}
	return append(append(b, c.Row...), '}')
}
