package trigger

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"time"

	"thread/engine"
)

// Table "trigger" of a thread. Every value ends with the CRC-32C of key and value.
// Texts within a key have their length before them, as an uvarint.
//
//	i                                            16 random bytes: the thread's own name
//	s <adapter> <queue> <group> key              positions and writes of an adapter
//	k <trigger> <tenant> key                     a key (keyRecord)
//	x time(8) key                                when a settled key has ended; the value is empty
//	o <trigger> event(8)                         an event that waits to be settled (openRecord)
//	l <trigger> number(8)                        the ledger
//	d <trigger> number(8)                        a message that waits for the dead letter queue (parkedRecord)
//	c <trigger>                                  what was ordered by hand (control)
//	u <trigger> <consumer>                       the handler that the trigger gave its consumer
//
// A key longer than maxPlainKey bytes stands as its SHA-256.
const table = "trigger"

const (
	kindIdentity = 'i'
	kindState    = 's'
	kindKey      = 'k'
	kindExpiry   = 'x'
	kindOpen     = 'o'
	kindLedger   = 'l'
	kindControl  = 'c'
	kindOwned    = 'u'
	kindParked   = 'd'
)

const maxPlainKey = 1024

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func key(kind byte, parts ...string) []byte {
	b := []byte{kind}
	for _, p := range parts {
		if len(p) > maxPlainKey {
			sum := sha256.Sum256([]byte(p))
			p = "sha256:" + string(sum[:])
		}
		b = binary.AppendUvarint(b, uint64(len(p)))
		b = append(b, p...)
	}
	return b
}

func numbered(prefix []byte, n int64) []byte {
	return binary.BigEndian.AppendUint64(bytes.Clone(prefix), uint64(n))
}

func numberOf(k []byte) int64 { return int64(binary.BigEndian.Uint64(k[len(k)-8:])) }

// after returns the first key that does not begin with prefix.
func after(prefix []byte) []byte {
	end := bytes.Clone(prefix)
	for i := len(end) - 1; i >= 0; i-- {
		if end[i]++; end[i] != 0 {
			return end[:i+1]
		}
	}
	return nil
}

func put(r *engine.Records, key, value []byte) error {
	sum := crc32.Update(crc32.Checksum(key, castagnoli), castagnoli, value)
	b := make([]byte, 0, len(value)+4)
	return r.Put(key, binary.BigEndian.AppendUint32(append(b, value...), sum))
}

// get returns the value, nil when there is none.
func get(r *engine.Records, key []byte) ([]byte, error) {
	v := r.Get(key)
	if v == nil {
		return nil, nil
	}
	return checked(key, v)
}

func checked(key, v []byte) ([]byte, error) {
	if len(v) < 4 {
		return nil, fmt.Errorf("%w: record %x of triggers", engine.ErrCorrupt, key)
	}
	value := v[: len(v)-4 : len(v)-4]
	if binary.BigEndian.Uint32(v[len(v)-4:]) != crc32.Update(crc32.Checksum(key, castagnoli), castagnoli, value) {
		return nil, fmt.Errorf("%w: record %x of triggers", engine.ErrCorrupt, key)
	}
	return value, nil
}

func putJSON(r *engine.Records, key []byte, v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return put(r, key, b)
}

func getJSON(r *engine.Records, key []byte, v any) (bool, error) {
	b, err := get(r, key)
	if b == nil || err != nil {
		return false, err
	}
	if err := json.Unmarshal(b, v); err != nil {
		return false, fmt.Errorf("%w: record %x of triggers: %w", engine.ErrCorrupt, key, err)
	}
	return true, nil
}

// eachWith calls fn for the records whose keys begin with prefix.
func eachWith(r *engine.Records, prefix []byte, fn func(key, value []byte) error) error {
	for rec, err := range r.Ascend(prefix, after(prefix)) {
		if err != nil {
			return err
		}
		v, err := checked(rec.Key, rec.Value)
		if err != nil {
			return err
		}
		if err = fn(rec.Key, v); err != nil {
			return err
		}
	}
	return nil
}

// findIdentity reads the thread's name, "" when it has none yet.
func findIdentity(id *string) func(*engine.Tx) error {
	return func(tx *engine.Tx) error {
		r, err := tx.Records(table)
		if err != nil {
			return err
		}
		b, err := get(r, []byte{kindIdentity})
		*id = hex.EncodeToString(b)
		return err
	}
}

// Identity returns the thread's own name, 32 hexadecimal digits, and gives it one at
// the first call: what is published is named by it.
func Identity(ctx context.Context, t *engine.Thread) (id string, err error) {
	if err := t.View(ctx, findIdentity(&id)); err != nil || id != "" {
		return id, err
	}
	err = t.Update(ctx, func(tx *engine.Tx) error {
		if err := findIdentity(&id)(tx); err != nil || id != "" {
			return err
		}
		r, err := tx.Records(table)
		if err != nil {
			return err
		}
		b := make([]byte, 16)
		rand.Read(b)
		id = hex.EncodeToString(b)
		return put(r, []byte{kindIdentity}, b)
	})
	return id, err
}

