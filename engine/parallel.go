package engine

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"thread/internal/store"
	"thread/lock"
)

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

// fill loads events for a while: events of keys that have come to the end of what is
// loaded of them before those that no process has seen yet, or only the latter. It reports
// whether there is more to look at.
func (f *ParallelFeed) fill(ctx context.Context, onward bool) (more bool, err error) {
	if !onward && f.loadedEnough() {
		f.evict()
	}
	err = f.t.read(ctx, func(tx *Tx) error {
		if _, _, err := f.current(tx); err != nil {
			return err
		}
		s, err := f.subscription(tx)
		if err != nil {
			return err
		}
		if s.Where() != f.where {
			f.stale = true
		}
		if f.stale {
			return nil
		}
		if onward {
			return f.look(tx, true)
		}
		if f.scan.letters && !f.lettersLeft() {
			if err := f.loadLetters(tx); err != nil {
				return err
			}
		}
		return f.look(tx, false)
	})
	if err != nil {
		return false, err
	}
	return f.unseen(), nil
}

func (f *ParallelFeed) notBefore() (at time.Time) {
	for _, p := range f.waiting {
		at = earlier(at, p.end)
	}
	return at
}

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
		if s, refused = f.subscription(tx); refused == nil && !f.stale && s.Where() != f.where {
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

// give begins deliveries.
func (w *settling) give(q *Step) (g Given, err error) {
	for n := q.Begin + q.Reserve; n > 0; {
		l := w.next()
		if l == nil {
			break
		}
		l.inTurn = false
		if w.ready[0] == l {
			w.ready = w.ready[1:]
		} else { // the window is full, and it is not its turn
			w.ready = slices.DeleteFunc(w.ready, func(r *lineup) bool { return r == l })
		}
		events, err := w.take(l)
		if err != nil {
			return g, err
		}
		if len(events) > 0 {
			d, err := w.note(events, len(g.Begin) < q.Begin)
			if err != nil {
				return g, err
			}
			l.busy++
			if len(g.Begin) < q.Begin {
				d.Careful = false
				g.Begin = append(g.Begin, d)
			} else {
				g.Reserved = append(g.Reserved, d)
			}
			n--
		}
		w.queueUp(l)
	}
	return g, nil
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

// earlier returns the earlier of two times, of which zero means never.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}
