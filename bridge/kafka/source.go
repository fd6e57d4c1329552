package kafka

import (
	"context"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"thread/bridge/adapter"
	"thread/bridge/trigger"
)

// source reads one topic as a member of a group. The positions that count are in
// the thread; the offsets of the group are for others to see, and for partitions
// that another thread had before.
type source struct {
	s   *adapter.Settings
	log *slog.Logger

	mu        sync.Mutex
	state     trigger.State
	cl        *kgo.Client
	cluster   string
	topicID   string
	positions map[int32]string // their keys, by partition
	committed map[int32]int64  // by partition, of this connection
	given     map[int32]int64  // by partition, behind the last message given out and not committed
	since     time.Time        // when given was empty
	allowed   chan struct{}    // closed when it is empty again
	last      error            // of the latest poll
}

func newSource(s *adapter.Settings) (*source, error) {
	if _, err := options(s); err != nil {
		return nil, err
	}
	return &source{s: s, log: logger(s), positions: map[int32]string{}}, nil
}

// Connect implements trigger.Source.
func (k *source) Connect(ctx context.Context, state trigger.State) error {
	o, err := options(k.s)
	if err != nil {
		return err
	}
	start := kgo.NewOffset().AtStart()
	if k.s.Text("start") == "latest" {
		start = kgo.NewOffset().AtEnd()
	}
	ready := make(chan struct{}) // the group may be joined before this client is ours
	adjust := func(ctx context.Context, offsets map[string]map[int32]kgo.Offset) (map[string]map[int32]kgo.Offset, error) {
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-ready:
			return k.adjust(ctx, offsets)
		}
	}
	o = append(o, kgo.ConsumerGroup(k.s.Group), kgo.ConsumeTopics(k.s.Queue), kgo.DisableAutoCommit(), kgo.ConsumeResetOffset(start),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.AdjustFetchOffsetsFn(adjust), kgo.AllowAutoTopicCreation(),
		kgo.RecordPartitioner(kgo.StickyKeyPartitioner(nil)),
		// What it produces are single messages that the broker has let in before.
		kgo.ProducerBatchMaxBytes(90<<20))
	if !k.s.Handled {
		// A partition goes to another member once what was given out of it is stored
		// and committed: that one begins behind it. Handlers may take too long for that.
		o = append(o, kgo.BlockRebalanceOnPoll())
	}
	gone := func(_ context.Context, _ *kgo.Client, lost map[string][]int32) { k.gone(lost[k.s.Queue]) }
	o = append(o, kgo.OnPartitionsRevoked(gone), kgo.OnPartitionsLost(gone))
	if id := instance(k.s); id != "" {
		// A process that was killed has its partitions again at once.
		o = append(o, kgo.InstanceID(id))
	}
	cl, err := kgo.NewClient(o...)
	if err != nil {
		return err
	}
	if err := reach(ctx, cl, k.s, "consumer"); err != nil {
		cl.Close()
		return err
	}
	k.mu.Lock()
	k.cl, k.state, k.committed, k.given, k.allowed, k.last = cl, state, map[int32]int64{}, map[int32]int64{}, make(chan struct{}), nil
	k.mu.Unlock()
	close(ready)
	return nil
}

func instance(s *adapter.Settings) string {
	if id := s.Text("instance_id"); id != "" || s.Instance == "" {
		return id
	}
	return s.Instance + "-" + s.Name
}

