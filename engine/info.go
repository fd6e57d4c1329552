package engine

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"thread/filter"
	"thread/internal/store"
	"thread/internal/store/bolt"
)

// Info is what there is to know about a thread.
type Info struct {
	Dir           string
	EventCount    int64 // events ever stored
	Stored        int64 // events not dropped by Prune
	Newest        int64 // the newest id, 0 when there was never one
	Subscriptions []ConsumerInfo
	Scheduled     int64        // delayed events and schedules
	NextScheduled time.Time    // when the next of them is due, zero for never
	Limits        *LimitsState // nil when there are none
	Durability    string       // on a server: how many hosts keep what is stored, as "2 hosts, fsync"
	LinesOff      bool         // pushes write no line into events.jsonl
}

// ConsumerInfo is a subscription and how far its consumer is.
type ConsumerInfo struct {
	Subscription
	LastAcked int64   // 0 when it never popped
	UpdatedAt *string // nil: never
	FilterErr error   // the stored filter is invalid; it was imported
	Dead      int64   // dead letters
	DeadError string  // the last error of the dead letter with the highest id, "" when there is none
	Retries   int64   // dead letters that were sent back and are not settled yet
	ParallelState
	Lease    LeaseState
	Failing  int64 // id of the unread event that has failed and is tried again, 0: none
	Failures       // of that event
}

// Info returns the state of the thread, with subscriptions in the order they
// were made.
func (t *Thread) Info(ctx context.Context) (info Info, err error) {
	err = t.read(ctx, func(tx *Tx) error {
		st := tx.s.State()
		info = Info{Dir: t.Address(), EventCount: st.Count, Stored: st.Stored, Newest: st.Head, LinesOff: bolt.LinesOff(tx.s)}
		if info.Scheduled, err = tx.countScheduled(); err != nil {
			return err
		}
		if info.NextScheduled, err = tx.nextScheduled(); err != nil {
			return err
		}
		list, err := tx.subscriptionList()
		if err != nil {
			return err
		}
		for _, s := range list {
			c := ConsumerInfo{Subscription: subscriptionOf(s)}
			p, ok, err := tx.Progress(s.Consumer)
			if err != nil {
				return err
			}
			if ok {
				c.LastAcked, c.UpdatedAt = p.LastAcked, &p.UpdatedAt
			}
			if err := tx.describeDeliveries(&c, p.From()); err != nil {
				return err
			}
			info.Subscriptions = append(info.Subscriptions, c)
		}
		info.Limits, err = tx.limitsState()
		return err
	})
	if d, ok := t.s.(store.Durable); ok && err == nil {
		info.Durability, err = d.Durability(ctx)
	}
	for i := range info.Subscriptions {
		_, info.Subscriptions[i].FilterErr = filter.Compile(info.Subscriptions[i].Where())
	}
	return info, err
}

func (tx *Tx) describeDeliveries(c *ConsumerInfo, from int64) (err error) {
	if c.Dead, err = tx.countLetters(store.Dead, c.Consumer); err != nil {
		return err
	}
	if c.Dead > 0 {
		if c.DeadError, err = tx.newestDeadError(c.Consumer); err != nil {
			return err
		}
	}
	if c.Retries, err = tx.countLetters(store.Retries, c.Consumer); err != nil {
		return err
	}
	state, err := tx.delivery(c.Consumer)
	if err == nil {
		err = tx.describeParallel(c, &state, from)
	}
	if err == nil {
		c.Lease, err = tx.leaseState(c.Consumer, &state)
	}
	if err == nil && state.Failing > from {
		c.Failing, c.Failures = state.Failing, failures(&state.Letter)
		// As long as Feed waits, which a clock that was ahead does not draw out.
		if now := tx.now(); now.Before(c.LastAt) {
			c.NextAt = now
		}
	}
	return err
}

func (tx *Tx) describeParallel(c *ConsumerInfo, state *store.Delivery, from int64) error {
	set, err := tx.settledAbove(c.Consumer, state, from)
	if err != nil {
		return err
	}
	c.ParallelState = ParallelState{Settled: set.count(), Ranges: int64(len(set)), Window: state.Window}
	return tx.eachAttempt(c.Consumer, func(id int64, a store.Attempt) (bool, error) {
		if _, settled := set.find(id); a.Resent == 1 || id <= from || settled {
			return true, nil
		}
		if a.State != store.AttemptWaiting {
			c.Out++
			return true, nil
		}
		c.Waiting++
		if c.Failing == 0 && !a.FirstAt.IsZero() {
			c.Failing, c.Failures = id, failures(&a.Failures)
		}
		return true, nil
	})
}

// Backlog counts the unread events of a consumer that match its filter, and returns
// created_at of the oldest, "" when there is none. It can take long, and lets writers
// through meanwhile. It returns [ErrNoSubscription], [*filter.Error] and
// [filter.ErrRuntime].
func (t *Thread) Backlog(ctx context.Context, consumer string) (count int64, oldest string, err error) {
	b := t.Backlogs(ctx, []string{consumer})[0]
	return b.Count, b.Oldest, b.Err
}

