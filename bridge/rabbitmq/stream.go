package rabbitmq

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"thread/bridge/trigger"
)

// A stream is read by offsets, which the thread keeps. The server reports nothing when
// a stream was made, and one that was deleted and made again has the same offsets.
// So its generation is the name of an exchange: durable, auto-delete, and bound to
// the stream by only this program. The server deletes it together with its last binding,
// which is when the stream is deleted; and its name is never used again.

// exchangePrefix begins the names of these exchanges.
const exchangePrefix = "thread-bridge."

// generationKey is the record with the generation's name. That name is the key of the
// position: the next offset, big-endian.
const generationKey = "generation"

// beginKey and a generation's name are the record with the time, in seconds since 1970,
// at which that generation is read as long as it has no position.
const beginKey = "begin."

// boundKey and a generation's name are a record without a value: an exchange of that name
// may be there, which no other record may tell of any more.
const boundKey = "bound."

// reached is how far this process has read, which may be further than it has stored.
type reached struct {
	generation string
	at         []byte
}

func (k *source) reach(ms []trigger.Message) {
	if p := ms[len(ms)-1].Position; p != nil {
		k.mu.Lock()
		k.reached = reached{p.Key, p.At}
		k.mu.Unlock()
	}
}

// consumeStream reads behind what was read of this generation.
func (k *source) consumeStream(ctx context.Context, s *session) error {
	k.mu.Lock()
	state, read := k.state, k.reached
	k.mu.Unlock()
	records, err := state.Load("")
	if err != nil {
		return err
	}
	name := string(records[generationKey])
	same, err := k.exists(s.conn, name)
	if err != nil {
		return err
	}
	at := records[name]
	if read.generation == name && string(read.at) > string(at) {
		at = read.at
	}
	var offset any = k.s.Text("start") // it was never read
	begin := records[beginKey+name]
	switch {
	case same && len(at) == 8:
		offset = int64(binary.BigEndian.Uint64(at))
	case same && len(begin) == 8: // and not since
		offset = time.Unix(int64(binary.BigEndian.Uint64(begin)), 0)
	case wasRead(records):
		offset = "first"
		if k.s.Log != nil {
			k.s.Log.Warn("the stream was made again: it is read from its start", "queue", k.s.Queue)
		}
	}
	if !same {
		name, same, err = k.newGeneration(ctx, s.conn, state)
	} else if len(at) != 8 {
		err = k.bind(s.conn, name) // it may have been killed before
	}
	if err != nil {
		return err
	}
	if err := s.consume(k.s.Queue, amqp.Table{offsetHeader: offset}, func(d *amqp.Delivery) (trigger.Message, error) {
		return k.fromStream(d, name)
	}); err != nil {
		return err
	}
	if placed := same && (len(at) == 8 || len(begin) == 8); placed || !wasRead(records) {
		if err := k.forget(ctx, s.conn, state, name, records); err != nil && k.s.Log != nil {
			k.s.Log.Warn("exchanges that no position belongs to any more stay until the next start", "queue", k.s.Queue, "error", err)
		}
	}
	// It may have been made again between the look and the reading.
	if still, err := k.exists(s.conn, name); err != nil || still != same {
		s.close()
		<-s.gone
		if err != nil {
			return err
		}
		return fmt.Errorf("stream %s is being made again", k.s.Queue)
	}
	return nil
}

func (k *source) fromStream(d *amqp.Delivery, generation string) (trigger.Message, error) {
	offset, ok := d.Headers[offsetHeader].(int64)
	if !ok {
		return trigger.Message{}, fmt.Errorf("queue %s delivers without offsets: RabbitMQ is older than 3.10", k.s.Queue)
	}
	delete(d.Headers, offsetHeader)
	m := fromDelivery(d)
	if m.ID == "" {
		m.ID, m.Positional = fmt.Sprintf("%s:%s:%d", k.s.Queue, generation, offset), true
	}
	m.Redelivered = false
	m.Position = &trigger.Position{Key: generation, At: binary.BigEndian.AppendUint64(nil, uint64(offset+1))}
	return m, nil
}

