package engine

import (
	"context"
	"math"
	"time"

	"thread/event"
	"thread/filter"
	"thread/internal/store"
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
		info = Info{Dir: t.Address(), EventCount: st.Count, Stored: st.Stored, Newest: st.Head}
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
		return nil
	})
	if err == nil {
		info.Limits, err = t.Limits(ctx)
	}
	if d, ok := t.s.(store.Durable); ok && err == nil {
		info.Durability, err = d.Durability(ctx)
	}
	for i := range info.Subscriptions {
		_, info.Subscriptions[i].FilterErr = filter.Compile(info.Subscriptions[i].Where())
	}
	return info, err
}

// Backlog is how many unread events of a consumer match its filter, and created_at
// of the oldest, "" when there is none.
type Backlog struct {
	Count  int64
	Oldest string
	Err    error // ErrNoSubscription, *filter.Error, filter.ErrRuntime; the rest is not known
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
// they are read once for all of them.
func (t *Thread) Backlogs(ctx context.Context, consumers []string) []Backlog {
	backlogs := make([]Backlog, len(consumers))
	unread := make([]reading, len(consumers))
	var asked []*store.Selection
	for i, consumer := range consumers {
		r, b := &unread[i], &backlogs[i]
		b.Err = t.read(ctx, func(tx *Tx) (err error) {
			*r, err = tx.unread(consumer)
			return err
		})
		if b.Err == nil {
			asked = append(asked, r.selection)
		}
	}
	if len(asked) > 1 {
		// An error is that of the filter which meets it, below.
		for done := false; !done; {
			if t.read(ctx, func(tx *Tx) (err error) {
				done, err = tx.s.Learn(asked)
				return err
			}) != nil {
				break
			}
		}
	}
	for i := range backlogs {
		if b := &backlogs[i]; b.Err == nil {
			b.Err = b.count(ctx, unread[i])
		}
	}
	return backlogs
}

// unread returns the reading of what a consumer has not read.
func (tx *Tx) unread(consumer string) (r reading, err error) {
	s, err := tx.subscription(consumer)
	if err != nil {
		return r, err
	}
	p, _, err := tx.Progress(consumer)
	if err != nil {
		return r, err
	}
	f, err := filter.Compile(s.Where())
	if err != nil {
		return r, err
	}
	set, err := tx.settledOf(consumer, p.From())
	return reading{t: tx.t, skip: set, selection: store.NewSelection(f, nil), after: p.From(), upto: math.MaxInt64, limit: math.MaxInt64}, err
}

func (b *Backlog) count(ctx context.Context, r reading) (err error) {
	first := r
	first.limit = 1
	first.all(ctx, func(e event.Event, rerr error) bool {
		b.Oldest, err = e.CreatedAt, rerr
		return true
	})
	if err == nil {
		err = r.dryRun(ctx)
	}
	b.Count = math.MaxInt64 - r.limit
	return err
}
