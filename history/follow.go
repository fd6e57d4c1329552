package history

import (
	"context"
	"encoding/json"
	"iter"
	"strconv"
	"strings"
	"time"

	"thread/engine"
	"thread/event"
)

// Changes gives the history events with ids above after that match the filter, in
// order; a filter is a SQL condition on the event, as "type = 'run'", and "" all.
func (h *History) Changes(ctx context.Context, after int64, filter string) iter.Seq2[Change, error] {
	return func(yield func(Change, error) bool) {
		t, err := h.thread(false)
		if err != nil {
			yield(Change{}, err)
			return
		}
		if t == nil {
			return
		}
		for e, err := range t.Events(ctx, engine.Query{After: after, Filter: filter}) {
			if !give(&e, err, yield) {
				return
			}
		}
	}
}

func give(e *event.Event, err error, yield func(Change, error) bool) bool {
	var c Change
	if err != nil {
		return yield(c, err) && err == nil
	}
	c, err = ParseChange(e)
	return yield(c, err) && err == nil
}

// Follow is [History.Changes] that continues with what is written later, until ctx
// ends, whose cause is then the last element. Nothing is left out between the two,
// and nothing comes twice.
func (h *History) Follow(ctx context.Context, after int64, filter string) iter.Seq2[Change, error] {
	return func(yield func(Change, error) bool) {
		t, err := h.thread(true)
		if err != nil {
			yield(Change{}, err)
			return
		}
		w, err := t.Watch() // before the first look: nothing falls between
		if err != nil {
			yield(Change{}, err)
			return
		}
		defer w.Close()
		for {
			for e, err := range t.Events(ctx, engine.Query{After: after, Filter: filter}) {
				if !give(&e, err, yield) {
					return
				}
				after = e.ID
			}
			if err := w.Wait(ctx, time.Time{}); err != nil {
				yield(Change{}, err)
				return
			}
		}
	}
}

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

// rowOf returns the row in the content of a history event, "" where there is none.
// A quote inside of a text is escaped, so the first of these is the member.
func rowOf(content string) string {
	if _, row, ok := strings.Cut(content, `,"row":`); ok && strings.HasSuffix(row, "}}") {
		return row[:len(row)-1]
	}
	return ""
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
