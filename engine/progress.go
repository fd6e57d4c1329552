package engine

import (
	"context"
	"errors"
	"iter"
	"math"

	"thread/event"
	"thread/filter"
	"thread/internal/store"
)

// Progress is how far a consumer is. It survives Unsubscribe.
type Progress struct {
	// LastAcked is the id that was acked last: everything up to it is
	// processed. Pop may set it to any id, also one that does not exist yet.
	LastAcked int64
	// Newest is the newest id at that moment.
	Newest    int64
	UpdatedAt string // in event.TimeLayout, or as it was imported
}

// From is the id after which the unread events begin. An id that was acked
// before the event existed does not count (T-40).
func (p *Progress) From() int64 { return min(p.LastAcked, p.Newest) }

// Progress returns how far consumer is, and whether it ever popped or acked.
func (tx *Tx) Progress(consumer string) (p Progress, ok bool, err error) {
	key := store.ConsumerKey(consumer)
	v, err := tx.s.Get(store.Progress, key)
	if v == nil {
		return p, false, err
	}
	r, err := store.DecodeProgress(key, v)
	return Progress(r), err == nil, err
}

func (tx *Tx) setProgress(consumer string, lastAcked int64) error {
	old, _, err := tx.Progress(consumer)
	if err != nil {
		return err
	}
	if lastAcked < old.From() {
		if err := tx.forgetDelivery(consumer); err != nil {
			return err
		}
	}
	if err := tx.trimSet(consumer, old.From(), min(lastAcked, tx.Head())); err != nil {
		return err
	}
	return tx.putProgress(consumer, lastAcked)
}

func (tx *Tx) putProgress(consumer string, lastAcked int64) error {
	key := store.ConsumerKey(consumer)
	p := store.ProgressRecord{LastAcked: lastAcked, Newest: tx.Head(), UpdatedAt: event.FormatTime(tx.now())}
	return tx.s.Put(store.Progress, key, p.Encode(key))
}

// Ack records that consumer has processed every event up to and including id. It
// moves progress forward only: an id at or below it changes nothing.
//
// Ack returns [ErrNoSubscription], and [ErrInvalid] for an id that is negative or
// above the newest event.
func (t *Thread) Ack(ctx context.Context, consumer string, id int64) error {
	return t.Update(ctx, func(tx *Tx) error { return tx.Ack(consumer, id) })
}

// Ack is [Thread.Ack] in this transaction.
func (tx *Tx) Ack(consumer string, id int64) error {
	if _, err := tx.subscription(consumer); err != nil {
		return err
	}
	if id < 0 || id > tx.Head() {
		return invalidf("event %d does not exist, the newest is %d", id, tx.Head())
	}
	p, _, err := tx.Progress(consumer)
	if err != nil || id <= p.From() {
		return err
	}
	return tx.setProgress(consumer, id)
}

// passOver moves progress to id and forgets the letters of the events that were
// delivered: progress was moved back before, and these were redelivered.
func (tx *Tx) passOver(consumer string, d *store.Delivery, id int64, ids []int64) error {
	if d.Suspect <= id {
		d.Suspect = 0
	}
	for _, table := range []store.Table{store.Dead, store.Retries} {
		for _, id := range ids {
			if err := tx.s.Delete(table, store.LetterKey(consumer, id)); err != nil {
				return err
			}
		}
	}
	p, _, err := tx.Progress(consumer)
	if err != nil || id <= p.From() {
		return err
	}
	set, err := tx.settledAbove(consumer, d, p.From())
	if err != nil {
		return err
	}
	if r, ok := set.find(id + 1); ok {
		id = r.last
	}
	return tx.setProgress(consumer, id)
}

// wait lets a single event be redelivered when l says. In an unordered feed the others
// continue meanwhile.
func (tx *Tx) wait(consumer string, p *Policy, d *store.Delivery, l store.Failures) error {
	if !p.Unordered {
		d.Failing, d.Letter = d.First, l
		return nil
	}
	clearFailures(d)
	if err := tx.passOver(consumer, d, d.First, []int64{d.First}); err != nil {
		return err
	}
	return tx.putLetter(store.Retries, consumer, d.First, &l)
}

// PopQuery says what [Thread.Pop] records, and how much it returns. The zero
// PopQuery goes back to before the first event and returns every event.
type PopQuery struct {
	LastAcked int64 // the consumer has processed every event up to and including this id; 0 for none
	Limit     int64 // at most that many events are returned; 0 for all
}

