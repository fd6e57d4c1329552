package engine

import (
	"context"
	"encoding/binary"
	"errors"
	"hash/fnv"
	"math"

	"thread/filter"
	"thread/index"
	"thread/internal/store"
)

// Due says whether a consumer has work.
type Due struct {
	Subscription
	Progress Progress
	First    int64 // id of the first unread event that matches, 0 when there is none
	Newest   int64 // the newest id at the time of the look
	Err      error // the filter is invalid, or it failed on an event; First is 0
	// Retried is how often something was handed back to the consumer: a dead letter,
	// or whatever Seek went back over. A letter that is to be given out again counts
	// as unread for Due and for DueFor with after = 0: First is then its id.
	Retried int64
}

// Due returns, in the order of subscription, every consumer that has an unread
// event that matches, or whose filter cannot say, and is not paused, but those with
// Pull. Events are read only where the
// series leave the answer open, and what was read is remembered, so that no
// event is read for the same filter twice.
func (t *Thread) Due(ctx context.Context) ([]Due, error) {
	var due []Due
	searches, err := t.searchDue(ctx, func(tx *Tx) (searches []*dueSearch, err error) {
		list, err := tx.subscriptionList()
		for _, s := range list {
			if !s.Pull { // nothing is started for that one
				searches = append(searches, &dueSearch{sub: s})
			}
		}
		return searches, err
	})
	for _, l := range searches {
		if l.due.First != 0 || l.due.Err != nil {
			due = append(due, l.due)
		}
	}
	return due, err
}

// DueFor is [Thread.Due] for one consumer. First is the first unread match with an id
// above after. It returns [ErrNoSubscription] for an unknown consumer.
func (t *Thread) DueFor(ctx context.Context, consumer string, after int64) (Due, error) {
	l := &dueSearch{after: after}
	_, err := t.searchDue(ctx, func(tx *Tx) (_ []*dueSearch, err error) {
		l.sub, err = tx.subscription(consumer)
		return []*dueSearch{l}, err
	})
	return l.due, err
}

// dueSearch is the search for a consumer's first unread event. It goes in slices,
// so that writers get their turn next to it.
type dueSearch struct {
	sub   *store.Subscription
	after int64 // ids up to this one do not interest
	due   Due

	reading
	from int64 // where the search began
}

// searchDue carries out the searches that list returns in the first transaction, as
// many in one transaction as its time allows.
func (t *Thread) searchDue(ctx context.Context, list func(tx *Tx) ([]*dueSearch, error)) (searches []*dueSearch, err error) {
	var spare *store.Selection // of the search before
	var todo []*dueSearch
	for listed := false; !listed || len(todo) > 0; {
		err := t.read(ctx, func(tx *Tx) (err error) {
			if !listed {
				if searches, err = list(tx); err != nil {
					return err
				}
				todo, listed = searches, true
			}
			if ahead, ok := tx.s.(store.Ahead); ok {
				todo, err = tx.rounds(ahead, todo)
				return err
			}
			for first := true; len(todo) > 0 && (first || !tx.s.Yield()); first = false {
				l := todo[0]
				done, err := l.step(tx, spare)
				if err != nil {
					return err
				}
				if !done {
					return nil
				}
				if l.selection != nil {
					spare = l.selection
				}
				todo = todo[1:]
			}
			return nil
		})
		if err != nil {
			return searches, err
		}
	}
	t.rememberChecked(ctx, searches)
	return searches, nil
}

// mostAbreast bounds the memory of searches that continue side by side.
const mostAbreast = 512

// rounds searches for many consumers side by side, so that what a store reads for all of them
// at once is one way to a server, and not one for each. It returns those that have not ended
// when the slice ends.
func (tx *Tx) rounds(ahead store.Ahead, todo []*dueSearch) ([]*dueSearch, error) {
	for first := true; len(todo) > 0 && (first || !tx.s.Yield()); first = false {
		n := min(len(todo), mostAbreast)
		left, err := tx.round(ahead, todo[:n])
		if err != nil {
			return todo, err
		}
		todo = append(left, todo[n:]...)
	}
	return todo, nil
}

