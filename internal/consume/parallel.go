package consume

import (
	"context"
	"errors"
	"sync"
	"time"

	"thread/engine"
	"thread/internal/lanes"
	"thread/internal/watch"
)

// runner is what carries deliveries out, each of its slots one at a time.
type runner interface {
	// run carries out a delivery in a slot and returns its result. Where the slot cannot
	// take another one yet, rest returns when it can. turn is nil where none is
	// for it.
	run(slot int, d *engine.Delivery, turn Turn) (r engine.Result, rest func(), err error)
	// stop is called when nothing new is begun any more, and end when no slot is busy
	// any more, either once or more.
	stop()
	end()
}

// parallel has deliveries carried out side by side. One goroutine decides; slots carry
// deliveries out; and one Step of the feed at a time stores what has come together
// since the one before. So that slots do not wait for it, deliveries are kept in
// reserve, and a slot that is done takes the next one from there itself.
type parallel struct {
	*run
	feed   *engine.ParallelFeed
	runner runner

	mu      sync.Mutex // what is below; the goroutine that decides has it except while it waits
	ended   []ended    // not noted yet
	free    []int
	busy    int
	reserve []engine.Delivery
	careful map[int64]held // given to a slot, to be begun when that was stored
	want    int            // in reserve

	outcomes []engine.DeliveryResult
	begun    []int64
	gather   *time.Timer // runs while results are gathered for the next step
	gathered bool        // it is time
	look     bool        // something may have come
	ending   bool        // nothing new is begun
	failed   error

	waits  context.Context // of what waits for its turn
	refuse context.CancelFunc
	turned chan turned

	slots   []chan held   // nil: not used yet
	some    chan struct{} // something of ended is to be noted now
	freed   chan int
	stepped chan stepped
	step    *engine.Step // under way
	last    engine.Given
}

type stepped struct {
	given engine.Given
	err   error
}

// gatherTime is how long results wait for others while there is plenty in reserve. The
// other two bound what is in reserve: for each slot, and at least for all of them.
const (
	gatherTime    = 2 * time.Millisecond
	reserveOfSlot = 8
	reserveOfAll  = 256
)

func (r *run) parallel(ctx context.Context) error {
	feed, err := r.t.ParallelFeed(r.consumer, engine.ParallelPolicy{
		Policy: engine.Policy{Limit: r.Batch, MaxAttempts: r.MaxAttempts, Backoff: r.backoff}, Key: r.Key, Fold: r.fold(), Window: r.Window,
	})
	if err != nil {
		return err
	}
	n := max(1, int(r.Parallel))
	p := &parallel{
		run: r, feed: feed, want: n, look: true, careful: make(map[int64]held),
		turned: make(chan turned), slots: make([]chan held, n), some: make(chan struct{}, 1), freed: make(chan int), stepped: make(chan stepped, 1),
	}
	defer feed.Close()
	for slot := range n {
		p.free = append(p.free, n-1-slot)
	}
	if r.Worker {
		p.runner = newWorkers(r, n)
	} else {
		p.runner = &commands{r}
	}
	p.waits, p.refuse = context.WithCancel(context.Background())
	defer p.refuse()
	defer p.runner.end()
	defer func() {
		for _, s := range p.slots {
			if s != nil {
				close(s)
			}
		}
	}()
	return p.loop(ctx)
}

// fold makes one of the keys that have the same session lane (L-23).
func (r *run) fold() func(string) string {
	if r.Turns == nil {
		return nil
	}
	return lanes.Session
}

func (p *parallel) loop(ctx context.Context) error {
	w, err := p.t.Watch()
	if err != nil && p.Mode == Follow {
		return err
	}
	watching, stop := context.WithCancel(ctx)
	written := make(chan struct{}, 1)
	over := make(chan struct{})
	go func() {
		defer close(over)
		for w != nil && w.Wait(watching, time.Time{}) == nil {
			select {
			case written <- struct{}{}:
			default:
			}
		}
	}()
	defer func() {
		stop()
		<-over
		if w != nil {
			w.Close()
		}
	}()
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	done := ctx.Done()
	p.mu.Lock()
	defer p.mu.Unlock()
	for {
		p.handOut()
		p.begin()
		if p.step == nil {
			if finished, err := p.finished(); finished || err != nil {
				return err
			}
		}
		until, err := p.until()
		if err != nil {
			return err
		}
		if !until.IsZero() {
			timer.Reset(max(0, watch.Nap(until)))
		}
		var gather <-chan time.Time
		if p.gather != nil && p.step == nil {
			gather = p.gather.C
		}
		p.mu.Unlock()
		select {
		case <-gather:
			p.wake()
			p.gathered = true
		case <-done:
			p.wake()
			done = nil
			p.finish(nil)
		case t := <-p.turned:
			p.wake()
			p.hasTurn(t)
		case <-p.some:
			p.wake()
		case slot := <-p.freed:
			p.wake()
			p.isFree(slot)
		case s := <-p.stepped:
			p.wake()
			p.stored(s)
		case <-written:
			p.wake()
			// Our own results are written, too: that is looked at only where another process has
			// nothing to do.
			p.look = p.look || len(p.free) > 0
		case <-timer.C:
			p.wake()
			p.look = p.look || until.IsZero() || !until.After(time.Now())
		}
	}
}

