package trigger

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"thread/engine"
	"thread/internal/watch"
)

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
	governor Governor
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
	tickEvery  time.Duration // of the loop
	keptBack   time.Duration // see doubts

	mu      sync.Mutex
	running bool
	paused  bool
	full    bool  // of max_backlog
	wrong   error // what keeps messages from being stored or settled now
	stop    context.CancelFunc
	halt    context.CancelFunc // of the Consume that waits
	ended   chan struct{}
	result  error
	changed chan struct{}
}

// Options are what a trigger needs beside its configuration. Zero values stand for
// the defaults.
type Options struct {
	Log *slog.Logger // its texts are redacted
	Now func() time.Time
	// OnStored is told, after a commit, the source of the last event stored, and
	// whether there are subscriptions, so that handlers may have to be started.
	OnStored func(source string, subscribed bool)
	Drain    time.Duration // how long Stop waits for what is being handled, 30 s by default
	Governor Governor      // in place of that of the configuration
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
		if g, err = newGovernor(&c.Governance); err != nil {
			return nil, err
		}
	}
	m, _ := compileMap(c.Map) // Validate has tried it
	return &Trigger{cfg: c, th: t, src: src, log: slog.New(RedactHandler{o.Log.Handler()}).With("trigger", c.Name, "queue", c.Queue),
		now: o.Now, onStored: o.OnStored, drain: o.Drain, governor: g, mapping: m, metrics: newMetrics(c.Queue),
		state: newState(t, &c), tickEvery: tickEvery, keptBack: keptBack, changed: make(chan struct{})}, nil
}

// Start connects and begins to take messages. It returns ErrRunning, and a
// *ConnectionError, which is not tried again.
func (t *Trigger) Start(ctx context.Context) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.running {
		return ErrRunning
	}
	if err := t.src.Connect(ctx, t.state); err != nil {
		return &ConnectionError{t.cfg.Queue, err}
	}
	t.deliveries = newDeliveries(t.src.Capabilities().Positions)
	if err := t.reload(ctx); err != nil {
		return errors.Join(err, t.src.Close())
	}
	control, err := readControl(ctx, t.th, t.cfg.Name)
	if err != nil {
		return errors.Join(err, t.src.Close())
	}
	w, err := watch.New(t.th.Dir())
	if err != nil {
		return errors.Join(err, t.src.Close())
	}
	t.paused, t.running, t.full, t.result, t.wrong = control.Paused, true, false, nil, nil
	t.backlog, t.doubts = backlog{}, doubts{}
	t.ended = make(chan struct{})
	loop, stop := context.WithCancel(context.WithoutCancel(ctx))
	t.stop = stop
	t.metrics.set(func(m *Metrics) { m.workers = t.cfg.Concurrency })
	go t.run(loop, w)
	t.log.Info("started", "workers", t.cfg.Concurrency, "settle", t.cfg.Settle, "waiting", len(t.open), "paused", t.paused)
	return nil
}

// Stop ends the taking of messages, waits for what is being handled, for as long as
// Options.Drain says, and closes the source. It returns ErrNotRunning, or why the
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

func (t *Trigger) trouble(err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.wrong = err
}
