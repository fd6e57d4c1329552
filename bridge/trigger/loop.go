package trigger

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"thread/engine"
)

// ask is for at most that many messages.
type ask struct {
	ctx  context.Context
	most int
}

// batch is the answer of one Consume.
type batch struct {
	items []*item // prepared, while those before are stored
	err   error
}

// run is the loop: one goroutine that stores and settles, one that consumes.
func (t *Trigger) run(ctx context.Context, w engine.Watcher) {
	asks, batches, wakes := make(chan ask, 1), make(chan batch), make(chan struct{}, 1)
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
		if err == nil && len(b.items) > 0 {
			err = t.intake(work, b.items)
		}
	}
	if err == nil {
		left, err = t.drainOpen(work, w)
	}
	w.Close()
	gone.Wait()
	if ctx.Err() != nil && (errors.Is(err, errGivenUp) || work.Err() != nil && errors.Is(err, context.Canceled)) {
		err = nil // it was given up, and is redelivered
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
		t.log.Warn("stopped while handlers run", "left", left)
	}
	t.log.Info("stopped")
	t.metrics.set(func(m *Metrics) { m.workers, m.busy = 0, 0 })
	t.mu.Lock()
	t.running, t.result = false, err
	close(t.ended)
	t.mu.Unlock()
	t.signal()
}

// loop returns nil once ctx has ended.
func (t *Trigger) loop(ctx, work context.Context, asks chan<- ask, batches <-chan batch, wakes <-chan struct{}) error {
	tick := time.NewTicker(t.tickEvery)
	defer tick.Stop()
	measures := time.NewTicker(time.Duration(max(t.cfg.ExportInterval, 1) * float64(time.Second)))
	defer measures.Stop()
	keep := t.keeper(work)
	defer keep.Stop()
	asked, got := false, false // got: since the tick before
	if err := t.settle(work); err != nil {
		return err
	}
	t.measure(work) // not only after the first interval
	next := func() {
		if asked {
			return
		}
		most := t.room(work)
		if most == 0 {
			return
		}
		consume, halt := context.WithCancel(ctx)
		t.mu.Lock()
		t.halt = halt
		t.mu.Unlock()
		asks <- ask{consume, most}
		asked = true
	}
	for {
		t.beats()
		next()
		select {
		case <-ctx.Done():
			return nil
		case b := <-batches:
			asked, got = false, true
			t.backlog.taken += int64(len(b.items))
			t.backlog.storing = len(b.items)
			if b.err == nil {
				t.noteTrouble(troubleConsume, nil)
				next() // the next messages come while these are stored
			}
			if b.err != nil && !errors.Is(b.err, context.Canceled) {
				t.noteTrouble(troubleConsume, fmt.Errorf("consuming: %w", b.err))
				t.log.Warn("cannot consume, tried again", "error", b.err)
			}
			if len(b.items) > 0 {
				if err := t.intake(work, b.items); err != nil {
					return err
				}
			}
			t.backlog.storing = 0
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
			if err := t.lookForDoubts(work, asked, asked && !got); err != nil {
				if errors.Is(err, engine.ErrCorrupt) || work.Err() != nil {
					return err
				}
				t.log.Warn("keys cannot be looked through, tried again", "error", err)
			}
			got = false
			t.retryParked(work)
			t.lookForConsumer(work)
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
func (t *Trigger) consume(asks <-chan ask, batches chan<- batch) {
	defer close(batches)
	wait := 100 * time.Millisecond
	for a := range asks {
		ms, err := t.src.Consume(a.ctx, a.most)
		if err != nil && a.ctx.Err() == nil {
			_ = sleep(a.ctx, wait)
			wait = min(2*wait, 30*time.Second)
		} else {
			wait = 100 * time.Millisecond
		}
		batches <- batch{t.prepare(ms), err}
	}
}

func (t *Trigger) haltConsume() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.halt != nil {
		t.halt()
	}
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

// drainOpen waits for handlers that run at its first look, and returns how many of
// them are left when its time has ended. A handler that begins later is not waited for: with
// a full thread there would always be one.
func (t *Trigger) drainOpen(ctx context.Context, w engine.Watcher) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, t.drain)
	defer cancel()
	for first := true; ; first = false {
		t.beats()
		err := t.settle(ctx)
		if first {
			t.noteRunning()
		}
		n := t.underWay(ctx)
		if first && n > 0 {
			t.log.Info("stopping, waits for handlers that run", "handlers", n)
		}
		if err != nil && ctx.Err() == nil {
			return 0, err
		}
		if n == 0 || ctx.Err() != nil {
			if waiting := len(t.open) - n; waiting > 0 {
				t.log.Info("stopped before their handler has begun", "events", waiting)
			}
			return n, nil
		}
		_ = w.Wait(ctx, t.now().Add(time.Second)) // the loop looks at ctx
	}
}

// noteRunning marks the handlers that run at a stop.
func (t *Trigger) noteRunning() {
	t.waitingOpen(func(w *waitingEvent) bool {
		w.atStop = w.running
		return w.atStop
	})
}

// underWay returns how many handlers that ran at the stop ran at the latest look, too.
func (t *Trigger) underWay(ctx context.Context) int {
	n := t.waitingOpen(func(w *waitingEvent) bool { return w.running && w.atStop })
	if n == 0 || t.alive == nil {
		return n
	}
	if alive, err := t.alive(ctx, t.cfg.Consumer); err == nil && !alive {
		return 0
	}
	return n
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
	if err := errors.Join(t.reload(ctx), t.loadParked(ctx)); err != nil {
		return errors.Join(err, t.src.Close())
	}
	control, err := readControl(ctx, t.th, t.cfg.Name)
	if err != nil {
		return errors.Join(err, t.src.Close())
	}
	w, err := t.th.Watch()
	if err != nil {
		return errors.Join(err, t.src.Close())
	}
	t.paused, t.running, t.full, t.result = control.Paused, true, false, nil
	t.metrics.set(func(m *Metrics) { m.wrong = [troubles]wrong{} })
	t.backlog, t.doubts = backlog{}, doubts{}
	t.ended = make(chan struct{})
	t.beats()
	loop, stop := context.WithCancel(context.WithoutCancel(ctx))
	t.stop, t.stopping = stop, loop.Done()
	t.metrics.set(func(m *Metrics) { m.workers, m.busy = t.cfg.Concurrency, 0 })
	go t.run(loop, w)
	t.log.Info("started", "workers", t.cfg.Concurrency, "settle", t.cfg.Settle, "waiting", len(t.open), "paused", t.paused)
	return nil
}