// generation reads the cluster's and the topic's id: a topic that was deleted and
// made again has another one, and its offsets begin again.
func (k *source) generation(ctx context.Context) error {
	cl := k.client()
	if cl == nil {
		return errors.New("not connected")
	}
	m, err := kadm.NewClient(cl).Metadata(ctx, k.s.Queue)
	if err != nil {
		return err
	}
	t, ok := m.Topics[k.s.Queue]
	if !ok || t.Err != nil {
		return errors.Join(fmt.Errorf("topic %s", k.s.Queue), t.Err)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.cluster, k.topicID, k.positions = m.Cluster, hex.EncodeToString(t.ID[:]), map[int32]string{}
	return nil
}

func (k *source) client() *kgo.Client {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.cl
}

// position is the key of a partition's positions. The caller has the lock.
func (k *source) position(partition int32) string {
	p, ok := k.positions[partition]
	if !ok {
		p = k.cluster + "\x00" + k.topicID + "\x00" + strconv.Itoa(int(partition))
		k.positions[partition] = p
	}
	return p
}

// adjust begins behind the greater of what the thread and the group have. Offsets of
// a topic that was made again since are void, also the group's positions.
func (k *source) adjust(ctx context.Context, offsets map[string]map[int32]kgo.Offset) (map[string]map[int32]kgo.Offset, error) {
	if err := k.generation(ctx); err != nil {
		return nil, err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	stored := k.state.All("")
	earlier, now := false, false
	for key := range stored {
		if strings.HasPrefix(key, k.cluster+"\x00") {
			same := strings.HasPrefix(key, k.cluster+"\x00"+k.topicID+"\x00")
			now, earlier = now || same, earlier || !same
		}
	}
	for topic, partitions := range offsets {
		for p, o := range partitions {
			at, ok := stored[k.position(p)]
			switch {
			case ok && len(at) == 8:
				if next := int64(binary.BigEndian.Uint64(at)); next > o.EpochOffset().Offset {
					partitions[p] = kgo.NewOffset().At(next).WithEpoch(-1)
				}
			case earlier && !now:
				k.log.Warn("the topic was made again: it is read from its start", "topic", topic, "partition", p)
				partitions[p] = kgo.NewOffset().AtStart()
			}
		}
	}
	return offsets, nil
}

// Consume implements trigger.Source.
func (k *source) Consume(ctx context.Context, most int) ([]trigger.Message, error) {
	cl := k.client()
	if cl == nil {
		return nil, errors.New("not connected")
	}
	for {
		if err := k.breathe(ctx); err != nil {
			return nil, err
		}
		fetches := cl.PollRecords(ctx, most)
		ms := make([]trigger.Message, 0, fetches.NumRecords())
		k.mu.Lock()
		fetches.EachRecord(func(r *kgo.Record) {
			ms = append(ms, k.message(r))
			if len(k.given) == 0 {
				k.since = time.Now()
			}
			k.given[r.Partition] = r.Offset + 1
		})
		k.mu.Unlock()
		if len(ms) == 0 {
			k.allow(cl)
		}
		err := fetches.Err0()
		if err == nil {
			fetches.EachError(func(topic string, p int32, e error) { err = fmt.Errorf("topic %s partition %d: %w", topic, p, e) })
		}
		if ctx.Err() != nil {
			err = nil
		}
		k.mu.Lock()
		k.last = err
		k.mu.Unlock()
		switch {
		case len(ms) > 0:
			return ms, nil
		case ctx.Err() != nil:
			return nil, context.Cause(ctx)
		case errors.Is(err, kerr.UnknownTopicID) || errors.Is(err, kerr.InconsistentTopicID) || errors.Is(err, kerr.UnknownTopicOrPartition):
			// It was deleted, and perhaps made again: a new connection asks again.
			return nil, errors.Join(err, k.reconnect(ctx))
		case err != nil:
			return nil, err
		}
	}
}

func (k *source) reconnect(ctx context.Context) error {
	k.mu.Lock()
	old, state := k.cl, k.state
	k.cl = nil
	k.mu.Unlock()
	if old != nil {
		old.CloseAllowingRebalance()
	}
	return k.Connect(ctx, state)
}

// message makes a message of a record. Its Ref is partition, offset and epoch.
func (k *source) message(r *kgo.Record) trigger.Message {
	m := trigger.Message{Body: r.Value, Headers: headersOf(r), At: r.Timestamp, Key: string(r.Key), Handle: r}
	m.ID = trigger.Header(m.Headers, trigger.HeaderMessageID)
	if m.ID == "" && k.s.Text("id_from") == "key" {
		m.ID = m.Key
	}
	if m.ID == "" {
		m.ID = r.Topic + ":" + strconv.Itoa(int(r.Partition)) + ":" + strconv.FormatInt(r.Offset, 10)
		m.Positional = true
	}
	b := binary.BigEndian.AppendUint64(make([]byte, 0, 24), uint64(r.Offset+1))
	b = binary.BigEndian.AppendUint32(b, uint32(r.Partition))
	b = binary.BigEndian.AppendUint64(b, uint64(r.Offset))
	b = binary.BigEndian.AppendUint32(b, uint32(r.LeaderEpoch))
	m.Position = &trigger.Position{Key: k.position(r.Partition), At: b[:8:8]}
	m.Ref = b[8:]
	return m
}

// Nack implements trigger.Source. Kafka has no such thing: with requeue a copy is
// produced, and either way the offset is committed after it.
func (k *source) Nack(ctx context.Context, m trigger.Message, requeue bool) error {
	if !requeue {
		return nil
	}
	h := map[string]string{}
	for name, v := range m.Headers {
		if !strings.EqualFold(name, trigger.HeaderMessageID) {
			h[name] = v
		}
	}
	h[trigger.HeaderMessageID] = m.ID
	return k.produce(ctx, k.s.Queue, &m, h)
}

func (k *source) dlq() string {
	if k.s.DLQ != "" {
		return k.s.DLQ
	}
	return k.s.Queue + ".dlq"
}

// ProbeDLQ implements trigger.Prober.
func (k *source) ProbeDLQ(ctx context.Context) (string, error) {
	cl := k.client()
	if cl == nil {
		return "", errors.New("not connected")
	}
	name := k.dlq()
	req := kmsg.NewPtrMetadataRequest() // kadm's makes the topic
	req.Topics = []kmsg.MetadataRequestTopic{{Topic: &name}}
	resp, err := req.RequestWith(ctx, cl)
	if err != nil {
		return "", err
	}
	for _, t := range resp.Topics {
		err = kerr.ErrorForCode(t.ErrorCode)
	}
	switch {
	case errors.Is(err, kerr.UnknownTopicOrPartition):
		return trigger.MadeLater(name), nil
	case err != nil:
		return "", fmt.Errorf("topic %s: %w", name, err)
	}
	return "", nil
}

// SendToDLQ implements trigger.Source.
func (k *source) SendToDLQ(ctx context.Context, m trigger.Message, r trigger.Reason) error {
	err := k.produce(ctx, k.dlq(), &m, adapter.DLQHeaders(&m, &r))
	if errors.Is(err, kerr.MessageTooLarge) || errors.Is(err, kerr.RecordListTooLarge) {
		err = fmt.Errorf("%w: %w", trigger.ErrTooLarge, err)
	}
	return err
}

func (k *source) produce(ctx context.Context, topic string, m *trigger.Message, headers map[string]string) error {
	cl := k.client()
	if cl == nil {
		return errors.New("not connected")
	}
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	r := &kgo.Record{Topic: topic, Value: m.Body, Headers: toHeaders(headers)}
	if m.Key != "" {
		r.Key = []byte(m.Key)
	}
	return cl.ProduceSync(ctx, r).FirstErr()
}

// Health implements trigger.Source.
func (k *source) Health(ctx context.Context) trigger.Health {
	k.mu.Lock()
	cl, last := k.cl, k.last
	k.mu.Unlock()
	if cl == nil {
		return trigger.Health{Detail: "not connected"}
	}
	if last == nil {
		ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
		defer cancel()
		last = cl.Ping(ctx)
	}
	if last != nil {
		return trigger.Health{Detail: last.Error()}
	}
	return trigger.Health{OK: true}
}

// Lag implements trigger.Source.
func (k *source) Lag(ctx context.Context) (int64, error) {
	cl := k.client()
	if cl == nil {
		return 0, trigger.ErrNotKnown
	}
	lags, err := kadm.NewClient(cl).Lag(ctx, k.s.Group)
	if err != nil {
		return 0, err
	}
	l, ok := lags[k.s.Group]
	if !ok || l.Error() != nil {
		return 0, errors.Join(trigger.ErrNotKnown, l.Error())
	}
	return l.Lag.Total(), nil
}

// Capabilities implements trigger.Source.
func (k *source) Capabilities() trigger.Caps { return caps }

// Close implements trigger.Source.
func (k *source) Close() error {
	k.mu.Lock()
	cl := k.cl
	k.cl = nil
	k.mu.Unlock()
	if cl != nil {
		cl.CloseAllowingRebalance()
	}
	return nil
}

var (
	_ trigger.Source = (*source)(nil)
	_ trigger.Seeker = (*source)(nil)
)
