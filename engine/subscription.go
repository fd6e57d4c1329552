package engine

import (
	"context"
	"fmt"
	"math"
	"strings"
	"time"
	"unicode/utf8"

	"thread/filter"
	"thread/internal/store"
	"thread/internal/store/bolt"
	"thread/lock"
)

// Subscription is a consumer's standing order: run Handler while there are
// events that match Filter.
type Subscription struct {
	Consumer string  // its id: any text in UTF-8, 1 to event.MaxNameBytes bytes
	Handler  string  // a shell command, not empty; of a consumer with Pull it is PullHandler
	Filter   *string // nil: every event; one that ends in a -- comment is stored with a newline
	// Timeout is how long a handler may run; 0 for as long as it likes.
	Timeout time.Duration
	// AckOnSuccess moves progress to the newest event that the handler popped,
	// when it exits 0 (contract, section 12).
	AckOnSuccess bool
	// Paused keeps dispatch and consume from giving out events (see Pause).
	Paused bool
	// Lane is the global lane in which a resident process runs the handler; ""
	// for the lane main.
	Lane string
	// Key and Parallel are the defaults of thread consume for this consumer, see
	// ParallelPolicy; 0 for one delivery after the other.
	Key      string
	Parallel int64
	// WarnAfter is how long a handler or a delivery waits for its turn in a lane of a
	// resident process until that warns of it; nil for the default of 2 s.
	WarnAfter *time.Duration
	// Pull: nothing is ever started for the consumer, and its events are taken with
	// [Thread.Next].
	Pull bool
	// MaxAttempts is, with Pull, how many failures make an event a dead letter; 0 for
	// [DefaultMaxAttempts].
	MaxAttempts int64
}

// PullHandler is the handler that other programs see of a consumer with Pull: one
// that does nothing.
const PullHandler = "true"

// Where returns the text of the filter, "" when there is none.
func (s *Subscription) Where() string {
	if s.Filter == nil {
		return ""
	}
	return *s.Filter
}

const (
	maxHandlerBytes  = 1 << 20
	maxLaneBytes     = 200
	maxOrderKeyBytes = 4096
)

// MaxParallel bounds Subscription.Parallel: each delivery that is in flight is a process.
const MaxParallel = 1000

// subscriptionOf returns a record as users see it.
func subscriptionOf(r *store.Subscription) Subscription {
	return Subscription{
		Consumer: r.Consumer, Handler: r.Handler, Filter: r.Filter, Timeout: r.Timeout,
		AckOnSuccess: r.AckOnSuccess, Paused: r.Paused, Lane: r.Lane, Key: r.Key, Parallel: r.Parallel, WarnAfter: r.WarnAfter,
		Pull: r.Pull, MaxAttempts: r.MaxAttempts,
	}
}

// set puts what users see into a record.
func (s *Subscription) set(r *store.Subscription) {
	r.Consumer, r.Handler, r.Filter, r.Timeout = s.Consumer, s.Handler, s.Filter, s.Timeout
	r.AckOnSuccess, r.Paused, r.Lane, r.Key, r.Parallel, r.WarnAfter = s.AckOnSuccess, s.Paused, s.Lane, s.Key, s.Parallel, s.WarnAfter
	r.Pull, r.MaxAttempts = s.Pull, s.MaxAttempts
}

// Subscribe stores a subscription. A consumer that was subscribed before continues
// from its progress. The subscription is durable when Subscribe returns nil.
//
// Subscribe returns [ErrSubscriptionExists], changing nothing. It returns [ErrInvalid]
// for an empty or overlong field; so it does on a file system that ignores case, for a
// consumer that differs from another only in the case of letters. It returns
// [*filter.Error] for an invalid filter. An empty filter matches every event.
func (t *Thread) Subscribe(ctx context.Context, s Subscription) error {
	if err := s.validate(); err != nil {
		return err
	}
	return t.Update(ctx, func(tx *Tx) error { return tx.subscribe(&s) })
}

// Subscribe is [Thread.Subscribe] in this transaction.
func (tx *Tx) Subscribe(s Subscription) error {
	if err := s.validate(); err != nil {
		return err
	}
	return tx.subscribe(&s)
}

// Replace changes a subscription and keeps its place in the order and the
// consumer's progress. The consumer itself cannot be changed.
//
// Replace returns [ErrNoSubscription], and the errors of [Tx.Subscribe] for what
// change made of it.
func (tx *Tx) Replace(consumer string, change func(s *Subscription)) error {
	r, err := tx.subscription(consumer)
	if err != nil {
		return err
	}
	s := subscriptionOf(r)
	change(&s)
	s.Consumer = consumer
	if err := s.validate(); err != nil {
		return err
	}
	if err := tx.notLeased(&s); err != nil {
		return err
	}
	s.set(r)
	return tx.putSubscription(r)
}