func (tx *Tx) round(ahead store.Ahead, all []*dueSearch) (left []*dueSearch, err error) {
	var searching []*dueSearch
	var scans []store.Scan
	for _, l := range all {
		done, err := l.begin(tx, nil)
		if err != nil {
			return nil, err
		}
		if !done {
			searching, scans = append(searching, l), append(scans, l.scan(tx.Head()))
		}
	}
	if err := ahead.ReadAhead(scans); err != nil {
		return nil, err
	}
	for _, l := range searching {
		done, err := l.search(tx)
		if err != nil {
			return nil, err
		}
		if !done {
			left = append(left, l)
		}
	}
	return left, nil
}

// due is a whole search in this transaction.
func (tx *Tx) due(s *store.Subscription, after int64) (Due, error) {
	l := &dueSearch{sub: s, after: after}
	for {
		if done, err := l.step(tx, nil); done || err != nil {
			return l.due, err
		}
		if err := tx.ended(); err != nil {
			return l.due, err
		}
	}
}

// step searches on for a while.
func (l *dueSearch) step(tx *Tx, spare *store.Selection) (done bool, err error) {
	if done, err = l.begin(tx, spare); done || err != nil {
		return done, err
	}
	return l.search(tx)
}

// begin comes before each part of the search, because progress may have moved since the last
// one. It ends the search where no event has to be looked at.
func (l *dueSearch) begin(tx *Tx, spare *store.Selection) (done bool, err error) {
	head := tx.s.State().Head
	l.due = Due{Subscription: subscriptionOf(l.sub), Newest: head}
	if l.due.Progress, _, err = tx.Progress(l.sub.Consumer); err != nil {
		return false, err
	}
	if l.sub.Paused {
		return true, nil
	}
	if err := tx.dueRetries(&l.due, l.after); err != nil || l.due.First != 0 {
		return true, err
	}
	after := max(l.after, l.due.Progress.From())
	if after >= head {
		return true, nil
	}
	if l.selection == nil {
		if tx.checkedUpTo(l.sub, after) == head {
			return true, nil
		}
		f, err := filter.Compile(l.sub.Where())
		if err != nil {
			l.due.Err = err
			return true, nil
		}
		l.reading = reading{selection: store.NewSelection(f, spare), limit: math.MaxInt64}
		l.from = math.MaxInt64
	}
	if after < l.from { // the first step, or the consumer went back
		l.from = after
		l.reading.after = after
		if upto := tx.checkedUpTo(l.sub, after); upto > after {
			l.reading.after = upto
		}
	}
	l.reading.after = max(l.reading.after, after)
	l.skip, err = tx.settledOf(l.sub.Consumer, l.due.Progress.From())
	return false, err
}

// dueRetries sets d.Retried, and d.First to the first dead letter that was sent
// back and is to be given out again, now or later. With after > 0 the caller
// does not ask for old events.
func (tx *Tx) dueRetries(d *Due, after int64) error {
	state, err := tx.delivery(d.Consumer)
	if err != nil {
		return err
	}
	d.Retried = state.Retried
	if after > 0 {
		return nil
	}
	set, err := tx.settledAbove(d.Consumer, &state, d.Progress.From())
	if err != nil {
		return err
	}
	return tx.eachLetter(store.Retries, d.Consumer, func(k, _ []byte) (more bool, err error) {
		_, id, err := store.SplitLetterKey(k)
		if err != nil {
			return false, err
		}
		if _, settled := set.find(id); id > d.Progress.From() && !settled {
			return true, nil
		}
		stored, err := tx.s.Has(id)
		if stored {
			d.First = id
		}
		return !stored, err
	})
}

func (l *dueSearch) search(tx *Tx) (done bool, err error) {
	head := tx.s.State().Head
	l.reading.after, err = tx.s.Scan(l.scan(head), func(id int64) (bool, error) {
		if _, settled := l.skip.find(id); settled {
			return true, nil
		}
		l.due.First = id
		return false, nil
	})
	if errors.Is(err, filter.ErrRuntime) {
		l.due.First, l.due.Err = 0, err
		return true, nil
	}
	return l.due.First != 0 || l.reading.after >= head, err
}

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
