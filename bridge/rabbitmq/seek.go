package rabbitmq

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"thread/bridge/trigger"
)

// Seek implements trigger.Seeker, in streams. The server does not tell which offset
// belongs to a time, but reads from there: so the time is stored until there is a
// position.
func (k *source) Seek(ctx context.Context, state trigger.State, to trigger.Place) ([]trigger.Write, error) {
	if to.Name == "time" && to.At.After(time.Now()) {
		return nil, fmt.Errorf("%s is in the future: seek to the end", to.At.Format(time.RFC3339))
	}
	ctx, cancel := context.WithTimeout(ctx, max(k.s.Duration("connect_timeout"), 100*time.Millisecond))
	defer cancel()
	conn, err := dial(ctx, k.s, "seek")
	if err != nil {
		return nil, err
	}
	defer hangUp(conn)
	if kind, err := kindOf(conn, k.s.Queue); err != nil || kind != "stream" {
		if err == nil {
			err = fmt.Errorf("queue %s is not a stream: it has no positions to seek in", k.s.Queue)
		}
		return nil, err
	}
	name := newName()
	at := trigger.Write{Key: name, Value: make([]byte, 8)}
	switch to.Name {
	case "end":
		end, err := endOf(ctx, conn, k.s.Queue)
		if err != nil {
			return nil, err
		}
		binary.BigEndian.PutUint64(at.Value, uint64(end))
	case "time":
		at.Key = beginKey + name
		binary.BigEndian.PutUint64(at.Value, uint64(max(to.At.Unix(), 0)))
	}
	if err := noteBound(ctx, state, name); err != nil {
		return nil, err
	}
	if err := k.bind(conn, name); err != nil {
		return nil, err
	}
	return []trigger.Write{{Key: generationKey, Value: []byte(name)}, at}, nil
}

// endOf returns the offset behind the last message of a stream. The server tells only
// the offsets of messages, so its last chunk is read. It delivers what there is in one
// go, which is fewer messages than may be out: all come before its answer to a cancel.
func endOf(ctx context.Context, conn *amqp.Connection, stream string) (int64, error) {
	ch, err := conn.Channel()
	if err != nil {
		return 0, err
	}
	if err := ch.Qos(maxPrefetch, 0, false); err != nil {
		return 0, err
	}
	const tag = "end"
	deliveries, err := ch.Consume(stream, tag, false, false, false, false, amqp.Table{offsetHeader: "last"})
	if err != nil {
		return 0, err
	}
	var last amqp.Delivery
	select {
	case last = <-deliveries:
	case <-ctx.Done():
		return 0, fmt.Errorf("stream %s shows no message: an empty one has no end, seek to its start", stream)
	}
	if err := ch.Cancel(tag, false); err != nil {
		return 0, err
	}
	for d := range deliveries { // it is closed behind the last one
		last = d
	}
	offset, ok := last.Headers[offsetHeader].(int64)
	if !ok {
		return 0, errors.New("the connection was lost")
	}
	return offset + 1, nil
}
