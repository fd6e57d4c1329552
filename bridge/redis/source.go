package redis

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/gomodule/redigo/redis"

	"thread/bridge/adapter"
	"thread/bridge/trigger"
)

// source reads a stream as a consumer of a group. In a separate group entries come
// in the order of their ids, which are positions in the thread. In a shared one
// entries are known by keys.
type source struct {
	s      *adapter.Settings
	shared bool
	cmd    *client

	mu         sync.Mutex
	state      trigger.State
	reader     redis.Conn // waits in XREADGROUP; nil: to be made
	joined     bool
	closed     bool
	wrong      error
	generation string
	last       entryID // behind which this process has read
	pending    bool    // what our consumer was given before comes first
	cursor     string  // of XAUTOCLAIM
	claimAt    time.Time
	held       map[string]bool // of a shared group: ids that the trigger has
	owed       []string        // acknowledgements of this generation that have failed
}

func newSource(s *adapter.Settings) (*source, error) {
	if _, err := s.TLS(); err != nil {
		return nil, err
	}
	return &source{s: s, shared: s.Bool("shared"), cmd: &client{s: s}, state: trigger.NoState, cursor: "0-0"}, nil
}

func (k *source) stored() trigger.State {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.state
}

func (k *source) consumer() string {
	k.mu.Lock()
	defer k.mu.Unlock()
	return consumerPrefix + k.generation
}

func (k *source) warn(text string, args ...any) {
	if k.s.Log != nil {
		k.s.Log.Warn(text, args...)
	}
}

// Connect implements trigger.Source.
func (k *source) Connect(ctx context.Context, state trigger.State) error {
	k.mu.Lock()
	k.state, k.closed, k.generation, k.last, k.owed, k.held = state, false, "", entryID{}, nil, map[string]bool{}
	k.mu.Unlock()
	_, err := k.open(ctx)
	return err
}

