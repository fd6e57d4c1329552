package engine

import (
	"bytes"
	"context"
	"fmt"
	"iter"

	"thread/event"
	"thread/internal/store"
)

// Push stores one event durably and returns it, or, for a draft whose dedupe key
// is known, stores nothing and returns the first event that had it: once Push returns nil, the
// event survives the loss of power. Calls of several goroutines on one handle
// share their syncs.
//
// Push returns [ErrInvalid] for a draft that is out of bounds, [ErrBusy],
// [ErrUnknownOutcome], and [ErrIDsExhausted] after id 2^63-1.
func (t *Thread) Push(ctx context.Context, d event.Draft) (event.Event, error) {
	p, err := t.s.Push(ctx, []event.Draft{d})
	if err != nil {
		return event.Event{}, err
	}
	return p.Events[0], nil
}

// PushBatch stores all drafts, or none, with consecutive ids in their order and one
// created_at. The errors are the errors of [Thread.Push]; the error of a bad draft names its
// index.
func (t *Thread) PushBatch(ctx context.Context, ds []event.Draft) ([]event.Event, error) {
	p, err := t.s.Push(ctx, ds)
	return p.Events, err
}

// Batch says what became of a PushAll: the ids [First, Last] are new, both 0 when
// there was nothing to store.
type Batch struct {
	First, Last int64
	Count       int64       // drafts
	Duplicates  []Duplicate // the drafts that were not stored, in order
	CreatedAt   string      // of every event
	LastSource  string      // source of the last event
	Subscribed  bool        // there are subscriptions, so a dispatch may have work
	Warning     error       // the events are stored, but events.jsonl is behind; the next push heals it
}

// PushAll stores a sequence of any length, all of it or nothing, in bounded
// memory; ids are consecutive and created_at is one. The sequence is read to its
// end, into a temporary file in run/ when it is long, before the database is
// locked. Its first error ends the call and is returned unchanged. Other errors
// are the errors of PushBatch.
func (t *Thread) PushAll(ctx context.Context, ds iter.Seq2[event.Draft, error]) (Batch, error) {
	b, err := t.s.PushAll(ctx, ds)
	if err != nil {
		return Batch{}, err
	}
	return Batch{
		First: b.First, Last: b.Last, Count: b.Count, Duplicates: duplicates(b.Duplicates), CreatedAt: b.CreatedAt,
		LastSource: b.LastSource, Subscribed: b.Subscribed, Warning: b.Warning,
	}, nil
}

func duplicates(all []store.Duplicate) (list []Duplicate) {
	for _, d := range all {
		list = append(list, Duplicate(d))
	}
	return list
}

// Duplicate is a draft that was not stored, because its dedupe key is the key of an
// event that is.
type Duplicate struct {
	Index int64 // of the draft, from 0
	ID    int64 // of the event
}

// IDs yields, for every draft in order, the id of its event, and whether the
// event was there before.
func (b *Batch) IDs() iter.Seq2[int64, bool] {
	return store.IDs(b.First, b.Count, b.Duplicates)
}

// window returns the draft's window in milliseconds, at least one.
func window(d *event.Draft) int64 {
	w := d.DedupeWindow
	if w == 0 {
		w = event.DefaultDedupeWindow
	}
	return max(1, w.Milliseconds())
}

// pushOnce pushes a draft that may have a dedupe key. When the key counts, nothing is
// stored, and of e only the id is set, the id of the event that has it.
func (tx *Tx) pushOnce(d *event.Draft, createdAt string) (e event.Event, duplicate bool, err error) {
	tx.pushes = true
	if d.DedupeKey == "" {
		e, err = tx.s.Append(d, createdAt)
		return e, false, err
	}
	id, ok, err := tx.firstWith(d)
	if err != nil {
		return e, false, err
	}
	if ok {
		return event.Event{ID: id}, true, nil
	}
	if e, err = tx.s.Append(d, createdAt); err != nil {
		return e, false, err
	}
	return e, false, tx.keepKey(d, e.ID)
}

// counts reports whether a key that was stored age milliseconds ago is within the
// window of a push. One from the future was stored by a clock that was ahead, at an
// unknown time: if it suppressed a push, that event would be lost; if it does not, the
// event is at worst stored twice.
func counts(r *store.KeyRecord, age, window int64) bool {
	return age < r.Window && age < window && age >= -min(r.Window, window, clockSkew.Milliseconds())
}

// firstWith returns the event that has d's key, if the key counts: neither the
// window with which it was stored nor d's window has ended.
func (tx *Tx) firstWith(d *event.Draft) (id int64, ok bool, err error) {
	key := store.DedupeKey(d.DedupeKey)
	v, err := tx.s.Get(store.Dedupe, key)
	if v == nil {
		return 0, false, err
	}
	r, err := store.DecodeKeyRecord(key, v)
	if err != nil {
		return 0, false, err
	}
	if r.ID > tx.s.State().LastID {
		return 0, false, fmt.Errorf("%w: dedupe key %q of event %d, which was never given", ErrCorrupt, key, r.ID)
	}
	age := tx.now().UnixMilli() - r.StoredAt
	return r.ID, counts(&r, age, window(d)), nil
}

