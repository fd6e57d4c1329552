package outbox

import (
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"thread/engine"
	"thread/event"
)

const (
	// Source is the source of the events that are outbox records.
	Source = "outbox"
	// Consumer is the consumer whose progress is the status of the records.
	Consumer = "outbox"
	// Handler is what a dispatch starts for the consumer. It is subscribed by the
	// first Insert.
	Handler = "thread outbox relay"

	subscribed = "source = 'outbox'"
)

// Inserted is the result of Insert.
type Inserted struct {
	EventID   string `json:"event_id"`  // the id of the first one, for a duplicate
	ID        int64  `json:"id"`        // of the event
	Duplicate bool   `json:"duplicate"` // nothing was stored
	TraceID   string `json:"trace_id"`
	DedupeKey string `json:"dedupe_key"`
}

// row is what is kept of a record next to its event, as JSON. It outlives the event.
type row struct {
	EventID     string          `json:"event_id"`
	EventType   string          `json:"event_type"`
	TraceID     string          `json:"trace_id"`
	DedupeKey   string          `json:"dedupe_key"`
	CreatedAt   string          `json:"created_at"`
	AvailableAt int64           `json:"available_at,omitempty"` // milliseconds; 0: at once
	RetryCount  int64           `json:"retry_count,omitempty"`
	ProcessedAt string          `json:"processed_at,omitempty"`
	Notified    bool            `json:"notified,omitempty"` // the notification was written
	RunID       string          `json:"run_id,omitempty"`
	Receipted   int64           `json:"receipt_count,omitempty"` // the number of the latest in tableReceipts
	Receipts    []StoredReceipt `json:"receipts,omitempty"`      // of versions without that table
}

func rowKey(id int64) []byte { return binary.BigEndian.AppendUint64(nil, uint64(id)) }

// Insert stores m in the transaction, or nothing when its event_id was ever stored
// or its dedupe key within the window by a message that has not failed. What m leaves open is made here: event_id,
// trace_id, occurred_at, dedupe_key. Handlers are not started: a relay that waits
// for the thread sees it, else the process that dispatches.
//
// The error wraps [event.ErrInvalid] for a message that is not valid.
func Insert(tx *engine.Tx, m Message) (Inserted, error) {
	rules, err := ReadRules(tx)
	if err != nil {
		return Inserted{}, err
	}
	if err := rules.Check(&m); err != nil {
		return Inserted{}, err
	}
	if m.AvailableAt.Year() > 9999 {
		return Inserted{}, invalidf("available_at is after the year 9999")
	}
	rows, err := tx.Records(tableRows)
	if err != nil {
		return Inserted{}, err
	}
	ids, err := tx.Records(tableIDs)
	if err != nil {
		return Inserted{}, err
	}
	if m.EventID == "" {
		m.EventID = newID("evt_")
	} else if v := ids.Get([]byte(m.EventID)); len(v) == 8 {
		return duplicateOf(tx, rows, int64(binary.BigEndian.Uint64(v)))
	}
	settings, err := ReadSettings(tx)
	if err != nil {
		return Inserted{}, err
	}
	now := tx.Now()
	complete(&m, rules, now)
	before := tx.Head()
	draft := event.Draft{Source: Source, Type: m.EventType, Content: string(m.json()),
		DedupeKey: "outbox:" + m.DedupeKey, DedupeWindow: settings.DedupeWindow}
	e, err := tx.Push(draft)
	if err != nil {
		return Inserted{}, err
	}
	if e.ID <= before {
		state, _, err := tx.Standing(Consumer, e.ID)
		if err != nil {
			return Inserted{}, err
		}
		if state != engine.Dead {
			return duplicateOf(tx, rows, e.ID)
		}
		// A message that has failed for good keeps no other one out.
		if err := tx.ForgetKey(draft.DedupeKey); err != nil {
			return Inserted{}, err
		}
		if e, err = tx.Push(draft); err != nil {
			return Inserted{}, err
		}
	}
	r := row{EventID: m.EventID, EventType: m.EventType, TraceID: m.TraceID, DedupeKey: m.DedupeKey, CreatedAt: e.CreatedAt}
	if created, _ := event.ParseTime(e.CreatedAt); m.AvailableAt.UnixMilli() > created {
		r.AvailableAt = m.AvailableAt.UnixMilli()
	}
	if err := ids.Put([]byte(m.EventID), rowKey(e.ID)); err != nil {
		return Inserted{}, err
	}
	if err := putRow(rows, e.ID, &r); err != nil {
		return Inserted{}, err
	}
	return Inserted{ID: e.ID, EventID: m.EventID, TraceID: m.TraceID, DedupeKey: m.DedupeKey}, subscribe(tx)
}

// complete makes what m leaves open.
func complete(m *Message, rules *Rules, now time.Time) {
	if m.OccurredAt == "" {
		m.OccurredAt = event.FormatTime(now)
	}
	if m.TraceID == "" {
		m.TraceID = newID("trc_")
	}
	m.ContentPreview = cutPreview(m.ContentPreview)
	if m.DedupeKey == "" {
		m.DedupeKey = rules.key(m)
	}
}

// subscribe subscribes the consumer if it is not.
func subscribe(tx *engine.Tx) error {
	err := tx.Subscribe(engine.Subscription{Consumer: Consumer, Handler: Handler, Filter: event.Text(subscribed)})
	if errors.Is(err, engine.ErrSubscriptionExists) {
		return nil
	}
	return err
}

// Subscribe makes the outbox ready before the first Insert: a relay can wait for it.
func Subscribe(tx *engine.Tx) error { return subscribe(tx) }

func duplicateOf(tx *engine.Tx, rows *engine.Records, id int64) (Inserted, error) {
	r, ok, err := getRow(rows, id)
	if err == nil && !ok {
		return prunedDuplicate(tx, id)
	}
	return Inserted{ID: id, EventID: r.EventID, TraceID: r.TraceID, DedupeKey: r.DedupeKey, Duplicate: true}, err
}

func getRow(rows *engine.Records, id int64) (r row, ok bool, err error) {
	v := rows.Get(rowKey(id))
	if v == nil {
		return r, false, nil
	}
	if err := json.Unmarshal(v, &r); err != nil {
		return r, false, fmt.Errorf("%w: record %d of the outbox: %w", engine.ErrCorrupt, id, err)
	}
	return r, true, nil
}

func putRow(rows *engine.Records, id int64, r *row) error {
	v, err := json.Marshal(r)
	if err != nil {
		return err
	}
	return rows.Put(rowKey(id), v)
}

// newID returns a new id of 128 random bits.
func newID(prefix string) string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // it never fails
	return prefix + hex.EncodeToString(b[:])
}
