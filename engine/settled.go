package engine

import (
	"bytes"
	"math"
	"slices"
	"sort"

	"thread/internal/store"
)

// The set above the mark. A consumer whose deliveries are in flight side by side (see
// ParallelFeed) settles events above its progress. They are kept as ranges in the
// table settled.
//
// A range also covers the ids before an event of it that do not match the filter,
// so that neighbours touch. Ranges are disjoint and do not touch each other, and
// none touches the progress: that moves over it instead. The set counts only while
// Mark of the delivery record is set and no greater than the progress plus
// one: a program that does not know the set drops that field when it seeks, and
// lowers the progress when it goes back.

// span is a range of settled ids, both ends included.
type span struct{ first, last, count int64 }

// spans are in order, disjoint, and do not touch.
type spans []span

// at returns the place of the first span that ends at or after id.
func (s spans) at(id int64) int {
	return sort.Search(len(s), func(i int) bool { return s[i].last >= id })
}

// find returns the span that holds id.
func (s spans) find(id int64) (span, bool) {
	if i := s.at(id); i < len(s) && s[i].first <= id {
		return s[i], true
	}
	return span{}, false
}

func (s spans) count() (n int64) {
	for i := range s {
		n += s[i].count
	}
	return n
}

// add joins a range to the set and returns it as it is stored then; touched is told
// of the first id of every range that is not there any more.
func (s *spans) add(new span, touched func(first int64)) span {
	i := s.at(max(new.first, 1) - 1)
	j := i
	for ; j < len(*s) && (*s)[j].first-1 <= new.last; j++ {
		old := (*s)[j]
		touched(old.first)
		new = span{min(new.first, old.first), max(new.last, old.last), new.count + old.count}
	}
	*s = slices.Replace(*s, i, j, new)
	return new
}

// Letters of one consumer in a separate table: settled ranges, attempts.

// eachSpan calls fn for the ranges of a consumer, in order.
func (tx *Tx) eachSpan(consumer string, fn func(s span) error) error {
	return tx.eachLetter(store.Settled, consumer, func(k, v []byte) (bool, error) {
		r, err := store.DecodeSettledRange(k, v)
		if err != nil {
			return true, err
		}
		return true, fn(span{r.First, r.Last, r.Count})
	})
}

func (tx *Tx) putSpan(consumer string, s span) error {
	key := store.LetterKey(consumer, s.first)
	return tx.s.Put(store.Settled, key, (&store.SettledRange{First: s.first, Last: s.last, Count: s.count}).Encode(key))
}

// settledAbove returns the set above from, which is the consumer's progress. state
// is its delivery record.
func (tx *Tx) settledAbove(consumer string, state *store.Delivery, from int64) (s spans, err error) {
	if !setCounts(state, from) {
		return nil, nil
	}
	return s, tx.eachSpan(consumer, func(r span) error {
		if r.last > from {
			r.first = max(r.first, from+1)
			r.count = min(r.count, r.last-r.first+1) // at most: which of them match is not looked up
			s = append(s, r)
		}
		return nil
	})
}

func setCounts(d *store.Delivery, from int64) bool { return d.Mark != 0 && d.Mark-1 <= from }

// hasRows reports whether the consumer has a record in one of these tables.
func (tx *Tx) hasRows(consumer string, tables ...store.Table) (some bool, err error) {
	for _, table := range tables {
		if err == nil && !some {
			err = tx.eachLetter(table, consumer, func(_, _ []byte) (bool, error) {
				some = true
				return false, nil
			})
		}
	}
	return some, err
}

// settledOf is settledAbove for those who have not read the records.
func (tx *Tx) settledOf(consumer string, from int64) (spans, error) {
	if some, err := tx.hasRows(consumer, store.Settled); !some {
		return nil, err
	}
	state, err := tx.delivery(consumer)
	if err != nil {
		return nil, err
	}
	return tx.settledAbove(consumer, &state, from)
}

// rowsUpTo returns the keys of a consumer's rows with ids up to last.
func (tx *Tx) rowsUpTo(table store.Table, consumer string, last int64) (keys [][]byte, err error) {
	return keys, tx.eachLetter(table, consumer, func(k, _ []byte) (bool, error) {
		_, id, err := store.SplitLetterKey(k)
		if err != nil || id > last {
			return false, err
		}
		keys = append(keys, bytes.Clone(k))
		return true, nil
	})
}

const maxID = math.MaxInt64

