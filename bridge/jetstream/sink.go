package jetstream

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"thread/bridge/adapter"
	"thread/bridge/trigger"
)

// sink publishes one message after the other: what the stream has is then always
// the beginning of what was sent, and its last message says how far that is. The
// server's own window of ids is not enough, it ends.
type sink struct {
	s  *adapter.Settings
	mu sync.Mutex
	nc *nats.Conn
	js jetstream.JetStream
}

func (k *sink) subject() string {
	if s := k.s.Text("subject"); s != "" {
		return s
	}
	return k.s.Queue
}

// Connect implements trigger.Sink.
func (k *sink) Connect(ctx context.Context) (int64, error) {
	k.Close()
	ctx, cancel := context.WithTimeout(ctx, k.s.Duration("connect_timeout"))
	defer cancel()
	// Without reconnecting: nothing may be sent behind what was lost.
	nc, err := connect(k.s, nats.NoReconnect())
	if err != nil {
		return 0, err
	}
	js, err := jetstream.New(nc)
	if err != nil {
		nc.Close()
		return 0, err
	}
	last, err := k.last(ctx, js)
	if err != nil {
		nc.Close()
		return 0, err
	}
	k.mu.Lock()
	k.nc, k.js = nc, js
	k.mu.Unlock()
	return last, nil
}

// last reads the last message of the subject back. One that is not ours says
// nothing.
func (k *sink) last(ctx context.Context, js jetstream.JetStream) (int64, error) {
	name, err := js.StreamNameBySubject(ctx, k.subject())
	if err != nil {
		return 0, fmt.Errorf("no stream has subject %s: %w", k.subject(), err)
	}
	stream, err := js.Stream(ctx, name)
	if err != nil {
		return 0, err
	}
	m, err := stream.GetLastMsgForSubject(ctx, k.subject())
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	owner, event, ok := strings.Cut(m.Header.Get(trigger.HeaderMessageID), ":")
	id, err := strconv.ParseInt(event, 10, 64)
	if !ok || err != nil || owner != strings.TrimPrefix(k.s.Instance, "thread-") {
		return 0, nil
	}
	return id, nil
}

// Publish implements trigger.Sink.
func (k *sink) Publish(ctx context.Context, ms []trigger.Outgoing) error {
	k.mu.Lock()
	js := k.js
	k.mu.Unlock()
	if js == nil {
		return errNotConnected
	}
	for i := range ms {
		one, cancel := context.WithTimeout(ctx, 15*time.Second)
		_, err := js.PublishMsg(one, &nats.Msg{Subject: k.subject(), Data: ms[i].Body, Header: toHeader(ms[i].Headers)}, jetstream.WithMsgID(ms[i].ID))
		cancel()
		if err != nil {
			return fmt.Errorf("event %d: %w", ms[i].Event, err)
		}
	}
	return nil
}

// Send implements trigger.Sender.
func (k *sink) Send(ctx context.Context, m trigger.Message) (string, error) {
	nc, err := connect(k.s)
	if err != nil {
		return "", err
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		return "", err
	}
	subject := k.s.Text("subject")
	if subject == "" {
		stream, err := streamOf(ctx, js, k.s.Queue)
		if err != nil {
			return "", err
		}
		subjects := stream.CachedInfo().Config.Subjects
		if len(subjects) != 1 || strings.ContainsAny(subjects[0], "*>") {
			return "", fmt.Errorf("stream %s has no single subject: set adapter.connection.subject", k.s.Queue)
		}
		subject = subjects[0]
	}
	_, err = js.PublishMsg(ctx, &nats.Msg{Subject: subject, Data: m.Body, Header: toHeader(m.Headers)})
	return m.ID, err
}

// Health implements trigger.Sink.
func (k *sink) Health(context.Context) trigger.Health {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.nc == nil || !k.nc.IsConnected() {
		return trigger.Health{Detail: errNotConnected.Error()}
	}
	return trigger.Health{OK: true}
}

// Capabilities implements trigger.Sink.
func (k *sink) Capabilities() trigger.Caps { return outCaps }

// Close implements trigger.Sink.
func (k *sink) Close() error {
	k.mu.Lock()
	nc := k.nc
	k.nc, k.js = nil, nil
	k.mu.Unlock()
	if nc != nil {
		nc.Close()
	}
	return nil
}
