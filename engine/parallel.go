package engine

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"thread/internal/store"
	"time"

	"thread/event"
	"thread/lock"
)

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

// ParallelPolicy is what a [ParallelFeed] goes by.
type ParallelPolicy struct {
	Policy
	// Key is "" for none, "source", "type", "subtype", or a JSON path into the content
	// such as $.chat.id. An event without one, NULL, or one whose content is not JSON,
	// has the empty key.
	Key string
	// Fold makes the same of keys that are to count as one; nil for none.
	Fold   func(key string) string
	Window int64 // less than 1 is DefaultWindow
}

// DefaultWindow is how many events may be settled above the mark, out, or waiting to
// be tried again.
const DefaultWindow = 10000

// slicesAtOnce bounds the slices of a scan in one Step, so that results do not wait
// for the end of a long one.
const slicesAtOnce = 8

// Step is the argument of [ParallelFeed.Step].
type Step struct {
	Results []DeliveryResult
	Begun   []int64 // numbers of deliveries that were given out in reserve and have begun
	Begin   int     // deliveries wanted that begin at once
	Reserve int     // deliveries wanted in reserve
}

// DeliveryResult is the result of a delivery.
type DeliveryResult struct {
	Number int64
	Result Result
}

// Given is the result of [ParallelFeed.Step].
type Given struct {
	Begin, Reserved []Delivery
	Dead            []int64 // events that became dead letters
	Stale           []int64 // numbers of deliveries whose result was not stored, at least for some events: those were settled, or went back, by other means
	// More says that another Step may find more to give out.
	More bool
	// Full says that the window is full, and that is why nothing is given out.
	Full bool
	// NotBefore is when the next event or letter may be tried, zero when none waits.
	NotBefore time.Time
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

type outDelivery struct {
	number int64
	events []*pending
	begun  bool
}

// ParallelFeed returns a feed of consumer. It returns [ErrInvalid] for a Key that is
// none.
func (t *Thread) ParallelFeed(consumer string, p ParallelPolicy) (*ParallelFeed, error) {
	key, err := newKeyOf(p.Key)
	if err != nil {
		return nil, err
	}
	key.fold = p.Fold
	p.Limit, p.MaxAttempts = max(1, p.Limit), max(1, p.MaxAttempts)
	if p.Backoff == nil {
		p.Backoff = func(int64) time.Duration { return 0 }
	}
	if p.Window < 1 {
		p.Window = DefaultWindow
	}
	f := &ParallelFeed{
		t: t, consumer: consumer, policy: p, key: key, waits: waits{}, stale: true,
		out: make(map[int64]*outDelivery), dirty: make(map[int64]bool),
	}
	f.lock = newFeedLock(t, f, consumer)
	return f, nil
}

// Step stores results and begins deliveries, all in one transaction. The result of an
// event that was settled, or went back, by other means changes nothing, and Given.Stale
// names its delivery. Nothing is written when there is nothing to store nor to give out.
//
// Step returns the errors of [Feed.Next]; the results are stored even then. After
// [ErrBusy] and [ErrUnknownOutcome] it may be called again with the same.
func (f *ParallelFeed) Step(ctx context.Context, q Step) (g Given, err error) {
	if err := f.lock.take(ctx, lock.Exclusive); err != nil {
		return Given{}, err
	}
	var dead, stale []int64
	for {
		if f.stale {
			if err := f.reload(ctx); err != nil && len(q.Results)+len(q.Begun) == 0 {
				return Given{Dead: dead}, err
			}
		}
		more := false
		if !f.stale {
			f.wake(f.t.now())
			if f.full() && q.Begin+q.Reserve > 0 { // unless an Ack or Seek has made space
				err = f.t.read(ctx, func(tx *Tx) error {
					_, _, err := f.current(tx)
					return err
				})
			}
			seen, onward := f.scan.pos, false
			for n := 0; err == nil && f.lacks(q.Begin+q.Reserve) && (n == 0 || n < slicesAtOnce && more && len(f.ready)+len(q.Results) == 0); n++ {
				more, err = f.fill(ctx, false)
				onward = onward || f.scan.pos > seen
			}
			if err == nil && !onward && f.behind(q.Begin+q.Reserve) {
				_, err = f.fill(ctx, true)
			}
		}
		scanErr := err
		if f.stale && len(q.Results)+len(q.Begun) == 0 {
			if scanErr != nil {
				return Given{Dead: dead}, scanErr
			}
			continue
		}
		now := q
		if scanErr != nil || f.stale {
			now.Begin, now.Reserve = 0, 0
		}
		g = Given{}
		if len(q.Results)+len(q.Begun) > 0 || f.gapAtMark() || q.Begin+q.Reserve > 0 && f.canGive() {
			var refused error
			g, refused, err = f.store(ctx, now)
			if errors.Is(err, errStepAgain) {
				err = nil
				continue
			}
			if err != nil {
				return Given{Dead: dead}, err
			}
			scanErr = cmp.Or(scanErr, refused)
		}
		dead, stale = append(dead, g.Dead...), append(stale, g.Stale...)
		g.Dead, g.Stale = dead, stale
		if scanErr != nil {
			return Given{Dead: dead, Stale: stale}, scanErr
		}
		if f.stale {
			q.Results, q.Begun = nil, nil
			if len(g.Begin)+len(g.Reserved) == 0 {
				continue
			}
		}
		left := q.Begin + q.Reserve - len(g.Begin) - len(g.Reserved)
		g.More = left > 0 && (f.canGive() || f.lacks(left) && f.unseen())
		g.Full = f.full()
		g.NotBefore = f.notBefore()
		return g, nil
	}
}

// full reports whether the window is.
func (f *ParallelFeed) full() bool { return f.inWindow() >= f.policy.Window }

// lacks reports whether more is to be loaded to give out that many deliveries. The event
// after the mark is given out always, or the window would stay full.
func (f *ParallelFeed) lacks(n int) bool {
	if f.stale || n == 0 {
		return false
	}
	if f.full() {
		return f.lowest() == nil
	}
	return len(f.ready) < n
}

// behind reports whether there are events that were not looked at yet, of which some may
// be of keys that nothing is known of. Each Step that gives something out looks at some
// of them, also when there is plenty of the keys that are known: or a few keys with
// backlogs would keep all others from their turn.
func (f *ParallelFeed) behind(n int) bool {
	return n > 0 && !f.stale && !f.full() && !f.key.none() && f.scan.pos < f.head && !f.loadedAll(false)
}

// lowest returns the event after the mark, nil when it is not loaded.
func (f *ParallelFeed) lowest() *pending {
	for _, p := range f.loaded {
		if p.prev <= f.mark && !p.letter {
			return p
		}
	}
	return nil
}

// next returns the key whose turn it is, nil when there is none.
func (f *ParallelFeed) next() *lineup {
	if !f.full() {
		for ; len(f.ready) > 0; f.ready = f.ready[1:] {
			l := f.ready[0]
			if l.canGive() {
				return l
			}
			l.inTurn = false
		}
		return nil
	}
	if p := f.lowest(); p != nil && p.line.canGive() && len(p.line.queue) > 0 && (p.line.queue[0] == p || len(p.line.letters) > 0) {
		return p.line
	}
	return nil
}

func (f *ParallelFeed) canGive() bool { return !f.stale && f.next() != nil }

func (f *ParallelFeed) inWindow() int64 {
	return f.spans.count() + f.outs + int64(len(f.waiting)+len(f.known))
}

// errStepAgain says that nothing of a transaction was stored whose outcome was unknown:
// what the feed had learned in it is not so.
var errStepAgain = errors.New("nothing of the step was stored")

// store is the transaction of a Step.
func (f *ParallelFeed) store(ctx context.Context, q Step) (g Given, refused error, err error) {
	var ended []*outDelivery
	var dead, stale []int64
	var before int64 // number of the latest delivery
	again := false
	err = f.t.Update(ctx, func(tx *Tx) error {
		if again {
			return errStepAgain
		}
		again = true
		state, p, err := f.current(tx)
		if err != nil {
			return err
		}
		before = state.Number
		w := &settling{ParallelFeed: f, tx: tx, state: &state}
		for _, o := range q.Results {
			d := f.out[o.Number]
			if d == nil || slices.Contains(ended, d) {
				continue // of an earlier Step that may have been stored
			}
			if err := w.settle(d, o.Result); err != nil {
				return err
			}
			ended = append(ended, d)
		}
		for _, n := range q.Begun {
			if d := f.out[n]; d != nil {
				if err := w.begin(d); err != nil {
					return err
				}
			}
		}
		dead, stale = w.dead, w.notWanted
		var s *store.Subscription
		if s, refused = tx.subscription(f.consumer); refused == nil && s.Paused {
			refused = ErrPaused
		} else if refused == nil && s.Pull {
			refused = ErrPull
		}
		if refused == nil && !f.stale && s.Where() != f.where {
			f.stale = true
		}
		if !f.stale {
			for _, r := range f.gaps {
				f.settled(r)
			}
			f.gaps = nil
		}
		if err := w.save(&p); err != nil {
			return err
		}
		for _, d := range ended { // what is ready depends on it
			f.release(d)
		}
		if refused == nil && !f.stale {
			f.wake(tx.now())
			if g, err = w.give(&q); err != nil {
				return err
			}
		}
		state.Window = f.policy.Window
		return tx.putDelivery(f.consumer, &state)
	})
	if err != nil {
		f.stale = true
		maps.DeleteFunc(f.out, func(n int64, _ *outDelivery) bool { return before > 0 && n > before })
		for _, d := range ended { // the same result may be redelivered
			f.out[d.number] = d
		}
		return Given{}, nil, err
	}
	g.Dead, g.Stale = dead, stale
	return g, refused, nil
}

// current reads what others may have changed, and sets stale where they have.
func (f *ParallelFeed) current(tx *Tx) (store.Delivery, Progress, error) {
	f.head = tx.Head()
	state, err := tx.delivery(f.consumer)
	if err != nil {
		return state, Progress{}, err
	}
	p, _, err := tx.Progress(f.consumer)
	if p.From() != f.mark || state.Moved != f.moved || state.Retried != f.resent {
		f.stale = true
	}
	if f.stale && err == nil { // results are stored all the same
		clear(f.dirty)
		f.gaps, f.mark = nil, p.From()
		f.spans, err = tx.settledAbove(f.consumer, &state, f.mark)
	}
	return state, p, err
}

// release frees the key of a delivery that has ended.
func (f *ParallelFeed) release(d *outDelivery) {
	delete(f.out, d.number)
	f.outs -= int64(len(d.events))
	line := f.lineup(d.events[0].line.key)
	line.busy--
	f.queueUp(line)
}
