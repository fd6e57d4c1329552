package outbox

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"time"

	"thread/engine"
	"thread/event"
)

// pruneAtOnce is how many records, or notifications, one call of Prune looks at.
const pruneAtOnce = 1000

// Pruned counts what Prune has dropped.
type Pruned struct {
	Records       int64 `json:"records"`
	Notifications int64 `json:"notifications"`
}

// PruneCursor says how far Prune has come; the zero cursor is the beginning.
type PruneCursor struct {
	records, notifications int64 // the last that were looked at
	done                   bool  // with the records
}

// Prune drops records that were processed before that moment, with their receipts, and
// notifications that were read before it: the next [pruneAtOnce] behind the cursor. It
// returns where to continue, and whether there is more. What is pending, failed or unread
// stays, a record whose dedupe key may still count, and every event_id: a message that
// is sent again is a duplicate for ever. Events are dropped by [engine.Thread.Prune].
func Prune(tx *engine.Tx, before time.Time, from PruneCursor, dry bool) (p Pruned, next PruneCursor, more bool, err error) {
	if !from.done {
		p.Records, next, err = pruneRecords(tx, before, from, dry)
		return p, next, true, err
	}
	p.Notifications, next, more, err = pruneNotifications(tx, before, from, dry)
	return p, next, more, err
}

func pruneRecords(tx *engine.Tx, before time.Time, from PruneCursor, dry bool) (n int64, next PruneCursor, err error) {
	rows, err := tx.Records(tableRows)
	if err != nil {
		return 0, from, err
	}
	next, next.done = from, true
	var over []int64
	seen := 0
	for rec, err := range rows.Ascend(rowKey(from.records+1), nil) {
		if err != nil {
			return 0, from, err
		}
		if seen++; seen > pruneAtOnce {
			next.done = false
			break
		}
		next.records = int64(binary.BigEndian.Uint64(rec.Key))
		switch old, err := isOld(tx, rows, next.records, before); {
		case err != nil:
			return 0, from, err
		case old:
			over = append(over, next.records)
		}
	}
	for i := 0; i < len(over) && !dry; i++ {
		if err := rows.Delete(rowKey(over[i])); err != nil {
			return 0, from, err
		}
		if err := dropReceipts(tx, over[i]); err != nil {
			return 0, from, err
		}
	}
	return int64(len(over)), next, nil
}

func dropReceipts(tx *engine.Tx, id int64) error {
	table, err := tx.Records(tableReceipts)
	if err != nil {
		return err
	}
	var keys [][]byte
	for rec, err := range table.Ascend(receiptKey(id, 0), rowKey(id+1)) {
		if err != nil {
			return err
		}
		keys = append(keys, bytes.Clone(rec.Key))
	}
	for _, key := range keys {
		if err := table.Delete(key); err != nil {
			return err
		}
	}
	return nil
}

// isOld reports whether a record was processed before that moment, and so long ago that
// its dedupe key does not count any more, or is gone.
func isOld(tx *engine.Tx, rows *engine.Records, id int64, before time.Time) (bool, error) {
	r, ok, err := getRow(rows, id)
	if err != nil || !ok {
		return !ok, err
	}
	settings, err := ReadSettings(tx)
	if err != nil {
		return false, err
	}
	if r.ProcessedAt != "" && !earlier(r.ProcessedAt, before) || !earlier(r.CreatedAt, before) || !earlier(r.CreatedAt, tx.Now().Add(-settings.DedupeWindow)) {
		return false, nil
	}
	state, _, err := tx.Standing(Consumer, id)
	return state == engine.Acked, err
}

// pruneNotifications drops none whose record is there, or it could be written again.
func pruneNotifications(tx *engine.Tx, before time.Time, from PruneCursor, dry bool) (n int64, next PruneCursor, more bool, err error) {
	table, err := tx.Records(tableNotifications)
	if err != nil {
		return 0, from, false, err
	}
	rows, err := tx.Records(tableRows)
	if err != nil {
		return 0, from, false, err
	}
	next = from
	var over [][]byte
	seen := 0
	for rec, err := range table.Ascend(userKey(from.notifications+1), []byte{'i' + 1}) {
		if err != nil {
			return 0, from, false, err
		}
		if seen++; seen > pruneAtOnce {
			more = true
			break
		}
		id := int64(binary.BigEndian.Uint64(rec.Key[1:]))
		next.notifications = id
		key := notificationKey(string(rec.Value), id)
		var note Notification
		if err := json.Unmarshal(table.Get(key), &note); err != nil {
			return 0, from, false, fmt.Errorf("%w: notification %x: %w", engine.ErrCorrupt, key, err)
		}
		if note.ReadAt == nil || !earlier(*note.ReadAt, before) {
			continue
		}
		switch old, err := isOld(tx, rows, id, before); {
		case err != nil:
			return 0, from, false, err
		case old:
			over = append(over, userKey(id), key)
		}
	}
	for i := 0; i < len(over) && !dry; i++ {
		if err := table.Delete(over[i]); err != nil {
			return 0, from, false, err
		}
	}
	return int64(len(over) / 2), next, more, nil
}

// earlier reports whether the text is a time before that moment.
func earlier(text string, before time.Time) bool {
	ms, exact := event.ParseTime(text)
	return exact && ms < before.UnixMilli()
}

// pruned reports whether the event was a record that Prune has dropped: its event_id
// is still the event's. Progress that is moved back comes by it again.
func pruned(tx *engine.Tx, id int64, eventID string) (bool, error) {
	known, ok, err := Find(tx, eventID)
	return ok && known == id, err
}

// prunedDuplicate is what Insert returns for a duplicate of a record that Prune has
// dropped: what its event says, or its event_id alone.
func prunedDuplicate(tx *engine.Tx, id int64) (in Inserted, err error) {
	in = Inserted{ID: id, Duplicate: true}
	e, stored, err := tx.Event(id)
	if err != nil {
		return in, err
	}
	if m, err := ReadMessage([]byte(e.Content)); stored && err == nil {
		in.EventID, in.TraceID, in.DedupeKey = m.EventID, m.TraceID, m.DedupeKey
		return in, nil
	}
	ids, err := tx.Records(tableIDs)
	if err != nil {
		return in, err
	}
	for rec, err := range ids.Ascend(nil, nil) {
		if err != nil {
			return in, err
		}
		if len(rec.Value) == 8 && int64(binary.BigEndian.Uint64(rec.Value)) == id {
			in.EventID = string(rec.Key)
			return in, nil
		}
	}
	return in, fmt.Errorf("%w: event %d has no record in the outbox", engine.ErrCorrupt, id)
}
