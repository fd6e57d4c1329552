package engine

import (
	"cmp"
	"context"
	"slices"
	"time"

	"thread/event"
	"thread/filter"
	"thread/internal/store"
)

// ParallelState is what is known of a consumer whose deliveries are in flight side by side
// (see [ParallelFeed]). The zero ParallelState is the state of one that was always
// consumed in order.
type ParallelState struct {
	Settled int64 // events settled above LastAcked
	Ranges  int64 // that they are kept as
	Out     int64 // events that are in flight or in reserve, or were when their user was killed
	Waiting int64 // events above LastAcked that have failed and are tried again
	Window  int64 // of the latest feed, 0 when there was none
}

// Full reports whether nothing new is given out before something below is settled.
func (p *ParallelState) Full() bool { return p.Window > 0 && p.Settled+p.Out+p.Waiting >= p.Window }

// EventState is where an unread event is for a consumer.
type EventState struct {
	Settled  bool // it is done with, above the progress
	Out      bool // it is in flight, or was when its user was killed
	Failures      // of earlier attempts at it
}

// EventState returns what is known of an event above the consumer's progress.
func (t *Thread) EventState(ctx context.Context, consumer string, id int64) (s EventState, err error) {
	return s, t.read(ctx, func(tx *Tx) error {
		p, _, err := tx.Progress(consumer)
		if err != nil {
			return err
		}
		set, err := tx.settledOf(consumer, p.From())
		if err != nil {
			return err
		}
		_, s.Settled = set.find(id)
		a, _, err := tx.attempt(consumer, id)
		s.Out, s.Failures = a.State != store.AttemptWaiting, failures(&a.Failures)
		if now := tx.now(); now.Before(s.LastAt) {
			s.NextAt = time.Time{}
		}
		return err
	})
}

// A Feed continues where a ParallelFeed ended: it leaves out what is settled, and takes
// over what is known of single events when it comes to them.

// cutAtAttempt returns the first of the events alone, with what is known of it, or
// those before the first of which anything is known.
func (tx *Tx) cutAtAttempt(consumer string, events []event.Event) ([]event.Event, *store.Attempt, error) {
	if some, err := tx.hasRows(consumer, store.Attempts); !some {
		return events, nil, err
	}
	for i := range events {
		a, ok, err := tx.attempt(consumer, events[i].ID)
		switch {
		case err != nil:
			return nil, nil, err
		case !ok:
		case i == 0:
			return events[:1], &a, nil
		default:
			return events[:i], nil, nil
		}
	}
	return events, nil, nil
}

// takeAttempt moves what is known of the event that is given out to the record of the
// delivery.
func (tx *Tx) takeAttempt(consumer string, state *store.Delivery) error {
	a, ok, err := tx.attempt(consumer, state.First)
	if !ok || err != nil {
		return err
	}
	if !a.FirstAt.IsZero() || !a.NextAt.IsZero() {
		state.Failing, state.Letter = state.First, a.Failures
	}
	return tx.s.Delete(store.Attempts, store.LetterKey(consumer, state.First))
}

// keyOf tells the key of an event.
type keyOf struct {
	column string
	path   *filter.Path
	fold   func(key string) string // nil: none
}

func newKeyOf(text string) (keyOf, error) {
	k := keyOf{column: text}
	switch text {
	case "", "source", "type", "subtype":
		return k, nil
	}
	var ok bool
	if k.path, ok = filter.CompilePath(text); !ok {
		return k, invalidf("key %q is not source, type, subtype or a JSON path such as $.chat.id", text)
	}
	return k, nil
}

// ValidKey returns [ErrInvalid] for a text that cannot be the Key of a
// [ParallelPolicy].
func ValidKey(text string) error {
	_, err := newKeyOf(text)
	return err
}

// none reports whether events have no key.
func (k *keyOf) none() bool { return k.column == "" }

// inContent reports whether the key of an event is in its content.
func (k *keyOf) inContent() bool { return k.path != nil }

// of is what orders an event.
func (k *keyOf) of(e *event.Event) string {
	if k.fold != nil && !k.none() {
		return k.fold(k.text(e))
	}
	return k.text(e)
}

// text is what the event has.
func (k *keyOf) text(e *event.Event) string {
	switch {
	case k.path != nil:
		return k.path.Text(e.Content)
	case k.column == "source":
		return e.Source
	case k.column == "type":
		return e.Type
	case k.column == "subtype" && e.Subtype != nil:
		return *e.Subtype
	}
	return ""
}

// pending is an event to be given out.
type pending struct {
	event.Event
	prev    int64 // the matching event, or settled id, before it
	line    *lineup
	at      store.Attempt
	letter  bool // it is a dead letter that was sent back
	careful bool
	bare    bool // the content is not loaded
	end     time.Time
}

// lineup is what a key has to give out.
type lineup struct {
	key         string
	unordered   bool // the lineup of a feed without a key
	queue       []*pending
	letters     []*pending // sent back, before the queue
	busy        int        // deliveries out
	waits       int        // of its events that wait; they hold up the queue
	lettersWait int        // these do not
	inTurn      bool       // in ParallelFeed.ready

	// Of a key with more events than are loaded, those after resume are not; before
	// it, matching or settled, comes the id before.
	more           bool
	resume, before int64
	closed         bool // in this refill
}

// subscription returns the subscription, or the error that no event may be given out now.
func (f *ParallelFeed) subscription(tx *Tx) (*store.Subscription, error) {
	s, err := tx.subscription(f.consumer)
	switch {
	case err != nil:
		return nil, err
	case s.Paused:
		return nil, ErrPaused
	case s.Pull:
		return nil, ErrPull
	}
	return s, nil
}