// wake is called when the goroutine that decides has waited.
func (p *parallel) wake() {
	p.mu.Lock()
	for _, e := range p.ended {
		p.end(e)
	}
	clear(p.ended)
	p.ended = p.ended[:0]
}

// end notes a result.
func (p *parallel) end(e ended) {
	testPoint("ended")
	if e.err != nil {
		p.finish(e.err)
		e.result = engine.Result{Verdict: engine.Returned}
	} else {
		p.account(&e.d, e.result)
	}
	p.outcomes = append(p.outcomes, engine.DeliveryResult{Number: e.d.Number(), Result: e.result})
	if e.free {
		p.isFree(e.slot)
	}
}

// finish ends the run once what has begun has ended.
func (p *parallel) finish(err error) {
	if p.failed == nil {
		p.failed = err
	}
	p.ending = true
	p.refuse()
	p.runner.stop()
}

// begin has a step stored when there is one and none is under way.
func (p *parallel) begin() {
	if p.step != nil || len(p.outcomes)+len(p.begun) == 0 && (!p.look || p.ending) {
		return
	}
	// While there is plenty in reserve, no caller waits for the step: it is worth a moment
	// to have more results share it.
	if !p.gathered && !p.ending && !p.look && len(p.careful) == 0 && len(p.reserve) > p.want/2 {
		if p.gather == nil {
			p.gather = time.NewTimer(gatherTime)
		}
		return
	}
	p.gather, p.gathered = nil, false
	q := &engine.Step{Results: p.outcomes, Begun: p.begun}
	if !p.ending {
		q.Begin, q.Reserve = len(p.free), max(0, p.want-len(p.reserve))
		if p.Turns != nil {
			q.Begin = 0
		}
	}
	p.outcomes, p.begun, p.look, p.step = nil, nil, false, q
	go func() {
		var s stepped
		s.err = retryBusy(func() (err error) {
			s.given, err = p.feed.Step(context.Background(), *q)
			return err
		})
		p.stepped <- s
	}()
}

// stored takes the answer of a step.
func (p *parallel) stored(s stepped) {
	testPoint("stored")
	q := p.step
	p.step = nil
	for _, id := range s.given.Dead {
		p.sum.Dead++
		p.Warn("event %d is a dead letter now", id)
	}
	if s.err != nil {
		p.finish(s.err)
		// Paused or not subscribed any more: results are stored all the same.
		if errors.Is(s.err, engine.ErrBusy) || errors.Is(s.err, engine.ErrUnknownOutcome) {
			p.Warn("results of %d deliveries may not be stored: %v", len(q.Results), s.err)
		}
		s.given = engine.Given{} // what was given out is not known
	}
	for _, n := range q.Begun {
		if h, ok := p.careful[n]; ok {
			delete(p.careful, n)
			if s.err == nil {
				p.start(h)
				continue
			}
			if h.turn != nil {
				h.turn.Done("")
			}
			p.free, p.busy = append(p.free, h.slot), p.busy-1
		}
	}
	p.last = s.given
	p.look = p.look || s.given.More
	for _, d := range s.given.Begin {
		if p.ending { // a signal has come meanwhile
			p.reserve = append(p.reserve, d)
			continue
		}
		p.start(held{slot: p.take(), d: d})
	}
	starved := len(p.free) > 0 && len(p.reserve) == 0
	p.reserve = append(p.reserve, s.given.Reserved...)
	if starved && len(s.given.Reserved) == q.Reserve && q.Reserve > 0 {
		p.want = min(2*p.want, max(reserveOfSlot*int(p.Parallel), reserveOfAll))
	}
}

// finished reports whether all has ended. No step is under way.
func (p *parallel) finished() (bool, error) {
	if p.busy > 0 || len(p.outcomes)+len(p.begun) > 0 {
		return false, nil
	}
	if p.ending {
		if len(p.reserve) > 0 {
			for _, d := range p.reserve {
				p.outcomes = append(p.outcomes, engine.DeliveryResult{Number: d.Number(), Result: engine.Result{Verdict: engine.Returned}})
			}
			p.reserve = nil
			p.begin()
			return false, nil
		}
		return true, p.failed
	}
	idle := !p.look && len(p.reserve) == 0 && p.last.NotBefore.IsZero()
	return idle && p.Mode != Follow, nil
}

// until is when a look is due.
func (p *parallel) until() (time.Time, error) {
	if p.ending || len(p.free) == 0 {
		return time.Time{}, nil
	}
	if p.Mode == Follow && p.step == nil {
		return p.scheduled(p.last.NotBefore)
	}
	return p.last.NotBefore, nil
}

// commands runs the command again for each delivery.
type commands struct{ r *run }

func (c *commands) run(_ int, d *engine.Delivery, turn Turn) (r engine.Result, rest func(), err error) {
	r, err = c.r.attempt(d, turn)
	return r, nil, err
}

func (c *commands) stop() {}
func (c *commands) end()  {}
