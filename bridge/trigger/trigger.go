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

	mu      sync.Mutex
	running bool
	paused  bool
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
		state: newState(t, &c), changed: make(chan struct{})}, nil
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
	t.paused, t.running, t.result, t.wrong = control.Paused, true, nil, nil
	t.ended = make(chan struct{})
	loop, stop := context.WithCancel(context.WithoutCancel(ctx))
	t.stop = stop
	t.metrics.set(func(m *Metrics) { m.workers = t.cfg.Concurrency })
	go t.run(loop, w)
	t.log.Info("started", "workers", t.cfg.Concurrency, "settle", t.cfg.Settle, "waiting", len(t.open), "paused", t.paused)
	return nil
}

// batch is the answer of one Consume.
type batch struct {
	ms  []Message
	err error
}

// run is the loop: one goroutine that stores and settles, one that consumes.
func (t *Trigger) run(ctx context.Context, w *watch.Watcher) {
	asks, batches, wakes := make(chan context.Context, 1), make(chan batch), make(chan struct{}, 1)
	// What has begun is brought to its end, while that can be waited for.
	work, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	context.AfterFunc(ctx, func() { time.AfterFunc(t.drain+engine.DefaultLockWait, cancel) })
	var gone sync.WaitGroup
	gone.Go(func() { t.consume(asks, batches) })
	gone.Go(func() {
		for w.Wait(ctx, time.Time{}) == nil {
			select {
			case wakes <- struct{}{}:
			default:
			}
		}
	})
	err := t.loop(ctx, work, asks, batches, wakes)
	t.haltConsume()
	close(asks)
	left := 0
	for b := range batches { // what was taken is stored
		if err == nil && len(b.ms) > 0 {
			err = t.intake(work, b.ms)
		}
	}
	if err == nil {
		left, err = t.drainOpen(work, w)
	}
	w.Close()
	gone.Wait()
	if ctx.Err() != nil && work.Err() != nil && errors.Is(err, context.Canceled) {
		err = nil // it was given up, and comes again
		t.log.Warn("stopped while the store or the broker was waited for")
	}
	if err == nil && len(t.told) > 0 {
		last, cancel := context.WithTimeout(context.WithoutCancel(ctx), engine.DefaultLockWait)
		err = t.storeEnds(last, nil)
		cancel()
	}
	if t.governor != nil {
		err = errors.Join(err, t.governor.Close())
	}
	err = errors.Join(err, t.src.Close())
	if left > 0 {
		t.log.Warn("stopped with events still being handled", "left", left)
	}
	t.log.Info("stopped")
	t.metrics.set(func(m *Metrics) { m.workers = 0 })
	t.mu.Lock()
	t.running, t.result = false, err
	close(t.ended)
	t.mu.Unlock()
	t.signal()
}

// loop returns nil once ctx has ended.
func (t *Trigger) loop(ctx, work context.Context, asks chan<- context.Context, batches <-chan batch, wakes <-chan struct{}) error {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	measures := time.NewTicker(time.Duration(max(t.cfg.ExportInterval, 1) * float64(time.Second)))
	defer measures.Stop()
	keep := t.keeper(work)
	defer keep.Stop()
	asked := false
	if err := t.settle(work); err != nil {
		return err
	}
	ask := func() {
		if asked || !t.hasRoom(work) {
			return
		}
		consume, halt := context.WithCancel(ctx)
		t.mu.Lock()
		t.halt = halt
		t.mu.Unlock()
		asks <- consume
		asked = true
	}
	for {
		ask()
		select {
		case <-ctx.Done():
			return nil
		case b := <-batches:
			asked = false
			if b.err == nil {
				ask() // the next messages come while these are stored
			}
			if b.err != nil && !errors.Is(b.err, context.Canceled) {
				t.trouble(fmt.Errorf("consuming: %w", b.err))
				t.log.Warn("cannot consume, tried again", "error", b.err)
			}
			if len(b.ms) > 0 {
				if err := t.intake(work, b.ms); err != nil {
					return err
				}
			}
		case <-wakes:
			if err := t.obey(work); err != nil {
				t.log.Warn("orders cannot be read", "error", err)
			}
			if err := t.settle(work); err != nil {
				return err
			}
		case <-keep.C:
			if held := t.held(); len(held) > 0 {
				if err := t.src.(Keeper).Keep(work, held); err != nil {
					t.log.Warn("the broker cannot be asked to wait", "error", err)
				}
			}
		case <-measures.C:
			t.measure(work)
		case <-tick.C: // there may be room again
		}
		t.signal()
	}
}

// keeper returns a ticker for Keep; one that never ticks where there is no need.
func (t *Trigger) keeper(context.Context) *time.Ticker {
	every := t.src.Capabilities().KeepEvery
	if _, ok := t.src.(Keeper); !ok || every == 0 {
		every = 1000 * time.Hour
	}
	return time.NewTicker(every)
}

// consume answers asks until there are no more, then closes batches.
func (t *Trigger) consume(asks <-chan context.Context, batches chan<- batch) {
	defer close(batches)
	most := t.cfg.MaxBatch
	if c := t.src.Capabilities(); c.MaxBatch > 0 {
		most = min(most, c.MaxBatch)
	}
	wait := 100 * time.Millisecond
	for ctx := range asks {
		ms, err := t.src.Consume(ctx, most)
		if err != nil && ctx.Err() == nil {
			_ = sleep(ctx, wait)
			wait = min(2*wait, 30*time.Second)
		} else {
			wait = 100 * time.Millisecond
		}
		batches <- batch{ms, err}
	}
}

func (t *Trigger) haltConsume() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.halt != nil {
		t.halt()
	}
}

// hasRoom reports whether messages may be taken now.
func (t *Trigger) hasRoom(ctx context.Context) bool {
	t.mu.Lock()
	paused := t.paused
	t.mu.Unlock()
	if paused {
		return false
	}
	if most := t.src.Capabilities().MaxOut; most > 0 && len(t.open) >= most {
		return false
	}
	if t.cfg.MaxBacklog == 0 {
		return true
	}
	n := int64(len(t.open))
	if t.cfg.Settle == SettleStored {
		var err error
		if n, _, err = t.th.Backlog(ctx, t.cfg.Consumer); err != nil {
			t.trouble(fmt.Errorf("backlog of '%s': %w", t.cfg.Consumer, err))
			return false
		}
		t.metrics.set(func(m *Metrics) { m.backlog = n })
	}
	return n < t.cfg.MaxBacklog
}

// measure reads what the broker tells, now and then.
func (t *Trigger) measure(ctx context.Context) {
	waiting := int64(len(t.open))
	lag := int64(-1)
	if t.cfg.MetricsEnabled {
		short, cancel := context.WithTimeout(ctx, time.Second)
		if n, err := t.src.Lag(short); err == nil {
			lag = n
		}
		cancel()
	}
	t.metrics.set(func(m *Metrics) {
		m.lag = lag
		if t.cfg.Settle == SettleHandled {
			m.backlog = waiting
		}
	})
}

// drainOpen waits for the events that are being handled, and returns how many are
// left when its time is over.
func (t *Trigger) drainOpen(ctx context.Context, w *watch.Watcher) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, t.drain)
	defer cancel()
	for {
		if err := t.settle(ctx); err != nil || len(t.open) == 0 {
			if ctx.Err() != nil {
				return len(t.open), nil
			}
			return 0, err
		}
		if err := w.Wait(ctx, t.now().Add(time.Second)); err != nil {
			return len(t.open), nil
		}
	}
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
