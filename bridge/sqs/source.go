package sqs

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"thread/bridge/adapter"
	"thread/bridge/trigger"
)

// source receives, and deletes what is through. Its MessageId is the key of a message.
type source struct {
	s   *adapter.Settings
	log *slog.Logger

	mu      sync.Mutex
	c       *sqs.Client
	url     string
	redrive string            // the queue for the dead that SQS itself uses, an ARN; "" for none
	dlqs    map[string]string // addresses of queues for the dead that are known
	short   bool              // a receive without waiting does not wait
	life    context.Context
	end     context.CancelFunc
	gone    sync.WaitGroup
	last    error

	waiting []trigger.Message // received and not given out
	busy    map[string]string // of FIFO with handlers: group to the id that is in flight
	polling bool
	polled  chan error    // of the receive that runs
	freed   chan struct{} // holds one when a group is free again
}

// held is the Handle of a message.
type held struct{ receipt, group, id string }

func newSource(s *adapter.Settings) *source {
	k := &source{s: s, log: s.Log}
	if k.log == nil {
		k.log = slog.New(slog.DiscardHandler)
	}
	return k
}

// Connect implements trigger.Source.
func (k *source) Connect(ctx context.Context, _ trigger.State) error {
	c, url, attributes, err := open(ctx, k.s)
	if err != nil {
		return err
	}
	var policy struct {
		Target string `json:"deadLetterTargetArn"`
	}
	if text := attributes["RedrivePolicy"]; text != "" {
		if err := json.Unmarshal([]byte(text), &policy); err != nil {
			return fmt.Errorf("queue %s: its redrive policy: %w", k.s.Queue, err)
		}
	}
	life, end := context.WithCancel(context.WithoutCancel(ctx))
	k.mu.Lock()
	defer k.mu.Unlock()
	k.c, k.url, k.redrive, k.dlqs, k.life, k.end, k.last = c, url, policy.Target, map[string]string{}, life, end, nil
	wait := attributes["ReceiveMessageWaitTimeSeconds"]
	k.short = wait == "" || wait == "0"
	k.waiting, k.busy, k.polling, k.polled, k.freed = nil, map[string]string{}, false, make(chan error, 1), make(chan struct{}, 1)
	return nil
}

const (
	perCall   = 10  // messages, as SQS has it
	perBatch  = 100 // messages that are received before they are given out
	callLimit = 30 * time.Second
)

// Consume implements trigger.Source. A receive continues when ctx ends: SQS would hide
// for a while what it has given to no process.
func (k *source) Consume(ctx context.Context, most int) ([]trigger.Message, error) {
	for {
		k.mu.Lock()
		if k.c == nil || k.life.Err() != nil {
			k.mu.Unlock()
			return nil, errNotConnected
		}
		if ms := k.take(most); len(ms) > 0 {
			k.mu.Unlock()
			return ms, nil
		}
		if !k.polling && len(k.waiting) < perBatch {
			k.polling = true
			c, url, life, polled := k.c, k.url, k.life, k.polled
			k.gone.Go(func() { polled <- k.poll(life, c, url) })
		}
		polled, freed, life := k.polled, k.freed, k.life
		k.mu.Unlock()
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-life.Done():
			return nil, errNotConnected
		case <-freed:
		case err := <-polled:
			k.mu.Lock()
			k.polling, k.last = false, err
			k.mu.Unlock()
			if err != nil {
				return nil, err
			}
		}
	}
}

// take gives out what waits; of a FIFO queue with handlers one message of each group,
// so that none overtakes one that is tried again. k.mu is held.
func (k *source) take(most int) (ms []trigger.Message) {
	var left []trigger.Message
	for _, m := range k.waiting {
		h := m.Handle.(*held)
		out, busy := k.busy[h.group]
		switch {
		case len(ms) >= most, busy && out != h.id:
			left = append(left, m)
			continue
		case h.group != "" && k.s.Handled:
			k.busy[h.group] = h.id
		}
		ms = append(ms, m)
	}
	k.waiting = left
	return ms
}

