package outbox

import (
	"encoding/binary"
	"encoding/json"
	"slices"
	"time"

	"thread/engine"
	"thread/event"
)

// Status is what has become of a record.
type Status string

const (
	Pending   Status = "pending"
	Processed Status = "processed"
	Failed    Status = "failed"
)

// Record is a message and what has become of it (O-01).
type Record struct {
	ID           int64           `json:"id"` // of the event
	EventID      string          `json:"event_id"`
	EventType    string          `json:"event_type"`
	ThreadID     ID              `json:"thread_id"`
	CommentID    ID              `json:"comment_id"`
	TargetUserID ID              `json:"target_user_id"`
	ActorUserID  ID              `json:"actor_user_id"`
	Payload      json.RawMessage `json:"payload"` // the message; null when the event was pruned
	Status       Status          `json:"status"`
	RetryCount   int64           `json:"retry_count"`  // failures that were counted
	AvailableAt  string          `json:"available_at"` // when it may be handed on, or could first
	Error        *string         `json:"error"`        // of the latest failure, null when processed
	CreatedAt    string          `json:"created_at"`
	ProcessedAt  *string         `json:"processed_at"`
	DedupeKey    string          `json:"dedupe_key"`
	TraceID      string          `json:"trace_id"`
	RunID        *string         `json:"run_id"`   // of the latest receipt that has one
	Receipts     []StoredReceipt `json:"receipts"` // all of them, oldest first
}

// Find returns the number of the record with that event_id.
func Find(tx *engine.Tx, eventID string) (id int64, ok bool, err error) {
	ids, err := tx.Records(tableIDs)
	if err != nil || eventID == "" {
		return 0, false, err
	}
	v := ids.Get([]byte(eventID))
	if len(v) != 8 {
		return 0, false, nil
	}
	return int64(binary.BigEndian.Uint64(v)), true, nil
}

// Get returns the record of an event, and whether it is one.
func Get(tx *engine.Tx, id int64) (Record, bool, error) {
	rows, err := tx.Records(tableRows)
	if err != nil {
		return Record{}, false, err
	}
	r, ok, err := getRow(rows, id)
	if !ok || err != nil {
		return Record{}, false, err
	}
	rec, err := describe(tx, id, &r)
	return rec, err == nil, err
}

func describe(tx *engine.Tx, id int64, r *row) (Record, error) {
	rec := Record{ID: id, EventID: r.EventID, EventType: r.EventType, RetryCount: r.RetryCount, CreatedAt: r.CreatedAt,
		AvailableAt: r.CreatedAt, DedupeKey: r.DedupeKey, TraceID: r.TraceID}
	if r.AvailableAt != 0 {
		rec.AvailableAt = event.FormatTime(time.UnixMilli(r.AvailableAt))
	}
	if r.RunID != "" {
		rec.RunID = &r.RunID
	}
	var err error
	if rec.Receipts, err = receiptsOf(tx, id); err != nil {
		return rec, err
	}
	rec.Receipts = append(slices.Clip(r.Receipts), rec.Receipts...)
	if rec.Receipts == nil {
		rec.Receipts = []StoredReceipt{}
	}
	state, failures, err := tx.Standing(Consumer, id)
	if err != nil {
		return rec, err
	}
	switch state {
	case engine.Acked:
		rec.Status = Processed
		if r.ProcessedAt != "" {
			rec.ProcessedAt = &r.ProcessedAt
		}
	case engine.Dead:
		rec.Status = Failed
	default:
		rec.Status = Pending
	}
	if rec.Status != Processed && !failures.FirstAt.IsZero() {
		rec.RetryCount, rec.Error = failures.Attempts, &failures.LastError
		if !failures.NextAt.IsZero() {
			rec.AvailableAt = event.FormatTime(failures.NextAt)
		}
	}
	e, stored, err := tx.Event(id)
	if err != nil || !stored {
		return rec, err
	}
	rec.Payload = json.RawMessage(e.Content)
	m, err := ReadMessage(rec.Payload)
	if err != nil {
		return rec, err
	}
	rec.ThreadID, rec.CommentID, rec.TargetUserID, rec.ActorUserID = m.ThreadID, m.CommentID, m.TargetUserID, m.ActorUserID
	return rec, nil
}

// Query selects records.
type Query struct {
	Status Status // "": of any
	Type   string // "": of any
	After  int64  // with a higher number
	Limit  int    // at most; less than 1 is 100
}

