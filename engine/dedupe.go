package engine

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"iter"

	"go.etcd.io/bbolt"

	"thread/event"
	"thread/index"
)

// Duplicate is a draft that was not stored, because its dedupe key is that of an
// event that is.
type Duplicate struct {
	Index int64 // of the draft, from 0
	ID    int64 // of the event
}

// IDs yields, for every draft in order, the id of its event, and whether the
// event was there before.
func (b *Batch) IDs() iter.Seq2[int64, bool] {
	return func(yield func(int64, bool) bool) {
		next, duplicates := b.First, b.Duplicates
		for i := range b.Count {
			if len(duplicates) > 0 && duplicates[0].Index == i {
				if !yield(duplicates[0].ID, true) {
					return
				}
				duplicates = duplicates[1:]
				continue
			}
			if !yield(next, false) {
				return
			}
			next++
		}
	}
}

// A key record is valid if and only if its crc fits and it has this form:
//
//	id         8  of the event that was stored with the key
//	stored_at  8  milliseconds since 1970
//	window     8  milliseconds; the key expires at stored_at + window
//	before     24 the same three of the event that had the key before, if its
//	              window was not over: or nothing. It comes back when a crash
//	              takes this one away with the batch that it came in
//	crc        4
//
// For every key record there is one entry in dedupe_expiry.
type keyRecord struct {
	id, storedAt, window int64
	before               *keyRecord
}

func (r *keyRecord) append(b []byte) []byte {
	for _, n := range []int64{r.id, r.storedAt, r.window} {
		b = binary.BigEndian.AppendUint64(b, uint64(n))
	}
	if r.before != nil {
		b = r.before.append(b)
	}
	return b
}

// put stores r with its expiry.
func (r *keyRecord) put(keys, expiry *bbolt.Bucket, key []byte) error {
	if err := index.Put(keys, key, index.AppendSum(r.append(nil), key)); err != nil {
		return err
	}
	at := r.expiryKey()
	return index.Put(expiry, at, index.AppendSum(bytes.Clone(key), at))
}

func (r *keyRecord) expiryKey() []byte {
	return binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(nil, uint64(r.storedAt+r.window)), uint64(r.id))
}

func dedupeKey(key string) []byte { return append([]byte{'k'}, key...) }

func decodeKeyRecord(key, value []byte) (r keyRecord, err error) {
	b, ok := index.CheckSum(key, value)
	if !ok || len(b) != 24 && len(b) != 48 {
		return r, fmt.Errorf("%w: dedupe key %q", ErrCorrupt, key)
	}
	numbers := []*int64{&r.id, &r.storedAt, &r.window}
	if len(b) == 48 {
		r.before = &keyRecord{}
		numbers = append(numbers, &r.before.id, &r.before.storedAt, &r.before.window)
	}
	for i, n := range numbers {
		*n = int64(binary.BigEndian.Uint64(b[i*8:]))
	}
	return r, nil
}

// window returns the draft's window in milliseconds, at least one.
func window(d *event.Draft) int64 {
	w := d.DedupeWindow
	if w == 0 {
		w = event.DefaultDedupeWindow
	}
	return max(1, w.Milliseconds())
}

// pushOnce is push for a draft that may have a dedupe key. When the key counts,
// nothing is stored, and the event that has it is returned; only its id if that
// event is not stored any more.
func (tx *Tx) pushOnce(d *event.Draft, createdAt string) (e event.Event, duplicate bool, err error) {
	tx.pushes = true
	if d.DedupeKey == "" {
		e, err = tx.push(d, createdAt)
		return e, false, err
	}
	id, ok, err := tx.firstWith(d)
	if err != nil {
		return e, false, err
	}
	if ok {
		e, _, err = tx.event(id)
		return e, true, err
	}
	if e, err = tx.push(d, createdAt); err != nil {
		return e, false, err
	}
	return e, false, tx.keepKey(d, e.ID)
}

// counts reports whether a key that was stored so many milliseconds ago still
// counts for a push with that window. One that was stored in the future was stored
// by a clock that was ahead, nobody knows when: a push that it swallowed would be
// lost, and one that it does not is at worst there twice.
func (r *keyRecord) counts(age, window int64) bool {
	return age < r.window && age < window && age >= -min(r.window, window, clockSkew.Milliseconds())
}