func (s *Subscription) validate() error {
	if err := checkConsumer(s.Consumer); err != nil {
		return err
	}
	if s.Pull {
		s.Handler = PullHandler
		if s.Parallel != 0 || s.Key != "" {
			return invalidf("a consumer without a handler has one delivery after the other, not several in parallel")
		}
	}
	if s.MaxAttempts < 0 || s.MaxAttempts > math.MaxInt32 || s.MaxAttempts > 0 && !s.Pull {
		return invalidf("max attempts %d is not in 1 to %d, or the consumer has a handler", s.MaxAttempts, math.MaxInt32)
	}
	if s.Handler == "" {
		return invalidf("handler is empty")
	}
	if len(s.Handler) > maxHandlerBytes {
		return invalidf("handler is %d bytes long, the limit is %d", len(s.Handler), maxHandlerBytes)
	}
	if s.Timeout < 0 {
		return invalidf("timeout is negative")
	}
	if len(s.Lane) > maxLaneBytes || !utf8.ValidString(s.Lane) || strings.HasPrefix(s.Lane, "session:") || strings.TrimSpace(s.Lane) != s.Lane {
		return invalidf("lane %q is not a lane name: it has 1 to %d bytes, no surrounding spaces, and does not begin with \"session:\"", s.Lane, maxLaneBytes)
	}
	if s.WarnAfter != nil && *s.WarnAfter < 0 {
		return invalidf("the time after which a wait is warned of is negative")
	}
	if s.Parallel < 0 || s.Parallel > MaxParallel {
		return invalidf("parallel %d is not in 0 to %d", s.Parallel, MaxParallel)
	}
	if len(s.Key) > maxOrderKeyBytes {
		return invalidf("key is %d bytes long, the limit is %d", len(s.Key), maxOrderKeyBytes)
	}
	if err := ValidKey(s.Key); err != nil {
		return err
	}
	if s.Where() == "" {
		s.Filter = nil
	} else if closed := filter.Closed(*s.Filter); closed != *s.Filter {
		s.Filter = &closed // the original's program writes a parenthesis behind it
	}
	_, err := filter.Compile(s.Where())
	return err
}

func (tx *Tx) subscribe(s *Subscription) error {
	// JSON could not tell two these names apart. Those that were imported stay.
	if !utf8.ValidString(s.Consumer) {
		return invalidf("consumer is not valid UTF-8")
	}
	if v, err := tx.s.Get(store.Subscriptions, store.ConsumerKey(s.Consumer)); err != nil {
		return err
	} else if v != nil {
		return fmt.Errorf("%w: %q", ErrSubscriptionExists, s.Consumer)
	}
	if err := tx.ownFiles(s.Consumer); err != nil {
		return err
	}
	if err := tx.notLeased(s); err != nil {
		return err
	}
	last, err := tx.s.Sequence(store.Subscriptions)
	if err != nil {
		return err
	}
	if err = tx.s.SetSequence(store.Subscriptions, last+1); err != nil {
		return err
	}
	r := store.Subscription{Ordinal: last + 1}
	s.set(&r)
	return tx.putSubscription(&r)
}

// notLeased returns a LeasedError when a consumer is to get a handler while its events
// are in flight.
func (tx *Tx) notLeased(s *Subscription) error {
	if s.Pull {
		return nil
	}
	state, err := tx.delivery(s.Consumer)
	if err != nil {
		return err
	}
	if end := leaseEnd(&state, tx.now()); !end.IsZero() {
		return &LeasedError{s.Consumer, state.Number, end}
	}
	return nil
}

// foldsCase is exchanged by tests.
var foldsCase = lock.FoldsCase

// ownFiles returns ErrInvalid for a consumer whose files in run/ and logs/, its lock
// among them, would be another's. Their names stay as they are, so that
// programs of all versions agree on which file is a consumer's lock; so it is the name of
// the consumer that must differ where the file system does not tell A from a.
func (tx *Tx) ownFiles(consumer string) error {
	if !foldsCase(tx.t.place.Path(bolt.DatabaseName)) {
		return nil
	}
	list, err := tx.subscriptionList()
	for _, s := range list {
		if lock.SameFile(s.Consumer, consumer) {
			return invalidf("consumer %q differs from %q only in the case of letters, which this file system does not tell apart", consumer, s.Consumer)
		}
	}
	return err
}

