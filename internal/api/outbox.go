package api

import (
	"fmt"
	"net/http"
	"time"

	"thread/engine"
	"thread/event"
	"thread/outbox"
)

// messages lists records of the outbox.
func messages(q *http.Request, t Thread) (any, error) {
	limit, err := limitOf(q)
	if err != nil {
		return nil, err
	}
	after, err := number(q, "after", 0)
	if err != nil {
		return nil, err
	}
	p := q.URL.Query()
	of := outbox.Query{Status: outbox.Status(p.Get("status")), Type: p.Get("type"), After: after, Limit: int(limit) + 1}
	switch of.Status {
	case "", outbox.Pending, outbox.Processed, outbox.Failed:
	default:
		return nil, badRequest("status is not pending, processed or failed")
	}
	list := struct {
		Messages []outbox.Record `json:"messages"`
		Complete bool            `json:"complete"`
	}{[]outbox.Record{}, true}
	err = t.Engine().View(q.Context(), func(tx *engine.Tx) error {
		some, err := outbox.List(tx, of)
		if len(some) > int(limit) {
			some, list.Complete = some[:limit], false
		}
		list.Messages = append(list.Messages[:0], some...)
		return err
	})
	return list, err
}

// recordOf returns the record with that event_id.
func recordOf(tx *engine.Tx, eventID string) (r outbox.Record, err error) {
	id, found, err := outbox.Find(tx, eventID)
	if err == nil && found {
		r, found, err = outbox.Get(tx, id)
	}
	if err == nil && !found {
		err = &Error{http.StatusNotFound, fmt.Sprintf("there is no message with the event_id %q", eventID)}
	}
	return r, err
}

func oneMessage(q *http.Request, t Thread) (data any, err error) {
	err = t.Engine().View(q.Context(), func(tx *engine.Tx) (err error) {
		data, err = recordOf(tx, q.PathValue("message"))
		return err
	})
	return data, err
}

func outboxStats(q *http.Request, t Thread) (data any, err error) {
	err = t.Engine().View(q.Context(), func(tx *engine.Tx) (err error) {
		data, err = outbox.ReadStats(tx)
		return err
	})
	return data, err
}

// retrying names failed messages.
type retrying struct {
	EventIDs []string `json:"event_ids"`
	All      bool     `json:"all"`
}

// changedAtOnce is how many letters are changed in one transaction.
const changedAtOnce = 500

// retryMessages makes failed messages pending again: all that are named or none.
func retryMessages(q *http.Request, t Thread, r *retrying) (any, error) {
	if r.All == (len(r.EventIDs) > 0) {
		return nil, badRequest("give event_ids, or all")
	}
	if len(r.EventIDs) > changedAtOnce {
		return nil, badRequest("there are more than %d event_ids", changedAtOnce)
	}
	var total struct {
		Retried int `json:"retried"`
	}
	for done := changedAtOnce; done == changedAtOnce; {
		err := t.Engine().Update(q.Context(), func(tx *engine.Tx) (err error) {
			if r.All {
				done, err = outbox.RetryFailed(tx, changedAtOnce)
				return err
			}
			done = 0
			return retryNamed(tx, r.EventIDs)
		})
		if err != nil {
			return nil, err
		}
		total.Retried += done
	}
	total.Retried += len(r.EventIDs)
	t.Pushed()
	return total, nil
}

func retryNamed(tx *engine.Tx, eventIDs []string) error {
	for _, eventID := range eventIDs {
		rec, err := recordOf(tx, eventID)
		if err != nil {
			return err
		}
		failed, err := outbox.Retry(tx, rec.ID)
		if err != nil {
			return err
		}
		if !failed {
			return fmt.Errorf("the message %q is %s: %w", eventID, rec.Status, errNotFailed)
		}
	}
	return nil
}

// traced gives a message the trace context of its request.
func traced(m *outbox.Message, q *http.Request) {
	if text := q.Header.Get("Traceparent"); event.IsTraceparent(text) {
		m.Trace(text, "")
	}
}

// addMessage stores one message.
func addMessage(q *http.Request, t Thread) (any, error) {
	delay, err := wait("delay", q.URL.Query().Get("delay"), maxLease)
	if err != nil {
		return nil, err
	}
	text, err := object(q)
	if err != nil {
		return nil, err
	}
	m, err := outbox.ReadMessage(text)
	if err != nil {
		return nil, badRequest("%v", err)
	}
	traced(&m, q)
	if delay > 0 {
		m.AvailableAt = time.Now().Add(delay)
	}
	var in outbox.Inserted
	err = t.Engine().Update(q.Context(), func(tx *engine.Tx) (err error) {
		in, err = outbox.Insert(tx, m)
		return err
	})
	if err == nil && !in.Duplicate {
		t.Pushed()
	}
	return in, err
}

// pushEntries stores events and their messages, one on each line: all of them or nothing.
func (a *API) pushEntries(q *http.Request, t Thread) (any, error) {
	var entries []outbox.Entry
	var lines []int
	b := batch{from: q.Body, large: a.large, parse: func(n int, text []byte) (event.Draft, error) {
		e, err := outbox.ParseEntry(text)
		if err == nil && len(entries) == outbox.MaxEntries {
			err = badRequest("there are more than %d lines", outbox.MaxEntries)
		}
		if e.Message != nil {
			traced(e.Message, q)
		}
		entries, lines = append(entries, e), append(lines, n)
		return e.Draft, err
	}}
	if typeOf(q) != "application/x-ndjson" {
		return nil, &Error{http.StatusUnsupportedMediaType, "send an event on each line as application/x-ndjson"}
	}
	for _, err := range b.drafts() {
		if err != nil {
			return nil, err
		}
	}
	list := struct {
		Stored []outbox.Stored `json:"stored"`
	}{make([]outbox.Stored, len(entries))}
	err := t.Engine().Update(q.Context(), func(tx *engine.Tx) (err error) {
		for i := range entries {
			if list.Stored[i], err = entries[i].Store(tx); err != nil {
				return fmt.Errorf("line %d: %w", lines[i], err)
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	t.Pushed()
	return list, nil
}