// poll receives until nothing more is there at once.
func (k *source) poll(ctx context.Context, c *sqs.Client, url string) error {
	wait := k.s.Duration("wait")
	for n := 0; n < perBatch; {
		in := &sqs.ReceiveMessageInput{QueueUrl: &url, MaxNumberOfMessages: perCall, WaitTimeSeconds: seconds(wait), VisibilityTimeout: seconds(k.s.Duration("visibility_timeout")),
			MessageAttributeNames: []string{"All"}, MessageSystemAttributeNames: []types.MessageSystemAttributeName{types.MessageSystemAttributeNameAll}}
		call, cancel := context.WithTimeout(ctx, wait+callLimit)
		out, err := c.ReceiveMessage(call, in)
		cancel()
		if err != nil {
			if n > 0 {
				return nil // it comes up again
			}
			return err
		}
		k.mu.Lock()
		for i := range out.Messages {
			k.waiting = append(k.waiting, message(&out.Messages[i]))
		}
		k.mu.Unlock()
		n += len(out.Messages)
		if len(out.Messages) < perCall || !k.short {
			break
		}
		wait = 0
	}
	return nil
}

func seconds(d time.Duration) int32 { return int32((d + time.Second - 1) / time.Second) }

func message(m *types.Message) trigger.Message {
	t := trigger.Message{}
	t.Body, t.Headers, t.Bad = unpack(aws.ToString(m.Body), m.MessageAttributes)
	if t.ID = trigger.Header(t.Headers, trigger.HeaderMessageID); t.ID == "" {
		t.ID = aws.ToString(m.MessageId)
	}
	t.Key = m.Attributes["MessageGroupId"]
	if ms, err := strconv.ParseInt(m.Attributes["SentTimestamp"], 10, 64); err == nil {
		t.At = time.UnixMilli(ms)
	}
	n, err := strconv.Atoi(m.Attributes["ApproximateReceiveCount"])
	t.Redelivered = err == nil && n > 1
	t.Handle = &held{receipt: aws.ToString(m.ReceiptHandle), group: t.Key, id: aws.ToString(m.MessageId)}
	return t
}

// free notes that messages are not out any more. k.mu is held.
func (k *source) free(h *held) {
	if k.busy[h.group] == h.id {
		delete(k.busy, h.group)
		select {
		case k.freed <- struct{}{}:
		default:
		}
	}
}

// callsAtOnce is how many batches are on their way at once.
const callsAtOnce = 8