// Unsubscribe removes a subscription and keeps its progress (T-51). It returns
// [ErrNoSubscription] when there is none.
func (t *Thread) Unsubscribe(ctx context.Context, consumer string) error {
	return t.Update(ctx, func(tx *Tx) error {
		if _, err := tx.subscription(consumer); err != nil {
			return err
		}
		return tx.s.Delete(store.Subscriptions, store.ConsumerKey(consumer))
	})
}

func (tx *Tx) putSubscription(r *store.Subscription) error {
	return tx.s.Put(store.Subscriptions, store.ConsumerKey(r.Consumer), r.Encode())
}

func (tx *Tx) hasSubscriptions() (found bool) {
	err := tx.s.Ascend(store.Subscriptions, nil, func(_, _ []byte) (bool, error) {
		found = true
		return false, nil
	})
	return found || err != nil // reading them returns the error
}

// subscriptionList returns all subscriptions in the order they were made.
func (tx *Tx) subscriptionList() (list []*store.Subscription, err error) {
	err = tx.s.Ascend(store.Subscriptions, nil, func(k, v []byte) (bool, error) {
		s, err := store.DecodeSubscription(k, v)
		list = append(list, s)
		return true, err
	})
	if err != nil {
		return nil, err
	}
	store.SortSubscriptions(list)
	return list, nil
}

// HasSubscriptions reports whether the thread has a subscription at all, so that an
// event may have a handler. It reads no event and no filter.
func (tx *Tx) HasSubscriptions() bool { return tx.hasSubscriptions() }

// Subscription returns the subscription of a consumer, or [ErrNoSubscription].
func (tx *Tx) Subscription(consumer string) (Subscription, error) {
	s, err := tx.subscription(consumer)
	if err != nil {
		return Subscription{}, err
	}
	return subscriptionOf(s), nil
}

// Seek sets how far a consumer is, forward or back: id is the last event that
// counts as processed, 0 for none. The result of a delivery that is in flight is not
// wanted any more, and what was known of a failing event is forgotten. Dead
// letters stay; letters of events that are redelivered are settled with them.
//
// Seek returns [ErrNoSubscription], and [ErrInvalid] for an id that is negative or
// above the newest event.
func (t *Thread) Seek(ctx context.Context, consumer string, id int64) error {
	return t.Update(ctx, func(tx *Tx) error { return tx.Seek(consumer, id) })
}

// Seek is [Thread.Seek] in this transaction.
func (tx *Tx) Seek(consumer string, id int64) error {
	if _, err := tx.subscription(consumer); err != nil {
		return err
	}
	if id < 0 || id > tx.Head() {
		return invalidf("event %d does not exist, the newest is %d", id, tx.Head())
	}
	if err := tx.handBack(consumer); err != nil {
		return err
	}
	if p, _, err := tx.Progress(consumer); err != nil {
		return err
	} else if id == p.From() { // every event after it is redelivered
		if err := tx.dropSet(consumer); err != nil {
			return err
		}
	}
	return tx.setProgress(consumer, id)
}

// Before returns the greatest id before the first event whose created_at is at
// or after when, which is where to seek to; the newest id when there is no such
// event. Times are compared as text, like in a filter. Events are in the order of
// their times only roughly, so some of those after it may be older.
func (t *Thread) Before(ctx context.Context, when time.Time) (id int64, err error) {
	err = t.read(ctx, func(tx *Tx) error { id = tx.Head(); return nil })
	if err != nil {
		return 0, err
	}
	for e, err := range t.Events(ctx, Query{Limit: 1, Since: when}) {
		return e.ID - 1, err
	}
	return id, nil
}

// Pause keeps a consumer's handler from being started, and a [Feed] from giving
// its events out, until Resume. A handler that runs is left alone; [Thread.Pop] and
// [Thread.Ack] work as ever. It returns [ErrNoSubscription].
func (t *Thread) Pause(ctx context.Context, consumer string) error {
	return t.setPaused(ctx, consumer, true)
}

// Resume ends a pause. The caller then starts a dispatch.
func (t *Thread) Resume(ctx context.Context, consumer string) error {
	return t.setPaused(ctx, consumer, false)
}

func (t *Thread) setPaused(ctx context.Context, consumer string, paused bool) error {
	return t.Update(ctx, func(tx *Tx) error {
		s, err := tx.subscription(consumer)
		if err != nil {
			return err
		}
		s.Paused = paused
		return tx.putSubscription(s)
	})
}
