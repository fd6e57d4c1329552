package history

import (
	"context"
	"encoding/json"
	"errors"
	"iter"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"thread/engine"
	"thread/event"
	"thread/internal/watch"
	"thread/lock"
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

// FollowHandlerRuns gives the runs of handlers that end from now on, as they end, each
// once, until ctx ends, whose cause is then the last element. An element whose ID is
// empty says that something else may have changed: a handler has started or printed.
func (h *History) FollowHandlerRuns(ctx context.Context, q HandlerQuery) iter.Seq2[RunRow, error] {
	return func(yield func(RunRow, error) bool) {
		err := h.followHandlerRuns(ctx, q, func(r RunRow) bool { return yield(r, nil) })
		if err != nil && !errors.Is(err, errEnough) {
			yield(RunRow{}, err)
		}
	}
}

var errEnough = errors.New("the reader has ended")

func (h *History) followHandlerRuns(ctx context.Context, q HandlerQuery, yield func(RunRow) bool) error {
	if _, err := h.thread(true); err != nil {
		return err
	}
	if h.of != nil {
		return h.followOnServer(ctx, q, yield)
	}
	logs := filepath.Join(h.parent, "logs")
	w, err := watch.NewDirs() // before the first look: nothing falls between
	if err != nil {
		return err
	}
	defer w.Close()
	for _, dir := range []string{logs, filepath.Join(logs, "handlers"), filepath.Join(logs, "runs")} {
		if err := lock.Mkdir(dir); err != nil {
			return err
		}
	}
	for _, dir := range []string{filepath.Join(logs, "handlers"), filepath.Join(logs, "runs"), h.dir} {
		if err := w.Add(dir); err != nil {
			return err
		}
	}
	notices := make(chan struct{}, 1)
	go func() {
		defer close(notices)
		for {
			if _, err := w.Next(); errors.Is(err, watch.ErrClosed) {
				return
			}
			select { // one look answers all of them
			case notices <- struct{}{}:
			default:
			}
		}
	}()
	after, err := h.Head(ctx)
	if err != nil {
		return err
	}
	for {
		if _, err := h.TakeRuns(ctx); err != nil {
			return err
		}
		if after, err = h.endedHandlers(ctx, q, after, yield); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case _, open := <-notices:
			if !open {
				return watch.ErrClosed
			}
		}
	}
}

// endedHandlers gives the runs of handlers that have ended since a history event, and then one
// without an id. It returns the newest history event that it read.
func (h *History) endedHandlers(ctx context.Context, q HandlerQuery, after int64, yield func(RunRow) bool) (int64, error) {
	for c, err := range h.Changes(ctx, after, "type = 'run'") {
		if err != nil {
			return after, err
		}
		after = c.ID
		var row RunRow
		if c.Op != OpUpsert || ParseJSON(&row, c.Row) != nil || !row.Ended() {
			continue
		}
		_, is := HandlerOf(&row)
		if !is || q.Consumer != "" && row.AgentName != q.Consumer || q.Failed && row.Status != Failed && row.Status != TimedOut {
			continue
		}
		if !yield(row) {
			return after, errEnough
		}
	}
	if !yield(RunRow{}) {
		return after, errEnough
	}
	return after, nil
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