// batches calls fn for the receipts of messages, ten at a time, and returns what
// failed.
func (k *source) batches(ms []trigger.Message, fn func(c *sqs.Client, url string, receipts []string) ([]types.BatchResultErrorEntry, error)) error {
	k.mu.Lock()
	c, url := k.c, k.url
	k.mu.Unlock()
	if c == nil {
		return errNotConnected
	}
	var receipts []string
	for i := range ms {
		if h, ok := ms[i].Handle.(*held); ok {
			receipts = append(receipts, h.receipt)
		}
	}
	var wg sync.WaitGroup
	var mu sync.Mutex
	var failed error
	slots := make(chan struct{}, callsAtOnce)
	for part := range slices.Chunk(receipts, perCall) {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			bad, err := fn(c, url, part)
			if err == nil && len(bad) > 0 {
				err = fmt.Errorf("%d of %d: %s %s", len(bad), len(part), aws.ToString(bad[0].Code), aws.ToString(bad[0].Message))
			}
			if err != nil {
				mu.Lock()
				failed = err
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	return failed
}

// Ack implements trigger.Source.
func (k *source) Ack(ctx context.Context, ms []trigger.Message) error {
	ctx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	err := k.batches(ms, func(c *sqs.Client, url string, receipts []string) ([]types.BatchResultErrorEntry, error) {
		in := &sqs.DeleteMessageBatchInput{QueueUrl: &url}
		for i, r := range receipts {
			in.Entries = append(in.Entries, types.DeleteMessageBatchRequestEntry{Id: aws.String(strconv.Itoa(i)), ReceiptHandle: &r})
		}
		out, err := c.DeleteMessageBatch(ctx, in)
		if err != nil {
			return nil, err
		}
		return out.Failed, nil
	})
	k.mu.Lock()
	defer k.mu.Unlock()
	for i := range ms {
		if h, ok := ms[i].Handle.(*held); ok {
			k.free(h)
		}
	}
	return err
}

// Keep implements trigger.Keeper: what is held stays invisible, and so does what
// waits behind it.
func (k *source) Keep(ctx context.Context, ms []trigger.Message) error {
	ctx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	k.mu.Lock()
	ms = append(slices.Clone(ms), k.waiting...)
	k.mu.Unlock()
	return k.batches(ms, func(c *sqs.Client, url string, receipts []string) ([]types.BatchResultErrorEntry, error) {
		in := &sqs.ChangeMessageVisibilityBatchInput{QueueUrl: &url}
		for i, r := range receipts {
			in.Entries = append(in.Entries, types.ChangeMessageVisibilityBatchRequestEntry{Id: aws.String(strconv.Itoa(i)), ReceiptHandle: &r,
				VisibilityTimeout: seconds(k.s.Duration("visibility_timeout"))})
		}
		out, err := c.ChangeMessageVisibilityBatch(ctx, in)
		if err != nil {
			return nil, err
		}
		return out.Failed, nil
	})
}

// Health implements trigger.Source.
func (k *source) Health(context.Context) trigger.Health {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.c == nil {
		return trigger.Health{Detail: errNotConnected.Error()}
	}
	if k.last != nil {
		return trigger.Health{Detail: k.last.Error()}
	}
	return trigger.Health{OK: true}
}

// Lag implements trigger.Source: about as many, SQS says.
func (k *source) Lag(ctx context.Context) (int64, error) {
	k.mu.Lock()
	c, url := k.c, k.url
	k.mu.Unlock()
	if c == nil {
		return 0, trigger.ErrNotKnown
	}
	names := []types.QueueAttributeName{types.QueueAttributeNameApproximateNumberOfMessages, types.QueueAttributeNameApproximateNumberOfMessagesNotVisible}
	out, err := c.GetQueueAttributes(ctx, &sqs.GetQueueAttributesInput{QueueUrl: &url, AttributeNames: names})
	if err != nil {
		return 0, err
	}
	var n int64
	for _, name := range names {
		one, err := strconv.ParseInt(out.Attributes[string(name)], 10, 64)
		if err != nil {
			return 0, err
		}
		n += one
	}
	return n, nil
}

// Capabilities implements trigger.Source.
func (k *source) Capabilities() trigger.Caps {
	c := caps
	c.KeepEvery, c.MaxOut = k.s.Duration("visibility_timeout")/2, k.s.Int("max_in_flight")
	return c
}

// Close implements trigger.Source. What was not given out is visible again at once,
// where that can be said quickly.
func (k *source) Close() error {
	k.mu.Lock()
	if k.c == nil {
		k.mu.Unlock()
		return nil
	}
	k.end()
	k.mu.Unlock()
	k.gone.Wait()
	k.mu.Lock()
	var back []*held
	for _, m := range k.waiting {
		back = append(back, m.Handle.(*held))
	}
	k.waiting = nil
	k.mu.Unlock()
	if len(back) > 0 {
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		defer cancel()
		if err := k.giveBack(ctx, back); err != nil {
			k.log.Warn("messages are redelivered after their visibility timeout", "messages", len(back), "error", err)
		}
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.c = nil
	return nil
}

var (
	_ trigger.Source = (*source)(nil)
	_ trigger.Keeper = (*source)(nil)
)
