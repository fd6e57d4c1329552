package compat

import (
	"context"
	"fmt"
	"strconv"

	"thread/event"
	"thread/internal/store"
)

// cell is a value of a column with its storage class (sqlite.org/datatype3.html).
type cell struct {
	class   string // text, null, integer, real, blob
	text    string
	integer int64
}

// Scan implements sql.Scanner. What it is given is only valid during the call.
func (c *cell) Scan(v any) error {
	*c = cell{class: "null"}
	switch v := v.(type) {
	case nil:
	case string:
		c.class, c.text = "text", v
	case int64:
		c.class, c.integer = "integer", v
	case float64:
		c.class = "real"
	case []byte:
		c.class = "blob"
	default:
		return fmt.Errorf("SQLite returned a %T", v)
	}
	return nil
}

// requireClass reports a fault unless the value has a class.
func (r *Report) requireClass(table, row, name string, c *cell, class string) bool {
	if c.class == class {
		return true
	}
	r.fault(table, row, "%s is %s, not %s", name, c.class, class)
	return false
}

// readEvents sends the events in id order, and reports those that have no place
// in a thread. The plus signs keep the driver from turning a text in a column
// that is declared as a date into a time.
func readEvents(ctx context.Context, q querier, r *Report, to chan<- []event.Event) error {
	rows, err := q.QueryContext(ctx, `SELECT id, +created_at, +source, +type, +subtype, +content FROM events ORDER BY id`)
	if err != nil {
		return err
	}
	defer rows.Close()
	var batch []event.Event
	size := 0
	var id int64
	var at, source, typ, subtype, content cell
	for rows.Next() {
		if err := rows.Scan(&id, &at, &source, &typ, &subtype, &content); err != nil {
			return err
		}
		row := strconv.FormatInt(id, 10)
		before := r.FaultCount
		if id < 1 {
			r.fault("events", row, "ids begin at 1")
		}
		r.requireClass("events", row, "created_at", &at, "text")
		r.requireClass("events", row, "source", &source, "text")
		r.requireClass("events", row, "type", &typ, "text")
		if subtype.class != "null" {
			r.requireClass("events", row, "subtype", &subtype, "text")
		}
		r.requireClass("events", row, "content", &content, "text")
		if r.FaultCount > before {
			continue
		}
		e := event.Event{ID: id, CreatedAt: at.text, Source: source.text, Type: typ.text, Content: content.text}
		if subtype.class == "text" {
			e.Subtype = event.Text(subtype.text)
		}
		batch = append(batch, e)
		if size += len(e.Content) + 256; len(batch) == batchEvents || size > batchBytes {
			if err := send(ctx, to, batch); err != nil {
				return err
			}
			batch, size = make([]event.Event, 0, batchEvents), 0
		}
	}
	if err := rows.Err(); err != nil {
		return err
	}
	return send(ctx, to, batch)
}

type subscription struct {
	store.Subscription
	rowid int64
}

func checkConsumer(r *Report, table string, c *cell) bool {
	if !r.requireClass(table, strconv.Quote(c.text), "consumer_id", c, "text") {
		return false
	}
	if c.text == "" || len(c.text) > event.MaxNameBytes {
		r.fault(table, strconv.Quote(c.text[:min(len(c.text), 80)]), "consumer_id is %d bytes long, it must be 1 to %d", len(c.text), event.MaxNameBytes)
		return false
	}
	return true
}

// readSubscriptions returns them in the order they were made.
func readSubscriptions(ctx context.Context, q querier, r *Report) (list []subscription, err error) {
	rows, err := q.QueryContext(ctx, `SELECT rowid, +consumer_id, +handler_cmd, +filter FROM subscriptions ORDER BY rowid`)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var s subscription
		var consumer, handler, filter cell
		if err := rows.Scan(&s.rowid, &consumer, &handler, &filter); err != nil {
			return nil, err
		}
		if !checkConsumer(r, "subscriptions", &consumer) {
			continue
		}
		row := strconv.Quote(consumer.text)
		ok := r.requireClass("subscriptions", row, "handler_cmd", &handler, "text")
		if filter.class != "null" {
			ok = r.requireClass("subscriptions", row, "filter", &filter, "text") && ok
			s.Filter = event.Text(filter.text)
		}
		s.Consumer, s.Handler = consumer.text, handler.text
		if ok {
			list = append(list, s)
		}
	}
	return list, rows.Err()
}

type progress struct {
	store.ConsumerProgress
	rowid int64
}

func readProgress(ctx context.Context, q querier, r *Report) (list []progress, err error) {
	rows, err := q.QueryContext(ctx, `SELECT rowid, +consumer_id, last_acked_id, +updated_at FROM consumer_progress ORDER BY rowid`)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var p progress
		var consumer, acked, updated cell
		if err := rows.Scan(&p.rowid, &consumer, &acked, &updated); err != nil {
			return nil, err
		}
		if !checkConsumer(r, "consumer_progress", &consumer) {
			continue
		}
		row := strconv.Quote(consumer.text)
		ok := r.requireClass("consumer_progress", row, "last_acked_id", &acked, "integer")
		ok = r.requireClass("consumer_progress", row, "updated_at", &updated, "text") && ok
		p.Consumer, p.LastAcked, p.UpdatedAt = consumer.text, acked.integer, updated.text
		if ok {
			list = append(list, p)
		}
	}
	return list, rows.Err()
}

// readCounter returns the AUTOINCREMENT counter, 0 when there is none yet.
func readCounter(ctx context.Context, q querier, r *Report) (int64, error) {
	rows, err := q.QueryContext(ctx, `SELECT name, seq FROM sqlite_sequence`)
	if err != nil {
		return 0, err
	}
	defer rows.Close()
	var highest int64
	for rows.Next() {
		var name, seq cell
		if err := rows.Scan(&name, &seq); err != nil {
			return 0, err
		}
		if name.text != "events" {
			continue
		}
		if r.requireClass("sqlite_sequence", "events", "seq", &seq, "integer") {
			highest = max(highest, seq.integer)
		}
	}
	return highest, rows.Err()
}
