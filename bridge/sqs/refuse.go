package sqs

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
	"github.com/aws/smithy-go"

	"thread/bridge/adapter"
	"thread/bridge/trigger"
)

// Nack implements trigger.Source. SQS knows no refusal: with requeue the message is
// visible again at once, and without it goes where the queue's redrive policy says.
func (k *source) Nack(ctx context.Context, m trigger.Message, requeue bool) error {
	h, ok := m.Handle.(*held)
	if !ok {
		return nil
	}
	k.mu.Lock()
	redrive := k.redrive
	k.mu.Unlock()
	if !requeue {
		if redrive != "" {
			if err := k.toQueue(ctx, redrive, &m, m.Headers); err != nil {
				return err
			}
		}
		return k.Ack(ctx, []trigger.Message{m})
	}
	// Those behind it in its group are redelivered after it.
	k.mu.Lock()
	var back []*held
	if h.group != "" {
		k.waiting = slices.DeleteFunc(k.waiting, func(w trigger.Message) bool {
			b := w.Handle.(*held)
			if b.group == h.group {
				back = append(back, b)
			}
			return b.group == h.group
		})
	}
	k.mu.Unlock()
	err := k.giveBack(ctx, append(back, h))
	k.mu.Lock()
	k.free(h)
	k.mu.Unlock()
	return err
}

// giveBack makes messages visible. One that is visible, or gone, is not an error.
func (k *source) giveBack(ctx context.Context, list []*held) (err error) {
	k.mu.Lock()
	c, url := k.c, k.url
	k.mu.Unlock()
	if c == nil {
		return errNotConnected
	}
	ctx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	for _, h := range list {
		_, e := c.ChangeMessageVisibility(ctx, &sqs.ChangeMessageVisibilityInput{QueueUrl: &url, ReceiptHandle: &h.receipt, VisibilityTimeout: 0})
		var invalid *types.ReceiptHandleIsInvalid
		var visible *types.MessageNotInflight
		if e != nil && !errors.As(e, &invalid) && !errors.As(e, &visible) {
			err = e
		}
	}
	return err
}

// ProbeDLQ implements trigger.Prober.
func (k *source) ProbeDLQ(ctx context.Context) (string, error) {
	k.mu.Lock()
	c := k.c
	k.mu.Unlock()
	if c == nil {
		return "", errNotConnected
	}
	ctx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	name := k.dlqName()
	_, err := find(ctx, c, name)
	var missing *types.QueueDoesNotExist
	switch {
	case errors.As(err, &missing):
		return trigger.MadeLater(nameOf(name)), nil
	case err != nil:
		return "", fmt.Errorf("queue %s: %w", nameOf(name), err)
	}
	return "", nil
}

// SendToDLQ implements trigger.Source: to dlq_name, else to where the queue's redrive
// policy says, else to the queue of that name with -dlq. It is made when it is not
// there.
func (k *source) SendToDLQ(ctx context.Context, m trigger.Message, r trigger.Reason) error {
	return k.toQueue(ctx, k.dlqName(), &m, adapter.DLQHeaders(&m, &r))
}

func (k *source) dlqName() string {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.s.DLQ != "" {
		return k.s.DLQ
	}
	if k.redrive != "" {
		return k.redrive
	}
	if name := nameOf(k.s.Queue); !isFIFO(name) {
		return name + "-dlq"
	} else {
		return strings.TrimSuffix(name, ".fifo") + "-dlq.fifo"
	}
}

func (k *source) toQueue(ctx context.Context, queue string, m *trigger.Message, headers map[string]string) error {
	k.mu.Lock()
	c, address := k.c, k.dlqs[queue]
	k.mu.Unlock()
	if c == nil {
		return errNotConnected
	}
	ctx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	if address == "" {
		var err error
		address, err = find(ctx, c, queue)
		var missing *types.QueueDoesNotExist
		if errors.As(err, &missing) {
			in := &sqs.CreateQueueInput{QueueName: aws.String(nameOf(queue)), Attributes: map[string]string{"MessageRetentionPeriod": "1209600"}}
			if isFIFO(queue) {
				in.Attributes["FifoQueue"] = "true"
			}
			var out *sqs.CreateQueueOutput
			if out, err = c.CreateQueue(ctx, in); err == nil {
				address = aws.ToString(out.QueueUrl)
				k.log.Info("made a dead letter queue", "dlq", nameOf(queue))
			}
		}
		if err != nil {
			return fmt.Errorf("dead letter queue %s: %w", nameOf(queue), err)
		}
		k.mu.Lock()
		k.dlqs[queue] = address
		k.mu.Unlock()
	}
	in := &sqs.SendMessageInput{QueueUrl: &address}
	var body string
	body, in.MessageAttributes = pack(m.Body, headers)
	in.MessageBody = &body
	if isFIFO(address) {
		in.MessageGroupId, in.MessageDeduplicationId = aws.String(groupID(k.s, m.Key)), aws.String(limited(m.ID))
	}
	if _, err := c.SendMessage(ctx, in); err != nil {
		var answer smithy.APIError
		// There is no separate code for it.
		if errors.As(err, &answer) && answer.ErrorCode() == "InvalidParameterValue" && strings.Contains(answer.ErrorMessage(), "must be shorter than") {
			err = fmt.Errorf("%w: %w", trigger.ErrTooLarge, err)
		}
		return fmt.Errorf("dead letter queue %s: %w", nameOf(queue), err)
	}
	return nil
}