// ForgetKey lets the next event with that dedupe key be stored, whatever is left of the
// key's window. The event that was stored with it stays. Without that key it does nothing.
func (tx *Tx) ForgetKey(dedupeKey string) error {
	if !tx.s.Writable() {
		return errReadOnly
	}
	key := store.DedupeKey(dedupeKey)
	v, err := tx.s.Get(store.Dedupe, key)
	if v == nil || err != nil {
		return err
	}
	r, err := store.DecodeKeyRecord(key, v)
	if err != nil {
		return err
	}
	if err := tx.s.Delete(store.DedupeExpiry, r.ExpiryKey()); err != nil {
		return err
	}
	return tx.s.Delete(store.Dedupe, key)
}

// keepKey stores d's key for the new event id, in place of one that does not
// count for d.
func (tx *Tx) keepKey(d *event.Draft, id int64) error {
	key := store.DedupeKey(d.DedupeKey)
	tx.keyed++
	r := store.KeyRecord{ID: id, StoredAt: tx.now().UnixMilli(), Window: window(d)}
	v, err := tx.s.Get(store.Dedupe, key)
	if err != nil {
		return err
	}
	if v != nil {
		old, err := store.DecodeKeyRecord(key, v)
		if err != nil {
			return err
		}
		if err := tx.s.Delete(store.DedupeExpiry, old.ExpiryKey()); err != nil {
			return err
		}
		// Of a long batch nothing counts before its end, not even for itself.
		if r.Before = old.Before; old.ID <= tx.s.State().Visible {
			r.Before = &old
			old.Before = nil
		}
		if r.Before != nil && !counts(r.Before, r.StoredAt-r.Before.StoredAt, r.Before.Window) {
			r.Before = nil // over
		}
	}
	return tx.putKey(&r, key)
}

// putKey stores r with its expiry.
func (tx *Tx) putKey(r *store.KeyRecord, key []byte) error {
	if err := tx.s.Put(store.Dedupe, key, r.Encode(key)); err != nil {
		return err
	}
	at := r.ExpiryKey()
	return tx.s.Put(store.DedupeExpiry, at, store.EncodeExpiry(at, key))
}

// sweepAtLeast is how many expired keys a transaction that pushes may delete
// next to two for every key that it adds: so the table shrinks, and no push has
// much to do.
const sweepAtLeast = 64

// sweepKeys deletes some of the expired keys. Every transaction that pushes does
// so at its end, also one of Update.
func (tx *Tx) sweepKeys() error {
	now := tx.now().UnixMilli()
	_, err := tx.dropKeys(func(at, _ int64) (drop, more bool) { return at <= now, at <= now }, sweepAtLeast+2*tx.keyed, false)
	return err
}

// dropKeysAfter deletes some of the keys of events above head, which a long batch
// left that did not come to its end. It reports whether there may be more.
func (tx *Tx) dropKeysAfter(head int64, most int) (more bool, err error) {
	n, err := tx.dropKeys(func(_, id int64) (bool, bool) { return id > head, true }, most, true)
	return n == most, err
}

// dropKeys deletes up to n keys for which which says so, in the order of expiry,
// until it says that there are no more. With restore, the event that had the key
// before has it again.
func (tx *Tx) dropKeys(which func(at, id int64) (drop, more bool), n int, restore bool) (int, error) {
	type entry struct{ at, key []byte }
	var entries []entry // collected first: a cursor is slow among deleted keys
	err := tx.s.Ascend(store.DedupeExpiry, nil, func(k, v []byte) (more bool, err error) {
		at, id, key, err := store.DecodeExpiry(k, v)
		if err != nil {
			return false, err
		}
		drop, more := which(at, id)
		if drop {
			entries = append(entries, entry{bytes.Clone(k), bytes.Clone(key)})
		}
		return more && len(entries) < n, nil
	})
	if err != nil {
		return 0, err
	}
	for _, e := range entries {
		v, err := tx.s.Get(store.Dedupe, e.key)
		if err != nil {
			return 0, err
		}
		r, err := store.DecodeKeyRecord(e.key, v)
		if err != nil {
			return 0, err
		}
		if err := tx.s.Delete(store.DedupeExpiry, e.at); err != nil {
			return 0, err
		}
		if restore && r.Before != nil {
			err = tx.putKey(r.Before, e.key)
		} else {
			err = tx.s.Delete(store.Dedupe, e.key)
		}
		if err != nil {
			return 0, err
		}
	}
	return len(entries), nil
}

// Push stores one event in this transaction and returns it. It returns [ErrInvalid]
// for a draft that is out of bounds and [ErrIDsExhausted] after id 2^63-1. For a
// draft whose dedupe key is known, nothing is stored and the first event returned.
// Push is for a few events; [Thread.PushAll] stores many.
func (tx *Tx) Push(d event.Draft) (event.Event, error) {
	if err := d.Validate(); err != nil {
		return event.Event{}, err
	}
	e, duplicate, err := tx.pushOnce(&d, tx.stamp())
	if duplicate && err == nil {
		e, _, err = tx.s.Event(e.ID)
	}
	return e, err
}
