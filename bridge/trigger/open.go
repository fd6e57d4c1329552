package trigger

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	"thread/engine"
)

// openRecord is a message whose event waits for its consumer: enough to settle it
// after a restart.
type openRecord struct {
	ID         string            `json:"id"`
	Body       []byte            `json:"body"`
	Headers    map[string]string `json:"headers"`
	At         time.Time         `json:"at"`
	Key        string            `json:"key,omitempty"`
	Unnamed    bool              `json:"unnamed,omitempty"`
	Position   *Position         `json:"position,omitempty"`
	Ref        []byte            `json:"ref,omitempty"`
	KeyAt      []byte            `json:"key_at,omitempty"` // of its key record
	Keyed      bool              `json:"keyed,omitempty"`
	Deliveries int64             `json:"deliveries"`
	Row        int64             `json:"row,omitempty"`
	Begun      int64             `json:"begun"` // milliseconds since 1970
	TraceID    string            `json:"trace_id"`
}

// waitingEvent is an event that waits for its consumer.
type waitingEvent struct {
	openRecord
	event    int64
	d        *delivery // the latest delivery of its message
	handle   bool      // the broker can be told of it now
	final    bool      // its consumer is through with it
	attempts int64     // that were logged, and are in the ledger
	running  bool      // an attempt was under way at the latest look
	atStop   bool      // and one was at a stop
}

func (c *Config) openKey(event int64) []byte { return numbered(key(kindOpen, c.Name), event) }

func (c *Config) openRecord(i *item) *openRecord {
	m := i.m
	return &openRecord{ID: m.ID, Body: m.Body, Headers: m.Headers, At: m.At, Key: m.Key, Unnamed: m.Unnamed, Position: m.Position, Ref: m.Ref,
		KeyAt: i.at, Keyed: i.keyed || i.state == requeued, Deliveries: i.deliver, Row: i.row, Begun: i.begun.UnixMilli(), TraceID: i.env.TraceID}
}

func (o *openRecord) message() Message {
	return Message{ID: o.ID, Body: o.Body, Headers: o.Headers, At: o.At, Key: o.Key, Unnamed: o.Unnamed, Position: o.Position, Ref: o.Ref, Redelivered: true}
}

// track notes the event of a message, to be settled once its consumer is through.
func (t *Trigger) track(i *item) {
	w := &waitingEvent{openRecord: *t.cfg.openRecord(i), event: i.event, handle: true}
	m := *i.m // alone, without the others of its batch
	w.d = t.deliveries.add(delivery{m: &m, at: w.keyToSettle()})
	t.wait(w)
}

func (w *waitingEvent) keyToSettle() []byte {
	if w.Keyed {
		return w.KeyAt
	}
	return nil
}

func (t *Trigger) wait(w *waitingEvent) {
	if t.open[w.event] == nil {
		t.order = append(t.order, w.event)
	}
	t.open[w.event] = w
	if w.KeyAt != nil {
		t.openByKey[string(w.KeyAt)] = w
	}
	if w.Position != nil {
		t.openByKey[positionName(w.Position)] = w
	}
}

func positionName(p *Position) string { return "position\x00" + p.Key + "\x00" + string(p.At) }

func (t *Trigger) forget(w *waitingEvent) {
	delete(t.open, w.event)
	if w.KeyAt != nil && t.openByKey[string(w.KeyAt)] == w {
		delete(t.openByKey, string(w.KeyAt))
	}
	if w.Position != nil {
		delete(t.openByKey, positionName(w.Position))
	}
}

// attach gives an event that waits the new delivery of its message. It reports
// whether there is that event; the message is then not acknowledged yet.
func (t *Trigger) attach(i *item) bool {
	var w *waitingEvent
	if i.m.Position != nil {
		w = t.openByKey[positionName(i.m.Position)]
	}
	if w == nil && i.at != nil {
		w = t.openByKey[string(i.at)]
	}
	if w == nil {
		return false
	}
	if w.handle && !i.m.Redelivered {
		return false // a second message with the key of one that waits
	}
	m := *i.m
	w.d.m, w.handle = &m, true
	return true
}

// reload reads the events that waited when the process ended before.
func (t *Trigger) reload(ctx context.Context) error {
	prefix := key(kindOpen, t.cfg.Name)
	return t.th.View(ctx, func(tx *engine.Tx) error {
		r, err := tx.Records(table)
		if err != nil {
			return err
		}
		t.open, t.openByKey, t.order = map[int64]*waitingEvent{}, map[string]*waitingEvent{}, nil
		var list []*waitingEvent
		err = eachWith(r, prefix, func(k, v []byte) error {
			w := &waitingEvent{event: numberOf(k)}
			if err := json.Unmarshal(v, &w.openRecord); err != nil {
				return err
			}
			list = append(list, w)
			return nil
		})
		// In the order of positions: a revived event is older than its message.
		slices.SortStableFunc(list, func(a, b *waitingEvent) int {
			if a.Position == nil || b.Position == nil || a.Position.Key != b.Position.Key {
				return 0
			}
			return slices.Compare(a.Position.At, b.Position.At)
		})
		for _, w := range list {
			w.handle = w.Ref != nil
			if err := t.readAttempts(r, w); err != nil {
				return err
			}
			m := w.message()
			w.d = t.deliveries.add(delivery{m: &m, at: w.keyToSettle()})
			t.wait(w)
		}
		slices.Sort(t.order)
		return err
	})
}

// readAttempts reads from the ledger which attempts were logged before.
func (t *Trigger) readAttempts(r *engine.Records, w *waitingEvent) error {
	if w.Row == 0 {
		return nil
	}
	b, err := get(r, numbered(key(kindLedger, t.cfg.Name), w.Row))
	if b == nil || err != nil {
		return err
	}
	row, err := decodeRow(b)
	if n := len(row.Attempts); n > 0 {
		w.attempts = row.Attempts[n-1].Number
	}
	return err
}

// held returns the messages that the broker is to be reminded of.
func (t *Trigger) held() (ms []Message) {
	for _, id := range slices.Sorted(maps.Keys(t.open)) {
		if w := t.open[id]; w.handle && w.d.m.Handle != nil {
			ms = append(ms, *w.d.m)
		}
	}
	return ms
}

// lookForConsumer is called once in a tick. It asks why the oldest event waits.
func (t *Trigger) lookForConsumer(ctx context.Context) {
	if t.stuck == nil || t.cfg.Settle != SettleHandled {
		return
	}
	if len(t.open) == 0 {
		t.noteTrouble(troubleConsumer, nil)
		return
	}
	if t.stuckWait--; t.stuckWait > 0 {
		return
	}
	t.stuckWait = stuckEvery
	oldest := int64(0)
	for id, w := range t.open {
		if !w.final && (oldest == 0 || id < oldest) {
			oldest = id
		}
	}
	if oldest == 0 {
		t.noteTrouble(troubleConsumer, nil)
		return
	}
	why, err := t.stuck(ctx, t.cfg.Consumer, oldest)
	switch {
	case err != nil:
		t.noteTrouble(troubleConsumer, fmt.Errorf("consumer '%s': %w", t.cfg.Consumer, err))
	case why != "":
		t.noteTrouble(troubleConsumer, fmt.Errorf("event %d waits for consumer '%s': %s", oldest, t.cfg.Consumer, why))
	default:
		t.noteTrouble(troubleConsumer, nil)
	}
}