// firstWith returns the event that has d's key, if the key counts: neither the
// window with which it was stored nor that of d is over.
func (tx *Tx) firstWith(d *event.Draft) (id int64, ok bool, err error) {
	keys, err := index.Bucket(tx.b, bucketDedupe)
	if keys == nil {
		return 0, false, err
	}
	key := dedupeKey(d.DedupeKey)
	v, err := index.Get(keys, key)
	if v == nil {
		return 0, false, err
	}
	r, err := decodeKeyRecord(key, v)
	if err != nil {
		return 0, false, err
	}
	if r.id > tx.st.lastID {
		return 0, false, fmt.Errorf("%w: dedupe key %q of event %d, which was never given", ErrCorrupt, key, r.id)
	}
	age := tx.t.now().UnixMilli() - r.storedAt
	return r.id, r.counts(age, window(d)), nil
}

// keepKey stores d's key for the new event id, in place of one that does not
// count for d.
func (tx *Tx) keepKey(d *event.Draft, id int64) error {
	keys, err := tx.later(bucketDedupe)
	if err != nil {
		return err
	}
	expiry, err := tx.later(bucketDedupeExpiry)
	if err != nil {
		return err
	}
	key := dedupeKey(d.DedupeKey)
	tx.keyed++
	r := keyRecord{id: id, storedAt: tx.t.now().UnixMilli(), window: window(d)}
	v, err := index.Get(keys, key)
	if err != nil {
		return err
	}
	if v != nil {
		old, err := decodeKeyRecord(key, v)
		if err != nil {
			return err
		}
		if err := index.Delete(expiry, old.expiryKey()); err != nil {
			return err
		}
		// Of a long batch nothing counts before its end, not even for itself.
		visible, err := decodeState(tx.meta.Get(keyState))
		if err != nil {
			return err
		}
		if r.before = old.before; old.id <= visible.head {
			r.before = &old
			old.before = nil
		}
		if r.before != nil && !r.before.counts(r.storedAt-r.before.storedAt, r.before.window) {
			r.before = nil // over
		}
	}
	return r.put(keys, expiry, key)
}

// sweepAtLeast is how many expired keys a transaction that pushes may delete
// beside two for every key that it adds: so the table shrinks, and no push has
// much to do.
const sweepAtLeast = 64

// sweepKeys deletes some of the expired keys. Every transaction that pushes does
// so at its end, whoever pushes in it.
func (tx *Tx) sweepKeys() error {
	expiry, err := index.Bucket(tx.b, bucketDedupeExpiry)
	if expiry == nil {
		return err
	}
	now := tx.t.now().UnixMilli()
	_, err = tx.dropKeys(expiry, func(at, _ int64) (drop, more bool) { return at <= now, at <= now }, sweepAtLeast+2*tx.keyed, false)
	return err
}

// dropKeysAfter deletes some of the keys of events above head, which a long batch
// left that did not come to its end. It reports whether there may be more.
func (tx *Tx) dropKeysAfter(head int64) (more bool, err error) {
	expiry, err := index.Bucket(tx.b, bucketDedupeExpiry)
	if expiry == nil {
		return false, err
	}
	n, err := tx.dropKeys(expiry, func(_, id int64) (bool, bool) { return id > head, true }, tx.t.maxGroup, true)
	return n == tx.t.maxGroup, err
}

// dropKeys deletes up to n keys for which which says so, in the order of expiry,
// until it says that there are no more. With restore, the event that had the key
// before has it again.
func (tx *Tx) dropKeys(expiry *bbolt.Bucket, which func(at, id int64) (drop, more bool), n int, restore bool) (int, error) {
	type entry struct{ at, key []byte }
	var entries []entry // collected first: a cursor is slow among deleted keys
	err := index.Range(expiry, nil, func(k, v []byte) (more bool, err error) {
		key, ok := index.CheckSum(k, v)
		if !ok || len(k) != 16 {
			return false, fmt.Errorf("%w: expiry of a dedupe key", ErrCorrupt)
		}
		drop, more := which(int64(binary.BigEndian.Uint64(k)), int64(binary.BigEndian.Uint64(k[8:])))
		if drop {
			entries = append(entries, entry{bytes.Clone(k), bytes.Clone(key)})
		}
		return more && len(entries) < n, nil
	})
	if err != nil || len(entries) == 0 {
		return 0, err
	}
	keys, err := tx.later(bucketDedupe)
	if err != nil {
		return 0, err
	}
	for _, e := range entries {
		v, err := index.Get(keys, e.key)
		if err != nil {
			return 0, err
		}
		r, err := decodeKeyRecord(e.key, v)
		if err == nil {
			err = index.Delete(expiry, e.at)
		}
		if err == nil && restore && r.before != nil {
			err = r.before.put(keys, expiry, e.key)
		} else if err == nil {
			err = index.Delete(keys, e.key)
		}
		if err != nil {
			return 0, err
		}
	}
	return len(entries), nil
}