// List returns the selected records in the order of their numbers.
func List(tx *engine.Tx, q Query) (list []Record, err error) {
	rows, err := tx.Records(tableRows)
	if err != nil {
		return nil, err
	}
	if q.Limit < 1 {
		q.Limit = 100
	}
	add := func(id int64, r *row) (more bool, err error) {
		if q.Type != "" && r.EventType != q.Type {
			return true, nil
		}
		rec, err := describe(tx, id, r)
		if err == nil && (q.Status == "" || q.Status == rec.Status) {
			list = append(list, rec)
		}
		return len(list) < q.Limit, err
	}
	if q.Status == Pending || q.Status == Failed {
		open, err := openIDs(tx)
		if err != nil {
			return nil, err
		}
		for _, id := range open {
			if id <= q.After {
				continue
			}
			r, ok, err := getRow(rows, id)
			if err != nil {
				return list, err
			}
			if !ok {
				continue
			}
			if more, err := add(id, &r); !more || err != nil {
				return list, err
			}
		}
		return list, nil
	}
	for rec, err := range rows.Ascend(rowKey(q.After+1), nil) {
		if err != nil {
			return list, err
		}
		var r row
		id := int64(binary.BigEndian.Uint64(rec.Key))
		if err := json.Unmarshal(rec.Value, &r); err != nil {
			return list, err
		}
		if more, err := add(id, &r); !more || err != nil {
			return list, err
		}
	}
	return list, nil
}

// openIDs returns the numbers of the records that are not processed, in order.
func openIDs(tx *engine.Tx) (ids []int64, err error) {
	for l, err := range tx.Letters(Consumer) {
		if err != nil {
			return nil, err
		}
		ids = append(ids, l.ID)
	}
	p, _, err := tx.Progress(Consumer)
	if err != nil {
		return nil, err
	}
	rows, err := tx.Records(tableRows)
	if err != nil {
		return nil, err
	}
	for rec, err := range rows.Ascend(rowKey(p.From()+1), nil) {
		if err != nil {
			return nil, err
		}
		ids = append(ids, int64(binary.BigEndian.Uint64(rec.Key)))
	}
	slices.Sort(ids)
	return slices.Compact(ids), nil
}

// Counts are numbers of records.
type Counts struct {
	Pending int64 `json:"pending"`
	Failed  int64 `json:"failed"`
}

// Stats is the result of [ReadStats] (O-12).
type Stats struct {
	Counts
	// OldestPending is created_at of the oldest pending record, null for none.
	OldestPending *string `json:"oldest_pending_at"`
	// OldestSeconds is its age.
	OldestSeconds *float64          `json:"oldest_pending_seconds"`
	Types         map[string]Counts `json:"types"`
}

// ReadStats counts the records that are not processed.
func ReadStats(tx *engine.Tx) (Stats, error) {
	s := Stats{Types: map[string]Counts{}}
	rows, err := tx.Records(tableRows)
	if err != nil {
		return s, err
	}
	open, err := openIDs(tx)
	if err != nil {
		return s, err
	}
	for _, id := range open {
		r, ok, err := getRow(rows, id)
		if err != nil {
			return s, err
		}
		if !ok {
			continue
		}
		state, _, err := tx.Standing(Consumer, id)
		if err != nil {
			return s, err
		}
		c := s.Types[r.EventType]
		if state == engine.Dead {
			c.Failed++
			s.Failed++
		} else {
			c.Pending++
			s.Pending++
			if s.OldestPending == nil { // in the order of ids
				created, _ := event.ParseTime(r.CreatedAt)
				age := max(0, tx.Now().Sub(time.UnixMilli(created)).Seconds())
				s.OldestPending, s.OldestSeconds = &r.CreatedAt, &age
			}
		}
		s.Types[r.EventType] = c
	}
	return s, nil
}

// Retry makes a failed record pending again, with its attempts counted from zero. It reports
// whether it was failed.
func Retry(tx *engine.Tx, id int64) (bool, error) { return tx.Retry(Consumer, id) }

// RetryFailed makes at most limit failed records pending again, and returns how many.
func RetryFailed(tx *engine.Tx, limit int) (int, error) {
	list, err := List(tx, Query{Status: Failed, Limit: limit})
	if err != nil {
		return 0, err
	}
	for i := range list {
		if _, err := Retry(tx, list[i].ID); err != nil {
			return 0, err
		}
	}
	return len(list), nil
}

// Due reports whether a record is pending and available.
func Due(tx *engine.Tx) (bool, error) {
	rows, err := tx.Records(tableRows)
	if err != nil {
		return false, err
	}
	open, err := openIDs(tx)
	if err != nil {
		return false, err
	}
	now := tx.Now()
	for _, id := range open {
		state, failures, err := tx.Standing(Consumer, id)
		if err != nil {
			return false, err
		}
		r, ok, err := getRow(rows, id)
		if err != nil {
			return false, err
		}
		if ok && (state == engine.Unread || state == engine.Waiting) && r.AvailableAt <= now.UnixMilli() && !failures.NextAt.After(now) {
			return true, nil
		}
	}
	return false, nil
}