// open returns the connection that reads; when there is none it makes one, and joins
// the group.
func (k *source) open(ctx context.Context) (redis.Conn, error) {
	k.mu.Lock()
	reader, closed := k.reader, k.closed
	k.mu.Unlock()
	if closed {
		return nil, errNotConnected
	}
	if reader != nil {
		return reader, nil
	}
	reader, err := dial(ctx, k.s)
	if err == nil {
		if err = k.join(ctx); err != nil {
			_ = reader.Close() // nothing was sent
		}
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.joined, k.wrong = err == nil, err
	if err != nil {
		return nil, err
	}
	if k.closed {
		_ = reader.Close() // nothing was sent
		return nil, errNotConnected
	}
	k.reader = reader
	return reader, nil
}

// drop gives up a connection. What it was given and did not bring is pending.
func (k *source) drop(reader redis.Conn, err error) {
	_ = reader.Close() // it has failed, or no caller waits for it
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.reader == reader {
		k.reader = nil
	}
	if err != nil {
		k.joined, k.wrong = false, err
	}
}

// Consume implements trigger.Source.
func (k *source) Consume(ctx context.Context, most int) ([]trigger.Message, error) {
	for {
		reader, err := k.open(ctx)
		if err != nil {
			if ctx.Err() != nil {
				return nil, context.Cause(ctx)
			}
			return nil, err
		}
		unwatch := context.AfterFunc(ctx, func() { _ = reader.Close() }) // it ends the waiting
		ms, err := k.fetch(reader, most)
		if !unwatch() {
			k.drop(reader, nil)
			if len(ms) == 0 {
				return nil, context.Cause(ctx)
			}
		} else if err != nil {
			k.drop(reader, err)
			return nil, err
		}
		if len(ms) > 0 {
			return ms, nil
		}
	}
}

// wait is how long one request waits at the server: in a shared group no longer than
// what is to be taken over may wait.
const (
	wait       = 20 * time.Second
	waitShared = time.Second
)

// fetch asks once.
func (k *source) fetch(reader redis.Conn, most int) ([]trigger.Message, error) {
	k.mu.Lock()
	last, pending, claim := k.last, k.pending, k.shared && !k.dry() && !time.Now().Before(k.claimAt)
	k.mu.Unlock()
	group := []any{"GROUP", k.s.Group, k.consumer(), "COUNT", most}
	ask := func(cmd string, args ...any) ([]entry, error) {
		return streamOf(redis.DoWithTimeout(reader, wait+answerWithin, cmd, args...))
	}
	switch {
	case k.dry():
		list, err := ask("XREAD", "COUNT", most, "BLOCK", wait.Milliseconds(), "STREAMS", k.s.Queue, last.String())
		return k.messages(list, false), err
	case pending:
		list, err := ask("XREADGROUP", append(group, "STREAMS", k.s.Queue, last.String())...)
		if err != nil {
			return nil, err
		}
		if len(list) == 0 {
			k.mu.Lock()
			k.pending = false
			k.mu.Unlock()
		}
		return k.messages(list, true), k.forget(list)
	case claim:
		list, err := k.claim(reader, most)
		if err != nil || len(list) > 0 {
			return k.messages(list, true), errors.Join(err, k.forget(list))
		}
	}
	block := wait
	if k.shared {
		block = waitShared
	}
	list, err := ask("XREADGROUP", append(group, "BLOCK", block.Milliseconds(), "STREAMS", k.s.Queue, ">")...)
	return k.messages(list, false), err
}

// claim takes over what a consumer has not acknowledged for too long, some at a time.
// What the trigger has is not given to it again: it may be through with it before it
// looks, and would take it for another message.
func (k *source) claim(reader redis.Conn, most int) ([]entry, error) {
	k.mu.Lock()
	held := maps.Clone(k.held)
	k.mu.Unlock()
	values, err := redis.Values(redis.DoWithTimeout(reader, answerWithin, "XAUTOCLAIM", k.s.Queue, k.s.Group, k.consumer(), milliseconds(k), k.cursor, "COUNT", most))
	if err != nil || len(values) < 2 {
		return nil, errors.Join(errors.New("XAUTOCLAIM"), err)
	}
	next, err := redis.String(values[0], nil)
	if err != nil {
		return nil, err
	}
	k.mu.Lock()
	if k.cursor = next; next == "0-0" {
		k.claimAt = time.Now().Add(k.s.Duration("min_idle") / 2)
	}
	k.mu.Unlock()
	list, err := entriesOf(values[1], nil)
	k.mu.Lock()
	defer k.mu.Unlock()
	return slices.DeleteFunc(list, func(e entry) bool { return held[e.id.String()] || k.held[e.id.String()] }), err
}

// forget acknowledges entries that were deleted while they were pending: no process will
// ever have them.
func (k *source) forget(list []entry) error {
	var gone []string
	for i := range list {
		if list[i].fields == nil {
			gone = append(gone, list[i].id.String())
		}
	}
	if len(gone) == 0 {
		return nil
	}
	k.warn("entries were deleted before they were read", "stream", k.s.Queue, "entries", len(gone), "first", gone[0])
	return k.acknowledge(context.Background(), gone)
}

// messages makes messages of entries.
func (k *source) messages(list []entry, again bool) (ms []trigger.Message) {
	k.mu.Lock()
	defer k.mu.Unlock()
	var seen *entry
	for i := range list {
		e := &list[i]
		if k.last.less(e.id) {
			k.last = e.id
		}
		if e.fields == nil {
			continue
		}
		m := e.content(k.s.Text("body_field"))
		if m.ID = trigger.Header(m.Headers, trigger.HeaderMessageID); m.ID == "" {
			m.ID, m.Positional = fmt.Sprintf("%s:%s:%s", k.s.Queue, k.generation, e.id), !k.shared
		}
		m.Redelivered = again
		m.Handle = &handle{k.generation, e.id.String()}
		if k.shared {
			k.held[e.id.String()] = true
		} else {
			m.Ref = []byte(k.generation + " " + e.id.String())
			m.Position = &trigger.Position{Key: k.generation, At: e.id.bytes()}
		}
		ms, seen = append(ms, m), e
	}
	if seen != nil && !k.shared {
		// What tells later whether the stream is still the same.
		ms[len(ms)-1].State = []trigger.Write{{Key: seenKey, Value: append(seen.id.bytes(), seen.sum()...)}}
	}
	return ms
}

// handle is where a message stands.
type handle struct{ generation, id string }

// release notes that the trigger is through with entries.
func (k *source) release(ids []string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, id := range ids {
		delete(k.held, id)
	}
}

// ids returns the ids of those messages that are of the stream as it is now.
func (k *source) ids(ms []trigger.Message) (ids []string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for i := range ms {
		name, id, _ := strings.Cut(string(ms[i].Ref), " ")
		if h, ok := ms[i].Handle.(*handle); ok {
			name, id = h.generation, h.id
		}
		if id != "" && name == k.generation {
			ids = append(ids, id)
		}
	}
	return ids
}

// ackAtOnce bounds the ids in one command.
const ackAtOnce = 1000

// Health implements trigger.Source.
func (k *source) Health(ctx context.Context) trigger.Health {
	k.mu.Lock()
	joined, wrong := k.joined, k.wrong
	k.mu.Unlock()
	if joined {
		ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
		defer cancel()
		if _, wrong = k.cmd.do(ctx, "PING"); wrong == nil {
			return trigger.Health{OK: true}
		}
	}
	if wrong == nil {
		wrong = errNotConnected
	}
	return trigger.Health{Detail: wrong.Error()}
}

// Lag implements trigger.Source: what is pending, and what the group was not given.
func (k *source) Lag(ctx context.Context) (int64, error) {
	groups, err := redis.Values(k.cmd.do(ctx, "XINFO", "GROUPS", k.s.Queue))
	if err != nil {
		return 0, err
	}
	for _, v := range groups {
		if g := groupOf(v); g.name == k.s.Group && g.lag >= 0 {
			return g.pending + g.lag, nil
		}
	}
	return 0, trigger.ErrNotKnown
}

// Capabilities implements trigger.Source.
func (k *source) Capabilities() trigger.Caps {
	if !k.shared {
		return ownCaps
	}
	c := sharedCaps
	c.KeepEvery = k.s.Duration("min_idle") / 2
	return c
}

// Close implements trigger.Source.
func (k *source) Close() error {
	k.mu.Lock()
	reader := k.reader
	k.reader, k.closed, k.joined = nil, true, false
	k.mu.Unlock()
	if reader != nil {
		_ = reader.Close() // nothing is waited for
	}
	k.cmd.close()
	return nil
}

var (
	_ trigger.Source = (*source)(nil)
	_ trigger.Seeker = (*source)(nil)
	_ trigger.Keeper = (*source)(nil)
)
