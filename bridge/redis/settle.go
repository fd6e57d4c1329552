package redis

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"time"

	"github.com/gomodule/redigo/redis"

	"thread/bridge/adapter"
	"thread/bridge/trigger"
)

// Ack implements trigger.Source.
func (k *source) Ack(ctx context.Context, ms []trigger.Message) error {
	ids := k.ids(ms)
	k.mu.Lock()
	ids, k.owed = append(k.owed, ids...), nil
	k.mu.Unlock()
	for len(ids) > 0 {
		n := min(len(ids), ackAtOnce)
		if err := k.acknowledge(ctx, ids[:n]); err != nil {
			k.mu.Lock()
			k.owed = append(k.owed, ids...)
			k.mu.Unlock()
			return err
		}
		ids = ids[n:]
	}
	return nil
}

func (k *source) acknowledge(ctx context.Context, ids []string) error {
	_, err := k.cmd.do(ctx, "XACK", redis.Args{k.s.Queue, k.s.Group}.AddFlat(ids)...)
	if err != nil {
		return err
	}
	k.release(ids)
	return nil
}

// Nack implements trigger.Source. In a separate group a requeued message is a copy.
// In a shared one it is left for the process that takes over next; one that is refused for good
// is acknowledged, since Redis has nothing configured for it.
func (k *source) Nack(ctx context.Context, m trigger.Message, requeue bool) error {
	ids := k.ids([]trigger.Message{m})
	switch {
	case !k.shared && requeue:
		h := maps.Clone(m.Headers)
		maps.DeleteFunc(h, func(name, _ string) bool { return strings.EqualFold(name, trigger.HeaderMessageID) })
		h[trigger.HeaderMessageID] = m.ID
		_, err := k.cmd.do(ctx, "XADD", append([]any{k.s.Queue, "*"}, fieldsOf(k.s.Text("body_field"), m.Body, h)...)...)
		return err
	case !k.shared || len(ids) == 0:
		return nil
	case !requeue:
		return k.acknowledge(ctx, ids)
	}
	if _, err := k.cmd.do(ctx, "XCLAIM", k.s.Queue, k.s.Group, k.consumer(), 0, ids[0], "IDLE", milliseconds(k), "JUSTID"); err != nil {
		return err
	}
	k.release(ids)
	k.mu.Lock()
	defer k.mu.Unlock()
	k.claimAt = time.Time{}
	return nil
}

// Keep implements trigger.Keeper: others do not take over what is being handled.
func (k *source) Keep(ctx context.Context, ms []trigger.Message) error {
	ids := k.ids(ms)
	if len(ids) == 0 || !k.shared {
		return nil
	}
	args := redis.Args{k.s.Queue, k.s.Group, k.consumer(), 0}.AddFlat(ids)
	_, err := k.cmd.do(ctx, "XCLAIM", append(args, "JUSTID")...)
	return err
}

func (k *source) dlq() string {
	if k.s.DLQ != "" {
		return k.s.DLQ
	}
	return k.s.Queue + ".dlq"
}

// ProbeDLQ implements trigger.Prober.
func (k *source) ProbeDLQ(ctx context.Context) (string, error) {
	kind, err := redis.String(k.cmd.do(ctx, "TYPE", k.dlq()))
	switch {
	case err != nil:
		return "", fmt.Errorf("stream %s: %w", k.dlq(), err)
	case kind == "none":
		return trigger.MadeLater(k.dlq()), nil
	case kind != "stream":
		return "", fmt.Errorf("key %s is a %s, and not a stream", k.dlq(), kind)
	}
	return "", nil
}

// SendToDLQ implements trigger.Source: to a stream.
func (k *source) SendToDLQ(ctx context.Context, m trigger.Message, r trigger.Reason) error {
	stream := k.dlq()
	add := func() error {
		_, err := k.cmd.do(ctx, "XADD", append([]any{stream, "*"}, fieldsOf(k.s.Text("body_field"), m.Body, adapter.DLQHeaders(&m, &r))...)...)
		return err
	}
	err := add()
	var answer redis.Error
	if err == nil || len(m.Body) <= alwaysTaken || errors.As(err, &answer) && !strings.Contains(err.Error(), "invalid bulk length") {
		return err
	}
	// A server that takes no such length says so and hangs up at once: the answer is
	// mostly lost. When it does so twice and is well between, that is the reason.
	if !errors.As(err, &answer) {
		if _, e := k.cmd.do(ctx, "PING"); e != nil {
			return err
		}
		if again := add(); again == nil || errors.As(again, &answer) && !strings.Contains(again.Error(), "invalid bulk length") {
			return again
		}
		if _, e := k.cmd.do(ctx, "PING"); e != nil {
			return err
		}
	}
	return fmt.Errorf("%w: %w", trigger.ErrTooLarge, err)
}

// alwaysTaken is the least that proto-max-bulk-len can be.
const alwaysTaken = 1 << 20
