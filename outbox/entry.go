package outbox

import (
	"bytes"
	"encoding/json"

	"thread/engine"
	"thread/event"
)

// MaxEntries bounds the entries of one transaction.
const MaxEntries = 10_000

// Entry is an event, with a message that is stored in the same transaction or nil.
type Entry struct {
	Draft   event.Draft
	Message *Message
}

// Stored is the result of [Entry.Store].
type Stored struct {
	ID        int64     `json:"id"`        // of the event
	Duplicate bool      `json:"duplicate"` // the event was stored before
	Outbox    *Inserted `json:"outbox"`    // nil where no message was to be inserted
}

// ParseEntry reads an event from a JSON object, as [event.ParseDraft], and the message in its
// member "outbox". [Entry.Store] checks the message by the rules of the thread.
func ParseEntry(line []byte) (e Entry, err error) {
	var members map[string]json.RawMessage
	if json.Unmarshal(line, &members) != nil || len(members["outbox"]) == 0 {
		e.Draft, err = event.ParseDraft(line) // it names the error
		return e, err
	}
	m, err := ReadMessage(members["outbox"])
	if err != nil {
		return e, err
	}
	e.Message = &m
	delete(members, "outbox")
	var rest bytes.Buffer
	enc := json.NewEncoder(&rest)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(members); err != nil {
		return e, err
	}
	e.Draft, err = event.ParseDraft(rest.Bytes())
	return e, err
}

// Store stores the event, and its message unless the event is a duplicate.
func (e *Entry) Store(tx *engine.Tx) (s Stored, err error) {
	before := tx.Head()
	stored, err := tx.Push(e.Draft)
	if err != nil {
		return s, err
	}
	s.ID, s.Duplicate = stored.ID, stored.ID <= before
	if e.Message == nil {
		return s, nil
	}
	if s.Duplicate { // the message was stored with the first one
		rules, err := ReadRules(tx)
		if err != nil {
			return s, err
		}
		return s, rules.Check(e.Message)
	}
	in, err := Insert(tx, *e.Message)
	s.Outbox = &in
	return s, err
}
