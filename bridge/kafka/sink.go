package kafka

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"thread/bridge/adapter"
	"thread/bridge/trigger"
)

// sink publishes in transactions. The id of the last event is the offset of a group
// for itself, for partition 0 of the topic, and is stored in the same transaction:
// so the broker knows how far it is.
type sink struct {
	s  *adapter.Settings
	mu sync.Mutex
	cl *kgo.Client
}

func newSink(s *adapter.Settings) (*sink, error) {
	if _, err := options(s); err != nil {
		return nil, err
	}
	return &sink{s: s}, nil
}

// Connect implements trigger.Sink. What a publisher before has begun and not ended
// is aborted by that.
func (k *sink) Connect(ctx context.Context) (int64, error) {
	k.Close()
	o, err := options(k.s)
	if err != nil {
		return 0, err
	}
	cl, err := kgo.NewClient(append(o, kgo.TransactionalID(k.s.Group), kgo.TransactionTimeout(30*time.Second), kgo.AllowAutoTopicCreation())...)
	if err != nil {
		return 0, err
	}
	last, err := k.start(ctx, cl)
	if err != nil {
		cl.Close()
		return 0, err
	}
	k.mu.Lock()
	k.cl = cl
	k.mu.Unlock()
	return last, nil
}

func (k *sink) start(ctx context.Context, cl *kgo.Client) (int64, error) {
	if err := reach(ctx, cl, k.s, "producer"); err != nil {
		return 0, err
	}
	ctx, cancel := context.WithTimeout(ctx, k.s.Duration("connect_timeout"))
	defer cancel()
	if _, _, err := cl.ProducerID(ctx); err != nil {
		return 0, fmt.Errorf("transactions: %w", err)
	}
	offsets, err := kadm.NewClient(cl).FetchOffsets(kadm.RequireStable(ctx), k.s.Group)
	if errors.Is(err, kerr.GroupIDNotFound) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	o, ok := offsets.Lookup(k.s.Queue, 0)
	if !ok || o.At < 0 || errors.Is(o.Err, kerr.GroupIDNotFound) {
		return 0, nil
	}
	return o.At, o.Err
}

// Publish implements trigger.Sink.
func (k *sink) Publish(ctx context.Context, ms []trigger.Outgoing) error {
	k.mu.Lock()
	cl := k.cl
	k.mu.Unlock()
	if cl == nil {
		return errors.New("not connected")
	}
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	if err := cl.BeginTransaction(); err != nil {
		return err
	}
	rs := make([]*kgo.Record, len(ms))
	for i, m := range ms {
		rs[i] = &kgo.Record{Topic: m.Queue, Value: m.Body, Headers: toHeaders(m.Headers)}
		if m.Key != "" {
			rs[i].Key = []byte(m.Key)
		}
	}
	err := cl.ProduceSync(ctx, rs...).FirstErr()
	if err == nil {
		err = k.note(ctx, cl, ms[len(ms)-1].Event)
	}
	if err != nil {
		abort, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
		defer cancel()
		_ = cl.AbortBufferedRecords(abort)
		return errors.Join(err, cl.EndTransaction(abort, kgo.TryAbort))
	}
	return cl.EndTransaction(ctx, kgo.TryCommit)
}

// note makes the last event's id part of the transaction.
func (k *sink) note(ctx context.Context, cl *kgo.Client, last int64) error {
	id, epoch, err := cl.ProducerID(ctx)
	if err != nil {
		return err
	}
	meta, err := kadm.NewClient(cl).Metadata(ctx, k.s.Queue)
	if err != nil {
		return err
	}
	add := kmsg.NewPtrAddOffsetsToTxnRequest()
	add.TransactionalID, add.ProducerID, add.ProducerEpoch, add.Group = k.s.Group, id, epoch, k.s.Group
	added, err := add.RequestWith(ctx, cl)
	if err != nil {
		return fmt.Errorf("adding the offset: %w", err)
	}
	if err = kerr.ErrorForCode(added.ErrorCode); err != nil {
		return fmt.Errorf("adding the offset: %w", err)
	}
	req := kmsg.NewPtrTxnOffsetCommitRequest()
	req.TransactionalID, req.Group, req.ProducerID, req.ProducerEpoch = k.s.Group, k.s.Group, id, epoch
	t := kmsg.NewTxnOffsetCommitRequestTopic()
	t.Topic = k.s.Queue
	t.TopicID = meta.Topics[k.s.Queue].ID // brokers of version 6 of this request ask for it
	p := kmsg.NewTxnOffsetCommitRequestTopicPartition()
	p.Partition, p.Offset, p.LeaderEpoch = 0, last, -1
	t.Partitions = append(t.Partitions, p)
	req.Topics = append(req.Topics, t)
	resp, err := req.RequestWith(ctx, cl)
	if err != nil {
		return fmt.Errorf("committing the offset: %w", err)
	}
	for _, t := range resp.Topics {
		for _, p := range t.Partitions {
			if err := kerr.ErrorForCode(p.ErrorCode); err != nil {
				return fmt.Errorf("committing the offset: %w", err)
			}
		}
	}
	return nil
}

// Send implements trigger.Sender: one message, without a transaction.
func (k *sink) Send(ctx context.Context, m trigger.Message) (string, error) {
	o, err := options(k.s)
	if err != nil {
		return "", err
	}
	cl, err := kgo.NewClient(append(o, kgo.AllowAutoTopicCreation())...)
	if err != nil {
		return "", err
	}
	defer cl.Close()
	if err := reach(ctx, cl, k.s, "producer"); err != nil {
		return "", err
	}
	r := &kgo.Record{Topic: k.s.Queue, Value: m.Body, Headers: toHeaders(m.Headers)}
	if m.Key != "" {
		r.Key = []byte(m.Key)
	}
	return m.ID, cl.ProduceSync(ctx, r).FirstErr()
}

// Health implements trigger.Sink.
func (k *sink) Health(ctx context.Context) trigger.Health {
	k.mu.Lock()
	cl := k.cl
	k.mu.Unlock()
	if cl == nil {
		return trigger.Health{Detail: "not connected"}
	}
	if err := cl.Ping(ctx); err != nil {
		return trigger.Health{Detail: err.Error()}
	}
	return trigger.Health{OK: true}
}

// Capabilities implements trigger.Sink.
func (k *sink) Capabilities() trigger.Caps {
	return trigger.Caps{Promise: trigger.ExactlyOnce, Condition: "for readers of committed data"}
}

// Close implements trigger.Sink.
func (k *sink) Close() error {
	k.mu.Lock()
	cl := k.cl
	k.cl = nil
	k.mu.Unlock()
	if cl != nil {
		cl.Close()
	}
	return nil
}
