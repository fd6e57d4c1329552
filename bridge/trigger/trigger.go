// Package trigger turns messages of a queue into events of a thread (docs/reference/bridge.md
// and docs/spec/triggers.md). It is internal to this program and makes no promise
// to library users.
//
// A message becomes an event in the same transaction that stores where it came
// from: its position in a stream, or its key. Only then is the broker told. So a
// process that is killed at any moment stores every message once: before the
// commit the broker delivers it again, and after it the position or the key is
// known.
//
// A trigger stores; subscriptions deliver. Who runs a handler, how often it is
// tried and what becomes of an event that it cannot handle is the business of
// consumers. A trigger that settles when an event is handled reads that from the
// thread, and so does not care who ran the handler.
//
// The brokers are packages of the module thread/bridge, which implement Source and
// Sink.
package trigger

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"thread/engine"
)

// backlog is what is known of the events that wait for the consumer. Counting them
// reads all of them: it is done when there may be too many, and again when the
// consumer has moved on.
type backlog struct {
	counted bool
	count   int64 // at that time
	through int64 // where the consumer was then
	at      time.Time
	taken   int64 // messages taken since
	storing int   // messages taken and not stored yet
}

// toldKey is the key of a message that the broker was told of, and when.
type toldKey struct {
	at   []byte
	when time.Time
	drop bool // its event failed: the key is not kept
}

// Trigger takes messages from one source into one thread. Start it once; Stop ends
// it. Its other methods may be called at any time.
type Trigger struct {
	cfg      Config
	th       *engine.Thread
	src      Source
	log      *slog.Logger
	now      func() time.Time
	onStored func(source string, subscribed bool)
	drain    time.Duration
	stuck    func(ctx context.Context, consumer string, id int64) (string, error)
	alive    func(ctx context.Context, consumer string) (bool, error)
	governor Governor
	trace    func(m *Message, traceparent string) (own string, stored func(event int64))
	mapping  mapping
	metrics  *Metrics
	state    *state

	// Of the loop only.
	deliveries *deliveries
	told       []toldKey
	open       map[int64]*waitingEvent
	openByKey  map[string]*waitingEvent
	order      []int64 // ids of open, rising, some of them gone
	subscribed bool    // at the latest commit
	backlog    backlog
	doubts     doubts
	parking    parking
	parkMost   int
	giveUp     time.Duration
	stuckWait  int // ticks until Options.Stuck is asked again
	stopping   <-chan struct{}
	tickEvery  time.Duration // of the loop
	keptBack   time.Duration // see doubts

	mu      sync.Mutex
	running bool
	paused  bool
	full    bool // of max_backlog
	stop    context.CancelFunc
	halt    context.CancelFunc // of the Consume that waits
	ended   chan struct{}
	result  error
	changed chan struct{}
	beat    atomic.Int64 // when the loop came round, in nanoseconds since 1970
}

// Options are what a trigger needs next to its configuration. Zero values stand for
// the defaults.
type Options struct {
	Log *slog.Logger // its texts are redacted
	Now func() time.Time
	// OnStored is told, after a commit, the source of the last event stored, and
	// whether there are subscriptions, so that handlers may have to be started.
	OnStored func(source string, subscribed bool)
	Drain    time.Duration // how long Stop waits for handlers that run, 30 s by default
	Governor Governor      // in place of the configuration's
	Tree     *os.File      // locked, inherited by the program of Governance.Command; may be nil
	// Trace is called with each message and its header traceparent, "" for none. It returns
	// the header that the event has in its place, and what is called once the event is stored.
	// Nil: the event has the header of the message.
	Trace func(m *Message, traceparent string) (own string, stored func(event int64))
	// Stuck says why no process works on an event of the consumer whose outcome
	// counts, "" when one does or will. Nil: not asked.
	Stuck func(ctx context.Context, consumer string, id int64) (string, error)
	// Alive says whether a process works for that consumer: without one a delivery that
	// has begun is not being handled. Nil: it is.
	Alive func(ctx context.Context, consumer string) (bool, error)
}