// trimSet is told that the progress of a consumer moves from one id to another. Back,
// everything after it is unread again: the set and what was known of attempts go.
// Forward, what it passes goes. Results of what goes are not wanted any more.
func (tx *Tx) trimSet(consumer string, from, to int64) error {
	if some, err := tx.hasRows(consumer, store.Settled, store.Attempts); !some || to == from {
		return err
	}
	state, err := tx.delivery(consumer)
	if err != nil {
		return err
	}
	upto := to
	if to < from || !setCounts(&state, from) {
		upto = maxID
	}
	set, err := tx.settledAbove(consumer, &state, upto)
	if err != nil {
		return err
	}
	keys, err := tx.rowsUpTo(store.Settled, consumer, upto)
	if err != nil {
		return err
	}
	gone := len(keys)
	if err := tx.deleteAll(store.Settled, keys); err != nil {
		return err
	}
	keys = nil
	err = tx.eachAttempt(consumer, func(id int64, a store.Attempt) (bool, error) {
		if id <= upto && (id > to || a.Resent == 0) { // a letter stays one
			keys = append(keys, store.LetterKey(consumer, id))
		}
		return id < upto, nil
	})
	if err != nil {
		return err
	}
	gone += len(keys)
	if err := tx.deleteAll(store.Attempts, keys); err != nil {
		return err
	}
	if len(set) > 0 && set[0].first == to+1 { // it was cut, or is touched
		if err := tx.putSpan(consumer, set[0]); err != nil {
			return err
		}
	}
	if gone == 0 {
		return nil
	}
	state.Moved++
	return tx.putDelivery(consumer, &state)
}

func (tx *Tx) putDelivery(consumer string, d *store.Delivery) error {
	key := store.ConsumerKey(consumer)
	return tx.s.Put(store.Deliveries, key, d.Encode(key))
}

// delivery returns how far a consumer's deliveries are.
func (tx *Tx) delivery(consumer string) (d store.Delivery, err error) {
	key := store.ConsumerKey(consumer)
	v, err := tx.s.Get(store.Deliveries, key)
	if v == nil || err != nil {
		return d, err
	}
	return store.DecodeDelivery(key, v)
}

// cleanSet comes before the set above from, the consumer's progress, is made the set of from.
// A program that does not know the set may have moved progress since it was changed
// last: ranges that do not count must not count again, and nothing may be left below
// from.
func (tx *Tx) cleanSet(consumer string, state *store.Delivery, from int64) error {
	if state.Mark == from+1 {
		return nil
	}
	set, err := tx.settledAbove(consumer, state, from)
	if err != nil {
		return err
	}
	upto := from
	if !setCounts(state, from) {
		upto = maxID
	}
	ranges, err := tx.rowsUpTo(store.Settled, consumer, upto)
	if err != nil {
		return err
	}
	if err := tx.deleteAll(store.Settled, ranges); err != nil {
		return err
	}
	if len(ranges) > 0 && len(set) > 0 { // it may have been cut
		if err := tx.putSpan(consumer, set[0]); err != nil {
			return err
		}
	}
	var gone [][]byte
	err = tx.eachAttempt(consumer, func(id int64, a store.Attempt) (bool, error) {
		if id <= from && a.Resent == 0 { // a letter stays one
			gone = append(gone, store.LetterKey(consumer, id))
		}
		return id < from, nil
	})
	if err != nil {
		return err
	}
	state.Mark = from + 1
	return tx.deleteAll(store.Attempts, gone)
}

// dropSet makes everything after the progress unread again, and forgets the attempts.
func (tx *Tx) dropSet(consumer string) error { return tx.trimSet(consumer, maxID, 0) }

// forgetAttempts makes the results of what is in flight unwanted.
func (tx *Tx) forgetAttempts(consumer string) error {
	keys, err := tx.rowsUpTo(store.Attempts, consumer, maxID)
	if err != nil {
		return err
	}
	return tx.deleteAll(store.Attempts, keys)
}

func (tx *Tx) deleteAll(table store.Table, keys [][]byte) error {
	for _, k := range keys {
		if err := tx.s.Delete(table, k); err != nil {
			return err
		}
	}
	return nil
}

// DropDead is [Thread.DropDead] for one letter in this transaction.
func (tx *Tx) DropDead(consumer string, id int64) error {
	return tx.s.Delete(store.Dead, store.LetterKey(consumer, id))
}
