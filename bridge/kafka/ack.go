package kafka

import (
	"context"
	"encoding/binary"
	"errors"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"thread/bridge/trigger"
)

// Ack implements trigger.Source: it commits the offset behind the last message of
// each partition.
func (k *source) Ack(ctx context.Context, ms []trigger.Message) error {
	cl := k.client()
	if cl == nil {
		return errors.New("not connected")
	}
	last := map[int32]*trigger.Message{}
	k.mu.Lock()
	topic := k.cluster + "\x00" + k.topicID + "\x00"
	for i := range ms {
		m := &ms[i]
		if len(m.Ref) != 16 || m.Position == nil || !strings.HasPrefix(m.Position.Key, topic) {
			continue // of a topic that is gone
		}
		p := int32(binary.BigEndian.Uint32(m.Ref))
		if old := last[p]; (old == nil || offsetOf(m) > offsetOf(old)) && offsetOf(m)+1 > k.committed[p] {
			last[p] = m
		}
	}
	k.mu.Unlock()
	var rs []*kgo.Record
	for p, m := range last {
		rs = append(rs, &kgo.Record{Topic: k.s.Queue, Partition: p, Offset: offsetOf(m), LeaderEpoch: int32(binary.BigEndian.Uint32(m.Ref[12:]))})
	}
	if len(rs) == 0 {
		k.allow(cl)
		return nil
	}
	// Not MarkCommitRecords: without AutoCommitMarks it does nothing, and says so to no process.
	ctx, cancel := context.WithTimeout(ctx, 15*time.Second)
	defer cancel()
	defer k.allow(cl)
	if err := cl.CommitRecords(ctx, rs...); err != nil {
		// The thread has the positions: who has the partition now needs no commit.
		k.mu.Lock()
		defer k.mu.Unlock()
		clear(k.given)
		return err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, r := range rs {
		k.committed[r.Partition] = r.Offset + 1
	}
	return nil
}

func offsetOf(m *trigger.Message) int64 { return int64(binary.BigEndian.Uint64(m.Ref[4:])) }

// allow lets partitions go to other members when all that was given out is
// committed.
func (k *source) allow(cl *kgo.Client) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for p, next := range k.given {
		if k.committed[p] < next {
			return
		}
		delete(k.given, p)
	}
	close(k.allowed)
	k.allowed = make(chan struct{})
	cl.AllowRebalance()
}

// maxBlocked is how long a rebalance may have to wait for a batch that is not
// committed yet. Under load there always is one, the next is taken while it is stored.
const maxBlocked = time.Second

// breathe waits for what was given out to be committed, when rebalances have been
// blocked for long.
func (k *source) breathe(ctx context.Context) error {
	for !k.s.Handled {
		k.mu.Lock()
		free, allowed := len(k.given) == 0 || time.Since(k.since) < maxBlocked, k.allowed
		k.mu.Unlock()
		if free {
			break
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-allowed:
		}
	}
	return nil
}

// gone forgets partitions that others have now.
func (k *source) gone(partitions []int32) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, p := range partitions {
		delete(k.given, p)
		delete(k.committed, p)
	}
	close(k.allowed)
	k.allowed = make(chan struct{})
}
