package trigger

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
)

// Mock is a queue in memory: it runs everything without a broker, and shows what
// became of each message. It outlives connections as a broker would: after Close
// and Connect, what was not acknowledged is redelivered.
type Mock struct {
	mu        sync.Mutex
	connected bool
	waiting   []Message
	out       []Message // given out and not settled
	sent      int
	changed   chan struct{} // closed at every change

	acked, nacked []string // ids
	dead          []MockDead
	failNext      map[string]error // by method
	dlqRefuses    error            // what the dead letter queue answers to every message
	dlqRefused    int
	dlqPoison     string // the id of a message that it never takes
	dlqAtMost     int    // bytes of body and headers that the dead letter queue takes, 0: any
}

// MockDead is a message in the dead letter queue of a Mock.
type MockDead struct {
	Message Message
	Reason  Reason
}

// MockCaps are the capabilities of a Mock.
var MockCaps = Caps{Promise: ExactlyOnce, Condition: "with message ids", Requeue: true, DLQ: true}

// NewMock returns an empty queue.
func NewMock() *Mock {
	return &Mock{changed: make(chan struct{}), failNext: map[string]error{}}
}

var errMockClosed = errors.New("the mock queue is not connected")

func (m *Mock) change() {
	close(m.changed)
	m.changed = make(chan struct{})
}

// Enqueue puts messages at the end of the queue. One without an ID gets one.
func (m *Mock) Enqueue(ms ...Message) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, msg := range ms {
		m.sent++
		if msg.ID == "" {
			msg.ID = fmt.Sprintf("mock-%d", m.sent)
		}
		m.waiting = append(m.waiting, msg)
	}
	m.change()
}

// Send implements Sender.
func (m *Mock) Send(_ context.Context, msg Message) (string, error) {
	if msg.ID == "" {
		m.mu.Lock()
		msg.ID = fmt.Sprintf("mock-%d", m.sent+1)
		m.mu.Unlock()
	}
	m.Enqueue(msg)
	return msg.ID, nil
}

// Connect implements Source. What was in flight is redelivered.
func (m *Mock) Connect(context.Context, State) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.failure("connect"); err != nil {
		return err
	}
	m.connected = true
	for i := range m.out {
		m.out[i].Redelivered = true
	}
	m.waiting = append(m.out, m.waiting...)
	m.out = nil
	return nil
}

// FailNext makes the next call of that method (connect, ack, nack, dlq) fail.
func (m *Mock) FailNext(method string, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.failNext[method] = err
}

func (m *Mock) failure(method string) error {
	err := m.failNext[method]
	delete(m.failNext, method)
	return err
}

// Consume implements Source.
func (m *Mock) Consume(ctx context.Context, most int) ([]Message, error) {
	for {
		m.mu.Lock()
		if !m.connected {
			m.mu.Unlock()
			return nil, errMockClosed
		}
		if n := min(most, len(m.waiting)); n > 0 {
			ms := slices.Clone(m.waiting[:n])
			m.waiting = slices.Delete(m.waiting, 0, n)
			m.out = append(m.out, ms...)
			m.mu.Unlock()
			return ms, nil
		}
		changed := m.changed
		m.mu.Unlock()
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-changed:
		}
	}
}

// take removes a message from those that are in flight.
func (m *Mock) take(id string) bool {
	i := slices.IndexFunc(m.out, func(o Message) bool { return o.ID == id })
	if i >= 0 {
		m.out = slices.Delete(m.out, i, i+1)
	}
	return i >= 0
}

// Ack implements Source.
func (m *Mock) Ack(_ context.Context, ms []Message) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.failure("ack"); err != nil {
		return err
	}
	for i := range ms {
		m.take(ms[i].ID)
		m.acked = append(m.acked, ms[i].ID)
	}
	m.change()
	return nil
}

// Nack implements Source.
func (m *Mock) Nack(_ context.Context, msg Message, requeue bool) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.failure("nack"); err != nil {
		return err
	}
	m.nacked = append(m.nacked, fmt.Sprintf("%s %t", msg.ID, requeue))
	if m.take(msg.ID) && requeue {
		msg.Redelivered = true
		m.waiting = append(m.waiting, msg)
	}
	m.change()
	return nil
}

// SendToDLQ implements Source.
func (m *Mock) SendToDLQ(_ context.Context, msg Message, r Reason) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.failure("dlq"); err != nil {
		return err
	}
	if m.dlqRefuses != nil {
		m.dlqRefused++
		m.change()
		return m.dlqRefuses
	}
	if msg.ID == m.dlqPoison && msg.ID != "" {
		return errors.New("this message is never taken")
	}
	size := len(msg.Body)
	for name, v := range msg.Headers {
		size += len(name) + len(v)
	}
	if m.dlqAtMost > 0 && size > m.dlqAtMost {
		return fmt.Errorf("%w: %d bytes", ErrTooLarge, size)
	}
	m.dead = append(m.dead, MockDead{msg, r})
	m.change()
	return nil
}

// Health implements Source.
func (m *Mock) Health(context.Context) Health {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.connected {
		return Health{Detail: errMockClosed.Error()}
	}
	return Health{OK: true}
}

// Lag implements Source.
func (m *Mock) Lag(context.Context) (int64, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return int64(len(m.waiting) + len(m.out)), nil
}

// Capabilities implements Source.
func (m *Mock) Capabilities() Caps { return MockCaps }

// Close implements Source.
func (m *Mock) Close() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.connected = false
	m.change()
	return nil
}

// Acked returns the ids that were acknowledged, in order.
func (m *Mock) Acked() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.acked)
}

// Nacked returns "ID true" or "ID false", with requeue, in order.
func (m *Mock) Nacked() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.nacked)
}

// Dead returns the dead letter queue.
func (m *Mock) Dead() []MockDead {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.dead)
}

// Idle reports whether nothing waits and nothing is in flight.
func (m *Mock) Idle() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.waiting)+len(m.out) == 0
}

// Changed returns a channel that is closed at the next change of the queue.
func (m *Mock) Changed() <-chan struct{} {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.changed
}

var (
	_ Source = (*Mock)(nil)
	_ Sender = (*Mock)(nil)
)