// Backlogs is [Thread.Backlog] for several consumers. Where there are many series,
// they are read once for all of them. A consumer whose count takes long keeps no other
// one waiting: those that need not read their events, and those with the fewest, come
// first, and each stands back after a slice.
func (t *Thread) Backlogs(ctx context.Context, consumers []string) []Backlog {
	if len(consumers) == 0 {
		return nil
	}
	backlogs := make([]Backlog, len(consumers))
	tallies := make([]*tally, len(consumers))
	var todo, bySeries []*tally
	err := t.read(ctx, func(tx *Tx) error {
		todo, bySeries = nil, nil
		seen := &seenEvents{s: tx.s}
		for i, consumer := range consumers {
			backlogs[i] = Backlog{}
			l, err := tx.unread(consumer, &backlogs[i], seen)
			if err != nil {
				backlogs[i].Err = err
				continue
			}
			tallies[i] = l
			if l.after >= l.upto { // all of it was counted before
				continue
			}
			if l.selection.BySeries && len(consumers) > 1 {
				bySeries = append(bySeries, l)
			} else {
				todo = append(todo, l)
			}
		}
		return nil
	})
	all := slices.Concat(todo, bySeries)
	if err != nil {
		for i := range backlogs {
			backlogs[i].Err = err
		}
	} else if err = t.countAll(ctx, todo, bySeries); err != nil {
		for _, l := range all {
			if l.after < l.upto && l.backlog.Err == nil {
				l.backlog.Err = err
			}
		}
	}
	t.rememberCounts(consumers, backlogs, tallies)
	return backlogs
}

// unread begins the count of what a consumer has not read, behind what is known not to
// match.
func (tx *Tx) unread(consumer string, b *Backlog, seen *seenEvents) (*tally, error) {
	s, err := tx.subscription(consumer)
	if err != nil {
		return nil, err
	}
	p, _, err := tx.Progress(consumer)
	if err != nil {
		return nil, err
	}
	f, err := filter.Compile(s.Where())
	if err != nil {
		return nil, err
	}
	set, err := tx.settledOf(consumer, p.From())
	after := max(p.From(), tx.checkedUpTo(s, p.From()))
	l := &tally{reading: reading{t: tx.t, skip: set, selection: store.NewSelection(f, nil), after: after, upto: tx.s.State().Visible}, backlog: b}
	if err != nil || !l.keepsParts() {
		return l, err
	}
	l.keep, l.seen = true, l.upto
	if l.seenAt, err = seen.at(l.seen); err != nil {
		return nil, err
	}
	return l, l.resume(seen, tx.t.counts.partsOf(consumer))
}

// countAll counts for all, as many in one transaction as its time allows. The series
// are learned for all of bySeries before these are counted.
func (t *Thread) countAll(ctx context.Context, todo, bySeries []*tally) error {
	asked := make([]*store.Selection, len(bySeries))
	for i, l := range bySeries {
		asked[i] = l.selection
	}
	slices.SortStableFunc(todo, cheaper)
	for len(todo)+len(bySeries) > 0 {
		err := t.read(ctx, func(tx *Tx) error {
			if len(bySeries) > 0 {
				learned, err := tx.s.Learn(asked)
				// An error is the error of the filter which meets it, below.
				if learned || err != nil {
					todo, bySeries = append(bySeries, todo...), nil
					slices.SortStableFunc(todo, cheaper)
				}
				if err != nil {
					return nil
				}
			}
			for first := true; len(todo) > 0 && (first || !tx.s.Yield()); first = false {
				l := todo[0]
				todo = todo[1:]
				if l.backlog.Err = l.count(tx); l.backlog.Err != nil {
					return nil // and a transaction without it for the others
				}
				if l.after < l.upto {
					todo = append(todo, l)
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// cheaper orders counts by what they are likely to cost.
func cheaper(a, b *tally) int {
	reads := func(l *tally) int {
		if l.selection.Contents {
			return 1
		}
		return 0
	}
	return cmp.Or(reads(a)-reads(b), cmp.Compare(a.upto-a.after, b.upto-b.after))
}

// count counts on for a slice.
func (l *tally) count(tx *Tx) error {
	var n, oldest int64
	head := tx.s.State().Visible
	after, err := tx.s.Scan(l.scan(l.until(head)), func(id int64) (bool, error) {
		if _, skipped := l.skip.find(id); !skipped {
			if n++; n == 1 {
				oldest = id
			}
		}
		return true, nil
	})
	if err != nil {
		return err
	}
	p := countPart{after: l.after, upto: after, count: n}
	if n > 0 {
		e, _, err := tx.s.Event(oldest)
		if err != nil {
			return err
		}
		p.oldest = e.CreatedAt
	}
	l.upto = min(l.upto, head)
	l.add(p)
	l.join()
	return nil
}

// manyCounts is how many consumers that were not asked for are remembered.
const manyCounts = 100_000

func (c *lastCounts) partsOf(consumer string) keptParts {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.parts[consumer]
}

// rememberCounts keeps what is known, and fills in what is not.
func (t *Thread) rememberCounts(consumers []string, backlogs []Backlog, tallies []*tally) {
	now := time.Now()
	t.counts.mu.Lock()
	defer t.counts.mu.Unlock()
	if len(t.counts.of) > len(consumers)+manyCounts { // most of them are unsubscribed
		clear(t.counts.of)
		clear(t.counts.parts)
	}
	for i, consumer := range consumers {
		b := &backlogs[i]
		if l := tallies[i]; l != nil && l.keep {
			t.counts.parts[consumer] = l.kept()
		}
		switch {
		case b.Err == nil:
			b.At = now
			t.counts.of[consumer] = *b
		case errors.Is(b.Err, ErrNoSubscription):
			delete(t.counts.of, consumer)
			delete(t.counts.parts, consumer)
			*b = Backlog{Err: b.Err}
		default:
			last := t.counts.of[consumer]
			last.Err = b.Err
			*b = last
		}
	}
}
