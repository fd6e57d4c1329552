package jetstream

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"thread/bridge/adapter"
	"thread/bridge/trigger"
)

// source reads a stream by a durable pull consumer with explicit acknowledgements.
type source struct {
	s *adapter.Settings

	mu      sync.Mutex
	nc      *nats.Conn
	js      jetstream.JetStream
	cons    jetstream.Consumer
	created time.Time // of the stream: one that was made again has other messages
	last    error
}

// Connect implements trigger.Source.
func (k *source) Connect(ctx context.Context, _ trigger.State) error {
	nc, err := connect(k.s)
	if err != nil {
		return err
	}
	js, err := jetstream.New(nc)
	if err != nil {
		nc.Close()
		return err
	}
	k.mu.Lock()
	k.nc, k.js, k.last = nc, js, nil
	k.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, k.s.Duration("connect_timeout"))
	defer cancel()
	if err := k.consumer(ctx); err != nil {
		return errors.Join(err, k.Close())
	}
	return nil
}

// consumer finds the durable consumer, or makes it.
func (k *source) consumer(ctx context.Context) error {
	js := k.stream()
	if js == nil {
		return errNotConnected
	}
	stream, err := streamOf(ctx, js, k.s.Queue)
	if err != nil {
		return err
	}
	c, err := stream.Consumer(ctx, k.s.Group)
	if errors.Is(err, jetstream.ErrConsumerNotFound) {
		conf := jetstream.ConsumerConfig{Durable: k.s.Group, AckPolicy: jetstream.AckExplicitPolicy, AckWait: k.s.Duration("ack_wait"),
			MaxAckPending: k.s.Int("max_ack_pending"), FilterSubject: k.s.Text("subject"), MaxDeliver: -1}
		if k.s.Text("start") == "new" {
			conf.DeliverPolicy = jetstream.DeliverNewPolicy
		}
		c, err = stream.CreateConsumer(ctx, conf)
	}
	if err != nil {
		return fmt.Errorf("consumer %s of stream %s: %w", k.s.Group, k.s.Queue, err)
	}
	if p := c.CachedInfo().Config.AckPolicy; p != jetstream.AckExplicitPolicy {
		return fmt.Errorf("consumer %s of stream %s has the acknowledgement policy %s, it must be explicit", k.s.Group, k.s.Queue, p)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.cons, k.created = c, stream.CachedInfo().Created
	return nil
}

var errNotConnected = errors.New("not connected")

func (k *source) stream() jetstream.JetStream {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.js
}

// Consume implements trigger.Source.
func (k *source) Consume(ctx context.Context, most int) ([]trigger.Message, error) {
	for {
		k.mu.Lock()
		c, created := k.cons, k.created
		k.mu.Unlock()
		if c == nil {
			return nil, errNotConnected
		}
		ms, err := k.fetch(ctx, c, created, most)
		if len(ms) > 0 || err == nil && ctx.Err() == nil {
			k.note(nil)
			if len(ms) > 0 {
				return ms, nil
			}
			continue
		}
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		k.note(err)
		// The stream or its consumer may have been deleted, and made again.
		if again := k.consumer(ctx); again != nil {
			return nil, errors.Join(err, again)
		}
		return nil, err
	}
}

func (k *source) note(err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.last = err
}

// idle is how long one request waits at the server.
const idle = 20 * time.Second

// fetch takes what is there, and waits for one message when nothing is.
func (k *source) fetch(ctx context.Context, c jetstream.Consumer, created time.Time, most int) (ms []trigger.Message, err error) {
	take := func(b jetstream.MessageBatch) error {
		for m := range b.Messages() {
			ms = append(ms, k.message(m, created))
		}
		return b.Error()
	}
	b, err := c.FetchNoWait(most)
	if err == nil {
		err = take(b)
	}
	if len(ms) > 0 || err != nil && !errors.Is(err, nats.ErrTimeout) {
		return ms, err
	}
	wait, cancel := context.WithTimeout(ctx, idle)
	defer cancel()
	if b, err = c.Fetch(1, jetstream.FetchContext(wait)); err == nil {
		err = take(b)
	}
	if len(ms) == 0 && (errors.Is(err, nats.ErrTimeout) || errors.Is(err, context.DeadlineExceeded)) {
		err = nil
		// A consumer that is gone is silent, too.
		if _, gone := c.Info(ctx); gone != nil {
			err = gone
		}
	}
	return ms, err
}

func (k *source) message(m jetstream.Msg, created time.Time) trigger.Message {
	t := trigger.Message{Body: m.Data(), Headers: fromHeader(m.Headers()), Key: m.Subject(), Handle: m}
	meta, err := m.Metadata()
	if err != nil {
		t.Bad, t.ID, t.Unnamed = "not a message of JetStream: "+err.Error(), "unnamed", true
		return t
	}
	t.At, t.Redelivered = meta.Timestamp, meta.NumDelivered > 1
	for _, h := range []string{trigger.HeaderMessageID, "Nats-Msg-Id"} {
		if t.ID == "" {
			t.ID = trigger.Header(t.Headers, h)
		}
	}
	if t.ID == "" {
		t.ID = fmt.Sprintf("%s:%d:%d", meta.Stream, created.UnixNano(), meta.Sequence.Stream)
	}
	return t
}

// acksAtOnce is how many acknowledgements wait for their confirmation at once.
const acksAtOnce = 64

// Ack implements trigger.Source. It waits for the server's confirmation: what is
// confirmed never is redelivered.
func (k *source) Ack(ctx context.Context, ms []trigger.Message) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	var wg sync.WaitGroup
	var mu sync.Mutex
	var failed error
	slots := make(chan struct{}, acksAtOnce)
	for i := range ms {
		m, ok := ms[i].Handle.(jetstream.Msg)
		if !ok {
			continue
		}
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			if err := m.DoubleAck(ctx); err != nil && !errors.Is(err, jetstream.ErrMsgAlreadyAckd) {
				mu.Lock()
				failed = err
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	return failed
}

// Nack implements trigger.Source.
func (k *source) Nack(_ context.Context, m trigger.Message, requeue bool) error {
	h, ok := m.Handle.(jetstream.Msg)
	if !ok {
		return nil
	}
	var err error
	if requeue {
		err = h.Nak()
	} else {
		err = h.Term()
	}
	if errors.Is(err, jetstream.ErrMsgAlreadyAckd) {
		return nil
	}
	return err
}

// Keep implements trigger.Keeper.
func (k *source) Keep(_ context.Context, ms []trigger.Message) (err error) {
	for i := range ms {
		if h, ok := ms[i].Handle.(jetstream.Msg); ok {
			if e := h.InProgress(); e != nil && !errors.Is(e, jetstream.ErrMsgAlreadyAckd) {
				err = e
			}
		}
	}
	return err
}

// exceedsMaximum is the code of a stream's refusal of what is above its max_msg_size
// (JSStreamMessageExceedsMaximumErr).
const exceedsMaximum = 10054

func (k *source) dlq() string {
	if k.s.DLQ != "" {
		return k.s.DLQ
	}
	return k.s.Queue + ".dlq"
}

// ProbeDLQ implements trigger.Prober.
func (k *source) ProbeDLQ(ctx context.Context) (string, error) {
	js := k.stream()
	if js == nil {
		return "", errNotConnected
	}
	name, err := js.StreamNameBySubject(ctx, k.dlq())
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return trigger.MadeLater(k.dlq()), nil
	}
	if err != nil {
		return "", fmt.Errorf("subject %s: %w", k.dlq(), err)
	}
	s, err := js.Stream(ctx, name)
	if err != nil {
		return "", fmt.Errorf("stream %s: %w", name, err)
	}
	c, now := s.CachedInfo().Config, s.CachedInfo().State
	if c.Sealed || c.Discard == jetstream.DiscardNew && (c.MaxMsgs > 0 && now.Msgs >= uint64(c.MaxMsgs) || c.MaxBytes > 0 && now.Bytes >= uint64(c.MaxBytes)) {
		return "", fmt.Errorf("stream %s is full or sealed: %d messages, %d bytes", name, now.Msgs, now.Bytes)
	}
	return "", nil
}

// SendToDLQ implements trigger.Source. A subject that no stream has would lose it,
// so one is made.
func (k *source) SendToDLQ(ctx context.Context, m trigger.Message, r trigger.Reason) error {
	js := k.stream()
	if js == nil {
		return errNotConnected
	}
	subject := k.dlq()
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	h := adapter.DLQHeaders(&m, &r)
	for name := range h {
		// They are about the message's own way into its stream.
		if strings.HasPrefix(name, "Nats-") {
			delete(h, name)
		}
	}
	msg := &nats.Msg{Subject: subject, Data: m.Body, Header: toHeader(h)}
	_, err := js.PublishMsg(ctx, msg)
	if errors.Is(err, jetstream.ErrNoStreamResponse) || errors.Is(err, nats.ErrNoResponders) {
		name := strings.NewReplacer(".", "_", "*", "_", ">", "_", " ", "_").Replace(subject)
		if _, err = js.CreateStream(ctx, jetstream.StreamConfig{Name: name, Subjects: []string{subject}}); err == nil {
			_, err = js.PublishMsg(ctx, msg)
		}
	}
	var answer *jetstream.APIError
	if errors.Is(err, nats.ErrMaxPayload) || errors.As(err, &answer) && answer.ErrorCode == exceedsMaximum {
		err = fmt.Errorf("%w: %w", trigger.ErrTooLarge, err)
	}
	return err
}

// Health implements trigger.Source.
func (k *source) Health(context.Context) trigger.Health {
	k.mu.Lock()
	nc, last := k.nc, k.last
	k.mu.Unlock()
	switch {
	case nc == nil:
		return trigger.Health{Detail: errNotConnected.Error()}
	case !nc.IsConnected():
		return trigger.Health{Detail: "the connection is " + strings.ToLower(nc.Status().String())}
	case last != nil:
		return trigger.Health{Detail: last.Error()}
	}
	return trigger.Health{OK: true}
}

// Lag implements trigger.Source.
func (k *source) Lag(ctx context.Context) (int64, error) {
	k.mu.Lock()
	c := k.cons
	k.mu.Unlock()
	if c == nil {
		return 0, trigger.ErrNotKnown
	}
	info, err := c.Info(ctx)
	if err != nil {
		return 0, err
	}
	return int64(info.NumPending) + int64(info.NumAckPending), nil
}

// Capabilities implements trigger.Source.
func (k *source) Capabilities() trigger.Caps {
	c := caps
	c.KeepEvery, c.MaxOut = k.s.Duration("ack_wait")/2, k.s.Int("max_ack_pending")
	return c
}

// Close implements trigger.Source.
func (k *source) Close() error {
	k.mu.Lock()
	nc := k.nc
	k.nc, k.js, k.cons = nil, nil, nil
	k.mu.Unlock()
	if nc != nil {
		nc.Close()
	}
	return nil
}

var (
	_ trigger.Source = (*source)(nil)
	_ trigger.Keeper = (*source)(nil)
)
