package engine

import (
	"context"
	"encoding/binary"
	"hash/fnv"

	"thread/filter"
	"thread/index"
	"thread/internal/store"
)

// A checked record says that no event in (from, to] matches a filter. It saves
// dispatch from reading the same events again and again for a filter on content;
// without it, everything is the same but slower. It is valid if and only if its
// length and crc fit and the hash is the hash of the consumer's filter:
//
//	hash  8  FNV-64a of filter.Version as one byte and the filter's text
//	from  8
//	to    8
//	crc   4
//
// The key is the key of the subscription, the table "checked", which older
// directories do not have. What was checked by a program to which filters mean
// something else does not count, as its hash is another. The table's sequence is
// the Version of its records: records of another version are deleted before one is stored.

// rememberAfter is how many events searches must have read together to be worth the
// two syncs of remembering them, and rememberEach how many one of them must have.
const (
	rememberAfter = 4096
	rememberEach  = 8
)

// cost is what a search took, in events read. A dozen series are asked about in the
// time of one.
func (l *dueSearch) cost() int {
	if l.selection == nil {
		return 0
	}
	return int(l.selection.Reads.Events + l.selection.Asked/12)
}

func hashFilter(s *store.Subscription) uint64 {
	h := fnv.New64a()
	h.Write([]byte{filter.Version})
	h.Write([]byte(s.Where()))
	return h.Sum64()
}

// checkedUpTo returns the id up to which no event after from is known to match,
// 0 when nothing is known.
func (tx *Tx) checkedUpTo(s *store.Subscription, from int64) int64 {
	if s.Filter == nil {
		return 0
	}
	key := store.ConsumerKey(s.Consumer)
	v, err := tx.s.Get(store.Checked, key)
	if v == nil || err != nil {
		return 0 // only advice: without it the events are read
	}
	v, ok := index.CheckSum(key, v)
	if !ok || len(v) != 24 || binary.BigEndian.Uint64(v) != hashFilter(s) || int64(binary.BigEndian.Uint64(v[8:])) > from {
		return 0
	}
	return min(int64(binary.BigEndian.Uint64(v[16:])), tx.s.State().Head)
}

// rememberChecked stores how far the searches got that took long. It is advice, so
// failing is harmless.
func (t *Thread) rememberChecked(ctx context.Context, searches []*dueSearch) {
	var long []*dueSearch
	all := 0
	for _, l := range searches {
		all += l.cost()
	}
	if all < rememberAfter {
		return
	}
	for _, l := range searches {
		// What a filter with a clock says of an event can change.
		if l.cost() >= rememberEach && l.skip == nil && l.due.Err == nil && !l.selection.Filter.UsesClock() {
			long = append(long, l)
		}
	}
	if len(long) == 0 {
		return
	}
	_ = t.Update(ctx, func(tx *Tx) error {
		version, err := tx.s.Sequence(store.Checked)
		if err == nil && version != filter.Version {
			if err = tx.s.Drop(store.Checked); err == nil {
				err = tx.s.SetSequence(store.Checked, filter.Version)
			}
		}
		for _, l := range long {
			to := l.reading.after
			if l.due.First != 0 {
				to = l.due.First - 1
			}
			key := store.ConsumerKey(l.sub.Consumer)
			v := binary.BigEndian.AppendUint64(nil, hashFilter(l.sub))
			v = binary.BigEndian.AppendUint64(v, uint64(l.from))
			v = binary.BigEndian.AppendUint64(v, uint64(to))
			if err == nil {
				err = tx.s.Put(store.Checked, key, index.AppendSum(v, key))
			}
		}
		return err
	})
}