// exists reports whether the generation of that name is the stream's.
func (k *source) exists(conn *amqp.Connection, name string) (bool, error) {
	if name == "" {
		return false, nil
	}
	ch, err := conn.Channel()
	if err != nil {
		return false, err
	}
	err = ch.ExchangeDeclarePassive(exchangePrefix+name, amqp.ExchangeFanout, true, true, true, false, nil)
	if code(err, amqp.NotFound) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	return true, ch.Close()
}

// newGeneration stores a new name and makes its exchange: in this order, since a name
// without a position counts for nothing. Where nothing can be stored, in a dry run,
// no exchange is made, which is the second answer.
func (k *source) newGeneration(ctx context.Context, conn *amqp.Connection, state trigger.State) (string, bool, error) {
	name := newName()
	if err := state.Update(ctx, []trigger.Write{{Key: generationKey, Value: []byte(name)}}); err != nil {
		return "", false, err
	}
	records, err := state.Load(generationKey)
	if err != nil || string(records[generationKey]) != name {
		return name, false, err
	}
	return name, true, k.bind(conn, name)
}

// noteBound stores the names that would be lost if a seek were killed before its records
// are stored, or by storing them: its own, and the previous generation's.
func noteBound(ctx context.Context, state trigger.State, name string) error {
	records, err := state.Load(generationKey)
	if err != nil {
		return err
	}
	ws := []trigger.Write{{Key: boundKey + name}}
	if before := string(records[generationKey]); before != "" {
		ws = append(ws, trigger.Write{Key: boundKey + before})
	}
	return state.Update(ctx, ws)
}

// wasRead reports whether there is a place in some generation.
func wasRead(records map[string][]byte) bool {
	for key := range records {
		if key != generationKey && !strings.HasPrefix(key, boundKey) {
			return true
		}
	}
	return false
}

// nameOf returns the generation that a record belongs to.
func nameOf(key string) string {
	return strings.TrimPrefix(strings.TrimPrefix(key, beginKey), boundKey)
}

// forget deletes the exchanges of all generations but name, then their records.
func (k *source) forget(ctx context.Context, conn *amqp.Connection, state trigger.State, name string, records map[string][]byte) error {
	var over []trigger.Write
	for key := range records {
		if key != generationKey && nameOf(key) != name {
			over = append(over, trigger.Write{Key: key, Delete: true})
		}
	}
	if len(over) == 0 || !trigger.Stores(state) {
		return nil
	}
	ch, err := conn.Channel()
	if err != nil {
		return err
	}
	for _, w := range over {
		if err := ch.ExchangeDelete(exchangePrefix+nameOf(w.Key), false, false); err != nil { // it need not be there
			return err
		}
	}
	return errors.Join(ch.Close(), state.Update(ctx, over))
}

func newName() string {
	b := make([]byte, 8)
	rand.Read(b)
	return hex.EncodeToString(b)
}

func (k *source) bind(conn *amqp.Connection, name string) error {
	ch, err := conn.Channel()
	if err != nil {
		return err
	}
	if err = ch.ExchangeDeclare(exchangePrefix+name, amqp.ExchangeFanout, true, true, true, false, nil); err == nil {
		err = ch.QueueBind(k.s.Queue, "", exchangePrefix+name, false, nil)
	}
	if err != nil {
		return fmt.Errorf("exchange %s%s, which tells when stream %s is made again: %w", exchangePrefix, name, k.s.Queue, err)
	}
	return ch.Close()
}

// copy publishes a message once more, with its id.
func (k *source) copy(ctx context.Context, m *trigger.Message) error {
	h := map[string]string{}
	for name, v := range m.Headers {
		h[name] = v
	}
	if trigger.Header(h, trigger.HeaderMessageID) == "" {
		h[trigger.HeaderMessageID] = m.ID
	}
	return k.out.publish(ctx, outgoing{key: k.s.Queue, Publishing: toPublishing(m.Body, h)})
}