type outDelivery struct {
	number int64
	events []*pending
	begun  bool
}

// scans are the two searches for events to load: one continues from the mark and
// leaves out what a key has too much of, the other goes back for that.
type scans struct {
	selection *store.Selection
	pos       int64 // everything up to here was seen
	prev      int64 // the latest matching event or settled id up to pos

	refill      bool
	again       int64 // where the refill is, and prev of it
	againPrev   int64
	start       int64 // where it began
	keysWithout int   // keys that it has found nothing too much of yet
	letters     bool  // more letters were sent back than are loaded
}

// ParallelFeed gives a consumer's events out to several users at once, and stores
// their results. Like [Feed] it is for one goroutine, which hands deliveries to
// others and brings back their results. Its first Step takes the consumer's lock, as with [Feed].
//
// # Order
//
// Events with the same key come in id order and one delivery at a time: one
// that has failed holds up those after it of the same key, and nothing else. Keys
// take turns. Without a key no order is promised. A delivery of several events has
// events of one key only.
//
// # Progress
//
// Progress stays the contiguous low mark: everything up to it is settled. What is
// settled above it is kept as ranges, in the transaction that stores the result, and
// is not given out again. No more than Window events are settled above the mark, out,
// or wait to be tried again; when there are as many, nothing new is given out.
//
// # Attempts
//
// As with [Feed] an attempt is noted durably before it begins, and one whose user
// dies has failed, with one exception that hides the time of a commit: a delivery
// that is given out in reserve may be begun at once, and [ParallelFeed.Step] is told
// with its next call. What is in reserve when the power fails is not counted; it is
// marked Careful when it is redelivered, and so is counted from the second time on. A
// group that fails is halved, and its halves, until the event that fails stands
// alone: a good event of a group of n is given out at most 1+log2(n) times.
//
// Dead letters that were sent back come before the other events of their key.
type ParallelFeed struct {
	t        *Thread
	consumer string
	policy   ParallelPolicy
	lock     *feedLock
	key      keyOf
	waits    waits

	stale  bool // what is below has to be read again
	opened bool // attempts of those who were killed are settled
	where  string
	mark   int64
	moved  int64
	resent int64 // Due.Retried
	spans  spans
	dirty  map[int64]bool // first ids of ranges to be stored or deleted
	gaps   spans          // ids without a match that touch a range, to be joined with it

	keys    map[string]*lineup
	ready   []*lineup // that have something to give out, in turn
	loaded  map[int64]*pending
	known   map[int64]store.Attempt // of events that are not loaded
	waiting []*pending              // events and letters that wait for their next attempt
	bytes   int                     // of loaded contents
	out     map[int64]*outDelivery
	outs    int64 // events out
	scan    scans
	head    int64 // the newest id at the latest look
}

// The turns of keys.

// wake ends the waits that have ended.
func (f *ParallelFeed) wake(now time.Time) {
	f.waiting = slices.DeleteFunc(f.waiting, func(p *pending) bool {
		if p.end = f.waits.end(p.ID, &p.at.Failures, now); p.end.After(now) {
			return false
		}
		if p.letter {
			p.line.lettersWait--
			p.line.letters = insert(p.line.letters, p)
		} else {
			p.line.waits--
			p.line.queue = insert(p.line.queue, p)
		}
		f.queueUp(p.line)
		return true
	})
}

// end returns when the wait of an event ends that has failed.
func (w waits) end(id int64, l *store.Failures, now time.Time) time.Time {
	seen, ok := w[id]
	if !ok || !seen.nextAt.Equal(l.NextAt) {
		seen.nextAt, seen.end = l.NextAt, now.Add(l.NextAt.Sub(now))
		w[id] = seen
	}
	if seen.end.Sub(now) > l.NextAt.Sub(l.LastAt) {
		seen.end = now
	}
	if !seen.end.After(now) {
		delete(w, id)
	}
	return seen.end
}

func insert(queue []*pending, p *pending) []*pending {
	i, _ := slices.BinarySearchFunc(queue, p.ID, func(q *pending, id int64) int { return cmp.Compare(q.ID, id) })
	return slices.Insert(queue, i, p)
}

// queueUp puts a key behind the others if it has something to give out, and forgets
// it where nothing is left of it.
func (f *ParallelFeed) queueUp(l *lineup) {
	switch {
	case l.inTurn:
	case l.canGive():
		l.inTurn = true
		f.ready = append(f.ready, l)
	case l.busy == 0 && len(l.queue)+len(l.letters)+l.waits+l.lettersWait == 0 && !l.more:
		delete(f.keys, l.key)
	}
}

func (l *lineup) canGive() bool {
	switch {
	case l.unordered:
		return len(l.letters)+len(l.queue) > 0
	case l.busy > 0:
		return false
	case len(l.letters) > 0:
		return true
	}
	return l.waits == 0 && len(l.queue) > 0
}

func (f *ParallelFeed) lineup(key string) *lineup {
	l := f.keys[key]
	if l == nil {
		l = &lineup{key: key, unordered: f.key.none()}
		f.keys[key] = l
	}
	return l
}

// full reports whether the window is.
func (f *ParallelFeed) full() bool { return f.inWindow() >= f.policy.Window }

func (f *ParallelFeed) inWindow() int64 {
	return f.spans.count() + f.outs + int64(len(f.waiting)+len(f.known))
}

// waits are the ends of the waits of events that this process has seen, with the
// reading of the monotonic clock: they end when they would have, however the clock
// is set meanwhile. A wait that would be longer than it was to be when it began was
// noted by a clock that was ahead, and has ended.
type waits map[int64]struct{ nextAt, end time.Time }