// Page is the result of [Thread.Pop].
type Page struct {
	Previous int64 // last_acked_id before the call, 0 when there was none
	Newest   int64 // newest id at the call
	// Events are the next events of the consumer, to be ranged over once. A long
	// page is read as it is ranged over, with nothing open or locked meanwhile.
	Events iter.Seq2[event.Event, error]
}

// Pop records that consumer has processed every event up to and including
// q.LastAcked, and returns the next events that match its filter, in id order, at
// most q.Limit of them.
//
// Both happen in one transaction. Progress may move backwards: the events after
// q.LastAcked are then delivered again (T-39). When the filter fails on an event of
// the page, nothing is changed.
//
// Pop returns [ErrNoSubscription] for an unknown consumer, [*filter.Error] for an
// imported filter that is invalid, [filter.ErrRuntime], [ErrInvalid] for a negative
// number, [ErrBusy] and [ErrUnknownOutcome].
func (t *Thread) Pop(ctx context.Context, consumer string, q PopQuery) (Page, error) {
	if q.LastAcked < 0 || q.Limit < 0 {
		return Page{}, invalidf("last acked id and limit are not negative")
	}
	if q.Limit == 0 {
		q.Limit = math.MaxInt64
	}
	if t.url != "" { // a server is far
		page, err := t.popWith(ctx, consumer, nil, q)
		if !errors.Is(err, errFilterChanged) {
			return page, err
		}
	}
	for {
		where, err := t.filterOf(ctx, consumer)
		if err != nil {
			return Page{}, err
		}
		f, err := filter.Compile(where)
		if err != nil {
			return Page{}, err
		}
		page, err := t.popWith(ctx, consumer, f, q)
		if !errors.Is(err, errFilterChanged) {
			return page, err
		}
	}
}

var errFilterChanged = errors.New("the consumer has another filter by now")

// shortFilter is how long a filter may be that is compiled while others wait.
const shortFilter = 1024

// quickSelection selects by a filter while others wait. It returns errFilterChanged for
// one that is to be compiled, or tried, before.
func quickSelection(where string) (*store.Selection, error) {
	if len(where) > shortFilter {
		return nil, errFilterChanged
	}
	f, err := filter.Compile(where)
	if err == nil && f.CanFail() {
		err = errFilterChanged
	}
	if err != nil {
		return nil, err
	}
	return store.NewSelection(f, nil), nil
}

// popWith is Pop with a filter that was compiled outside of the lock, nil to take the
// consumer's if that is quick. It returns errFilterChanged when the consumer has another
// one by now.
func (t *Thread) popWith(ctx context.Context, consumer string, f *filter.Filter, q PopQuery) (page Page, err error) {
	whole := reading{t: t, after: q.LastAcked, upto: math.MaxInt64, limit: q.Limit}
	if f != nil {
		whole.selection = store.NewSelection(f, nil)
	}
	rest := whole
	canFail := f != nil && f.CanFail()
	if canFail {
		// Everything that is there is tried without holding up writers; what comes
		// meanwhile is tried below.
		if err := rest.dryRun(ctx); err != nil {
			return page, err
		}
	}
	var r reading
	var first []event.Event
	err = t.Update(ctx, func(tx *Tx) error {
		s, err := tx.subscription(consumer)
		if err != nil {
			return err
		}
		tried := rest
		r = whole // it may run again, and begins where it began
		if f == nil {
			if r.selection, err = quickSelection(s.Where()); err != nil {
				return err
			}
		} else if s.Where() != f.Text() {
			return errFilterChanged
		}
		p, _, err := tx.Progress(consumer)
		if err != nil {
			return err
		}
		page.Previous, page.Newest = p.LastAcked, tx.Head()
		if canFail && !tried.done() {
			if _, err := tx.s.Scan(store.Scan{Selection: tried.selection, After: tried.after, Upto: tx.Head()}, tried.count); err != nil {
				return err
			}
		}
		if err := tx.setProgress(consumer, q.LastAcked); err != nil {
			return err
		}
		first, err = r.slice(tx)
		return err
	})
	page.Events = func(yield func(event.Event, error) bool) {
		for _, e := range first {
			if !yield(e, nil) {
				return
			}
		}
		r.all(ctx, yield)
	}
	return page, err
}
