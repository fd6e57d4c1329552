package trigger

import (
	"context"
	"encoding/binary"
	"fmt"
	"sync"
)

// logQueue is a stream that is read by position, as a partition of Kafka is. It
// outlives connections, and notes what a source with positions must not see.
type logQueue struct {
	mu        sync.Mutex
	log       []Message
	committed int64
	next      int64
	dead      []MockDead
	faults    []string
	changed   chan struct{}
	up        bool
}

func newLogQueue() *logQueue { return &logQueue{changed: make(chan struct{})} }

func (q *logQueue) add(m Message) {
	q.mu.Lock()
	defer q.mu.Unlock()
	offset := int64(len(q.log))
	m.ID = Header(m.Headers, HeaderMessageID)
	if m.ID == "" {
		m.ID, m.Positional = fmt.Sprintf("q:0:%d", offset), true
	}
	m.Position = &Position{Key: "cluster\x00topic\x000", At: binary.BigEndian.AppendUint64(nil, uint64(offset+1))}
	m.Ref = binary.BigEndian.AppendUint64(nil, uint64(offset))
	q.log = append(q.log, m)
	q.change()
}

func (q *logQueue) change() {
	close(q.changed)
	q.changed = make(chan struct{})
}

func (q *logQueue) Connect(_ context.Context, s State) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.next, q.up = q.committed, true
	if at := s.Get("cluster\x00topic\x000"); at != nil {
		q.next = max(q.next, int64(binary.BigEndian.Uint64(at)))
	}
	return nil
}

func (q *logQueue) Consume(ctx context.Context, most int) ([]Message, error) {
	for {
		q.mu.Lock()
		if q.next < int64(len(q.log)) {
			ms := q.log[q.next:min(int64(len(q.log)), q.next+int64(most))]
			q.next += int64(len(ms))
			q.mu.Unlock()
			return append([]Message(nil), ms...), nil
		}
		changed := q.changed
		q.mu.Unlock()
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-changed:
		}
	}
}

func (q *logQueue) Ack(_ context.Context, ms []Message) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, m := range ms {
		offset := int64(binary.BigEndian.Uint64(m.Ref))
		if offset < q.committed {
			q.faults = append(q.faults, fmt.Sprintf("offset %d acknowledged behind %d", offset, q.committed))
		}
		q.committed = offset + 1
	}
	q.change()
	return nil
}

func (q *logQueue) Nack(_ context.Context, m Message, requeue bool) error {
	if requeue {
		h := map[string]string{}
		for k, v := range m.Headers {
			h[k] = v
		}
		h[HeaderMessageID] = m.ID
		q.add(Message{Body: m.Body, Headers: h})
	}
	return nil
}

func (q *logQueue) SendToDLQ(_ context.Context, m Message, r Reason) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.dead = append(q.dead, MockDead{m, r})
	return nil
}

func (q *logQueue) Health(context.Context) Health { return Health{OK: q.up} }
func (q *logQueue) Lag(context.Context) (int64, error) {
	return 0, ErrNotKnown
}
func (q *logQueue) Capabilities() Caps {
	return Caps{Promise: ExactlyOnce, Positions: true, Requeue: true, DLQ: true}
}
func (q *logQueue) Close() error { return nil }

func (q *logQueue) state() (committed, length int64, dead int, faults []string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.committed, int64(len(q.log)), len(q.dead), q.faults
}
