package engine

import (
	"context"
	"encoding/binary"
	"hash/fnv"

	"thread/filter"
	"thread/index"
)

// A checked record says that no event in (from, to] matches a filter. It saves
// dispatch from reading the same events again and again for a filter on content;
// without it, everything is the same but slower. It is valid if and only if its
// length and crc fit and the hash is that of the consumer's filter:
//
//	hash  8  FNV-64a of filter.Version as one byte and the filter's text
//	from  8
//	to    8
//	crc   4
//
// The key is that of the subscription, the bucket "checked", which older
// directories do not have. What was checked by a program to which filters mean
// something else does not count, as its hash is another. The bucket's sequence is
// the Version of its records: those of another are deleted before one is stored.
var bucketChecked = []byte("checked")

// rememberAfter is how many events looks must have read together to be worth the
// two syncs of remembering them, and rememberEach how many one of them must have.
const (
	rememberAfter = 4096
	rememberEach  = 8
)

// cost is what a look took, in events read. A dozen series are asked about in the
// time of one.
func (l *look) cost() int {
	if l.verdicts == nil {
		return 0
	}
	return l.seen + int(l.verdicts.judged/12)
}

func hashFilter(s *Subscription) uint64 {
	h := fnv.New64a()
	h.Write([]byte{filter.Version})
	h.Write([]byte(s.Where()))
	return h.Sum64()
}

// checkedUpTo returns the id up to which no event after from is known to match,
// 0 when nothing is known.
func (tx *Tx) checkedUpTo(s *Subscription, from int64) int64 {
	b, err := index.Bucket(tx.b, bucketChecked)
	if b == nil || s.Filter == nil || err != nil {
		return 0
	}
	key := consumerKey(s.Consumer)
	v, err := index.Get(b, key)
	if err != nil {
		return 0 // only advice: without it the events are read
	}
	v, ok := index.CheckSum(key, v)
	if !ok || len(v) != 24 || binary.BigEndian.Uint64(v) != hashFilter(s) || int64(binary.BigEndian.Uint64(v[8:])) > from {
		return 0
	}
	return min(int64(binary.BigEndian.Uint64(v[16:])), tx.st.head)
}

// rememberLooks stores how far the looks got that took long. It is advice, so
// failing is no harm.
func (t *Thread) rememberLooks(ctx context.Context, looks []*look) {
	var long []*look
	all := 0
	for _, l := range looks {
		all += l.cost()
	}
	if all < rememberAfter {
		return
	}
	for _, l := range looks {
		// What a filter with a clock says of an event can change.
		if l.cost() >= rememberEach && l.due.Err == nil && !l.verdicts.f.UsesClock() {
			long = append(long, l)
		}
	}
	if len(long) == 0 {
		return
	}
	_ = t.Update(ctx, func(tx *Tx) error {
		b, err := tx.later(bucketChecked)
		if err == nil && b.Sequence() != filter.Version {
			if err = tx.b.DeleteBucket(bucketChecked); err == nil {
				b, err = tx.later(bucketChecked)
			}
			if err == nil {
				err = b.SetSequence(filter.Version)
			}
		}
		for _, l := range long {
			to := l.reading.after
			if l.due.First != 0 {
				to = l.due.First - 1
			}
			key := consumerKey(l.sub.Consumer)
			v := binary.BigEndian.AppendUint64(nil, hashFilter(l.sub))
			v = binary.BigEndian.AppendUint64(v, uint64(l.from))
			v = binary.BigEndian.AppendUint64(v, uint64(to))
			if err == nil {
				err = index.Put(b, key, index.AppendSum(v, key))
			}
		}
		return err
	})
}
