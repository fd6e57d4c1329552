package redis

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/gomodule/redigo/redis"

	"thread/bridge/adapter"
	"thread/bridge/trigger"
)

// sink adds events to a separate stream, as entries whose ids are "EVENT-0". Redis
// refuses an id that is not above the last one, so none is there twice.
type sink struct {
	s   *adapter.Settings
	cmd *client

	mu    sync.Mutex
	ready bool
	last  int64 // the last event that was there when it connected
}

func newSink(s *adapter.Settings) (*sink, error) {
	if _, err := s.TLS(); err != nil {
		return nil, err
	}
	return &sink{s: s, cmd: &client{s: s}}, nil
}

// Connect implements trigger.Sink: it reads the last entry back.
func (k *sink) Connect(ctx context.Context) (int64, error) {
	k.cmd.close()
	last, err := k.find(ctx)
	k.mu.Lock()
	defer k.mu.Unlock()
	k.ready, k.last = err == nil, last
	return last, err
}

func (k *sink) find(ctx context.Context) (int64, error) {
	info, err := infoOf(ctx, k.cmd, k.s.Queue)
	if refused(err, "ERR no such key") {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("stream %s: %w", k.s.Queue, err)
	}
	list, err := entriesOf(k.cmd.do(ctx, "XREVRANGE", k.s.Queue, "+", "-", "COUNT", 1))
	if err != nil || len(list) == 0 || k.s.Instance == "" {
		return 0, err // nothing is there to tell whose it was
	}
	if !k.ours(&list[0]) || info.last.seq != 0 {
		return 0, fmt.Errorf("stream %s has entries of others, the last one %s: a publisher needs a stream that only it writes", k.s.Queue, info.last)
	}
	return int64(info.last.ms), nil
}

// ours reports whether an entry is one that this thread has published.
func (k *sink) ours(e *entry) bool {
	return e.id.seq == 0 && trigger.Header(e.content(k.s.Text("body_field")).Headers, trigger.HeaderMessageID) ==
		fmt.Sprintf("%s:%d", strings.TrimPrefix(k.s.Instance, "thread-"), e.id.ms)
}

// Publish implements trigger.Sink. The entries are added together or not at all: one
// that were left out could not be added later.
func (k *sink) Publish(ctx context.Context, ms []trigger.Outgoing) error {
	var cmds []command
	for i := range ms {
		c := command{"XADD", k.s.Queue}
		if n := k.s.Int("max_length"); n > 0 {
			c = append(c, "MAXLEN", "~", n)
		}
		c = append(c, entryID{ms: uint64(ms[i].Event)}.String())
		cmds = append(cmds, append(c, fieldsOf(k.s.Text("body_field"), ms[i].Body, ms[i].Headers)...))
	}
	answers, err := k.cmd.all(ctx, cmds)
	if err != nil {
		return fmt.Errorf("stream %s: %w", k.s.Queue, err)
	}
	for i, a := range answers {
		if refusal, ok := a.(redis.Error); ok {
			if err := k.there(ctx, &ms[i], refusal); err != nil {
				return fmt.Errorf("stream %s, event %d: %w", k.s.Queue, ms[i].Event, err)
			}
		}
	}
	return nil
}

// there returns nil when an event was refused since it is there.
func (k *sink) there(ctx context.Context, m *trigger.Outgoing, refusal redis.Error) error {
	if !strings.Contains(string(refusal), "equal or smaller") {
		return refusal
	}
	id := entryID{ms: uint64(m.Event)}.String()
	list, err := entriesOf(k.cmd.do(ctx, "XRANGE", k.s.Queue, id, id))
	if err != nil {
		return err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(list) == 1 && k.ours(&list[0]) || len(list) == 0 && m.Event <= k.last {
		return nil
	}
	return errors.Join(refusal, errors.New("the stream has entries of others: a publisher needs a stream that only it writes"))
}

// Send implements trigger.Sender: into the stream of a trigger.
func (k *sink) Send(ctx context.Context, m trigger.Message) (string, error) {
	_, err := k.cmd.do(ctx, "XADD", append([]any{k.s.Queue, "*"}, fieldsOf(k.s.Text("body_field"), m.Body, m.Headers)...)...)
	return m.ID, err
}

// Health implements trigger.Sink.
func (k *sink) Health(ctx context.Context) trigger.Health {
	k.mu.Lock()
	ready := k.ready
	k.mu.Unlock()
	if !ready {
		return trigger.Health{Detail: errNotConnected.Error()}
	}
	if _, err := k.cmd.do(ctx, "PING"); err != nil {
		return trigger.Health{Detail: err.Error()}
	}
	return trigger.Health{OK: true}
}

// Capabilities implements trigger.Sink.
func (k *sink) Capabilities() trigger.Caps { return outCaps }

// Close implements trigger.Sink.
func (k *sink) Close() error {
	k.cmd.close()
	return nil
}