// state is the State of one adapter, queue and group: what is stored when it is
// asked for.
type state struct {
	t      *engine.Thread
	prefix []byte
}

func (c *Config) stateKey(k string) []byte {
	return append(key(kindState, c.Adapter, c.Queue, c.Group), k...)
}

func newState(t *engine.Thread, c *Config) *state {
	return &state{t, c.stateKey("")}
}

// Get implements State.
func (s *state) Get(k string) []byte { return s.All(k)[k] }

// All implements State.
func (s *state) All(prefix string) map[string][]byte {
	found, _ := s.Load(prefix)
	return found
}

// Load implements State.
func (s *state) Load(prefix string) (map[string][]byte, error) {
	found := map[string][]byte{}
	err := s.t.View(context.Background(), func(tx *engine.Tx) error {
		r, err := tx.Records(table)
		if err != nil {
			return err
		}
		return eachWith(r, append(bytes.Clone(s.prefix), prefix...), func(k, v []byte) error {
			found[string(k[len(s.prefix):])] = bytes.Clone(v)
			return nil
		})
	})
	return found, err
}

// Update implements State.
func (s *state) Update(ctx context.Context, ws []Write) error {
	return s.t.Update(ctx, func(tx *engine.Tx) error {
		r, err := tx.Records(table)
		if err != nil {
			return err
		}
		for _, w := range ws {
			if err := s.write(r, w); err != nil {
				return err
			}
		}
		return nil
	})
}

func (s *state) write(r *engine.Records, w Write) error {
	k := append(bytes.Clone(s.prefix), w.Key...)
	if w.Delete {
		return r.Delete(k)
	}
	return put(r, k, w.Value)
}

// keyRecord is what is known of a message by its key. It is valid if and only if
// its sum fits and it has this form:
//
//	form        1  1
//	state       1  unsettled, settled, requeued
//	event       8  0 when nothing was stored, as of a message that was rejected
//	deliveries  8
//	settled_at  8  milliseconds since 1970, 0: unsettled
//	window      8  milliseconds from settling
type keyRecord struct {
	state      byte
	event      int64
	deliveries int64
	settledAt  int64
	window     int64
}

const (
	unsettled = 1 // the broker is not known to have been told: it never expires
	settled   = 2
	requeued  = 3 // the broker was asked to deliver it again
)

var errKeyForm = errors.New("not a key record")

func (k *keyRecord) encode() []byte {
	b := []byte{1, k.state}
	for _, n := range []int64{k.event, k.deliveries, k.settledAt, k.window} {
		b = binary.BigEndian.AppendUint64(b, uint64(n))
	}
	return b
}

func decodeKey(b []byte) (k keyRecord, err error) {
	if len(b) != 34 || b[0] != 1 {
		return k, fmt.Errorf("%w: %w", engine.ErrCorrupt, errKeyForm)
	}
	k.state = b[1]
	for i, n := range []*int64{&k.event, &k.deliveries, &k.settledAt, &k.window} {
		*n = int64(binary.BigEndian.Uint64(b[2+8*i:]))
	}
	return k, nil
}

// clockSkew is how far a clock may be set back without being called wrong.
const clockSkew = 5 * time.Minute

// over reports whether a settled key does not count any more. One that was settled
// in the future was so by a clock that was ahead: a message that it swallowed would
// be lost, and one that it does not is at worst there twice.
func (k *keyRecord) over(now time.Time) bool {
	age := now.UnixMilli() - k.settledAt
	return k.state == settled && (age >= k.window || age < -min(k.window, clockSkew.Milliseconds()))
}

func (k *keyRecord) expiryKey(at []byte) []byte {
	return append(numbered([]byte{kindExpiry}, k.settledAt+k.window), at...)
}

// putKey stores k in place of old, nil for none, with its expiry.
func putKey(r *engine.Records, at []byte, old, k *keyRecord) error {
	if old != nil && old.state == settled {
		if err := r.Delete(old.expiryKey(at)); err != nil {
			return err
		}
	}
	if k.state == settled {
		if err := put(r, k.expiryKey(at), nil); err != nil {
			return err
		}
	}
	return put(r, at, k.encode())
}

// sweepAtLeast is how many expired keys, or old rows of the ledger, a transaction
// deletes next to two for every one that it adds.
const sweepAtLeast = 64

// sweepKeys deletes up to n keys that have ended.
func sweepKeys(r *engine.Records, now time.Time, n int) error {
	type pair struct{ expiry, at []byte }
	var over []pair
	for rec, err := range r.Ascend([]byte{kindExpiry}, numbered([]byte{kindExpiry}, now.UnixMilli())) {
		if err != nil {
			return err
		}
		if _, err := checked(rec.Key, rec.Value); err != nil || len(rec.Key) < 10 {
			return fmt.Errorf("%w: expiry of a key of triggers", engine.ErrCorrupt)
		}
		over = append(over, pair{bytes.Clone(rec.Key), bytes.Clone(rec.Key[9:])})
		if len(over) >= n {
			break
		}
	}
	for _, p := range over {
		if err := r.Delete(p.expiry); err != nil {
			return err
		}
		if err := r.Delete(p.at); err != nil {
			return err
		}
	}
	return nil
}