// Errors of Start and Stop.
var (
	ErrRunning    = errors.New("the trigger is already running")
	ErrNotRunning = errors.New("the trigger is not running")
)

// ConnectionError says that the broker could not be reached when a trigger started.
type ConnectionError struct {
	Queue string
	Err   error
}

func (e *ConnectionError) Error() string {
	return fmt.Sprintf("cannot connect to queue %s: %s", e.Queue, Redact(e.Err.Error()))
}

func (e *ConnectionError) Unwrap() error { return e.Err }

// New returns a trigger that is not running. It returns a *ConfigError.
func New(t *engine.Thread, src Source, c Config, o Options) (*Trigger, error) {
	if problems := c.Validate(); problems != nil {
		return nil, &ConfigError{problems}
	}
	c.Complete()
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Drain == 0 {
		o.Drain = 30 * time.Second
	}
	g := o.Governor
	if g == nil {
		var err error
		if g, err = newGovernor(&c.Governance, c.Concurrency, o.Tree); err != nil {
			return nil, err
		}
	}
	m, _ := compileMap(c.Map) // Validate has tried it
	return &Trigger{cfg: c, th: t, src: src, log: slog.New(RedactHandler{o.Log.Handler()}).With("trigger", c.Name, "queue", c.Queue),
		now: o.Now, onStored: o.OnStored, drain: o.Drain, stuck: o.Stuck, alive: o.Alive, governor: g, trace: o.Trace, mapping: m, metrics: newMetrics(c.Queue),
		state: newState(t, &c), tickEvery: tickEvery, keptBack: keptBack, parkMost: parkedAtMost, giveUp: giveUpAfter, changed: make(chan struct{})}, nil
}

// Stop ends the taking of messages, waits for handlers that run, for as long as
// Options.Drain says, and closes the source. An event that no handler has begun stays in
// the thread, and its message with the broker. Stop returns ErrNotRunning, or why the
// trigger ended before.
func (t *Trigger) Stop() error {
	t.mu.Lock()
	if !t.running {
		defer t.mu.Unlock()
		if t.result != nil {
			return t.result
		}
		return ErrNotRunning
	}
	t.stop()
	if t.halt != nil {
		t.halt()
	}
	ended := t.ended
	t.mu.Unlock()
	<-ended
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.result
}

// Beat is when the loop has last come round, or begun a step of its work; the present
// while the trigger does not run. The loop comes round each second, and a step that fails
// is tried again within 30 s: when the beat is much older, a call hangs.
func (t *Trigger) Beat() time.Time {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.running {
		return time.Now()
	}
	return time.Unix(0, t.beat.Load())
}

func (t *Trigger) beats() { t.beat.Store(time.Now().UnixNano()) }

// Ended returns a channel that is closed when the trigger has ended.
func (t *Trigger) Ended() <-chan struct{} {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.ended
}

// signal tells who waits in Changed that something was done.
func (t *Trigger) signal() {
	t.mu.Lock()
	defer t.mu.Unlock()
	close(t.changed)
	t.changed = make(chan struct{})
}

// Changed returns a channel that is closed when the loop has done something.
func (t *Trigger) Changed() <-chan struct{} {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.changed
}

// mayRequeue reports whether a message may be delivered again. One without an id is
// another one when it is redelivered: it gets one more chance.
func (t *Trigger) mayRequeue(m *Message, deliveries int64) bool {
	if m.Unnamed && m.Redelivered {
		return false
	}
	return t.src.Capabilities().Requeue && deliveries < int64(t.cfg.DeliveryLimit)
}

// sleepOrStop waits for d, or until a stop begins. It returns errGivenUp when one began
// before giveUpAfter.
func (t *Trigger) sleepOrStop(ctx context.Context, d time.Duration, stopped *time.Time) error {
	stopping := t.stopping
	if !stopped.IsZero() {
		if time.Since(*stopped) > t.giveUp {
			return errGivenUp
		}
		stopping, d = nil, min(d, t.giveUp/10)
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-stopping:
		*stopped = time.Now()
	case <-timer.C:
	}
	return nil
}
