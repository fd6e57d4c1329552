package sqs

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
	"sync"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"thread/bridge/adapter"
	"thread/bridge/trigger"
)

// sink sends in batches of ten.
type sink struct {
	s   *adapter.Settings
	mu  sync.Mutex
	c   *sqs.Client
	url string
}

// Connect implements trigger.Sink. SQS does not tell what it has.
func (k *sink) Connect(ctx context.Context) (int64, error) {
	c, url, _, err := open(ctx, k.s)
	if err != nil {
		return 0, err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.c, k.url = c, url
	return 0, nil
}

// maxCallBytes bounds what one call sends; a message that is larger goes alone.
const maxCallBytes = 256 << 10

// Publish implements trigger.Sink.
func (k *sink) Publish(ctx context.Context, ms []trigger.Outgoing) error {
	k.mu.Lock()
	c, url := k.c, k.url
	k.mu.Unlock()
	if c == nil {
		return errNotConnected
	}
	var part []types.SendMessageBatchRequestEntry
	size := 0
	for i := range ms {
		m := &ms[i]
		body, attributes := pack(m.Body, m.Headers)
		e := types.SendMessageBatchRequestEntry{Id: aws.String(strconv.Itoa(i)), MessageBody: &body, MessageAttributes: attributes}
		if isFIFO(url) {
			e.MessageGroupId, e.MessageDeduplicationId = aws.String(groupID(k.s, m.Key)), aws.String(limited(m.ID))
		}
		n := len(body)
		for name, a := range attributes {
			n += len(name) + len("String") + len(*a.StringValue)
		}
		if len(part) == perCall || len(part) > 0 && size+n > maxCallBytes {
			if err := k.send(ctx, c, url, part, ms); err != nil {
				return err
			}
			part, size = nil, 0
		}
		part, size = append(part, e), size+n
	}
	return k.send(ctx, c, url, part, ms)
}

func (k *sink) send(ctx context.Context, c *sqs.Client, url string, part []types.SendMessageBatchRequestEntry, ms []trigger.Outgoing) error {
	if len(part) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	out, err := c.SendMessageBatch(ctx, &sqs.SendMessageBatchInput{QueueUrl: &url, Entries: part})
	if err != nil {
		return err
	}
	for _, f := range out.Failed {
		i, _ := strconv.Atoi(aws.ToString(f.Id))
		return fmt.Errorf("event %d: %s %s", ms[i].Event, aws.ToString(f.Code), aws.ToString(f.Message))
	}
	return nil
}

// groupID is the MessageGroupId of a message with that key.
func groupID(s *adapter.Settings, key string) string {
	if key == "" {
		key = s.Text("group_id")
	}
	return limited(key)
}

// limited is s where SQS takes it as the id of a group or for deduplication, of 128
// characters without spaces, else its hash.
func limited(s string) string {
	if s != "" && len(s) <= 128 && strings.IndexFunc(s, func(r rune) bool { return r <= ' ' || r > '~' }) < 0 {
		return s
	}
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:])
}

// Send implements trigger.Sender.
func (k *sink) Send(ctx context.Context, m trigger.Message) (string, error) {
	c, url, _, err := open(ctx, k.s)
	if err != nil {
		return "", err
	}
	one := []trigger.Outgoing{{ID: m.ID, Queue: k.s.Queue, Key: m.Key, Headers: m.Headers, Body: m.Body}}
	return m.ID, (&sink{s: k.s, c: c, url: url}).Publish(ctx, one)
}

// Health implements trigger.Sink.
func (k *sink) Health(context.Context) trigger.Health {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.c == nil {
		return trigger.Health{Detail: errNotConnected.Error()}
	}
	return trigger.Health{OK: true}
}

// Capabilities implements trigger.Sink.
func (k *sink) Capabilities() trigger.Caps { return outCaps }

// Close implements trigger.Sink.
func (k *sink) Close() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.c = nil
	return nil
}

var (
	_ trigger.Sink   = (*sink)(nil)
	_ trigger.Sender = (*sink)(nil)
)
