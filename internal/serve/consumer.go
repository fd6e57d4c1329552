package serve

import (
	"context"
	"log/slog"
	"time"

	"thread/engine"
	"thread/internal/dispatch"
	"thread/lane"
)

func (c *consumer) enter(state string) { c.state, c.since = state, time.Now() }

// enqueue puts a consumer that is due into its lane, unless it is on its way.
//
// One that runs is not queued behind itself: what follows its run is decided at
// its end, by what is unread then. Only if it turns out that it did not run,
// because another process had it, the wake-up is not answered yet.
func (t *thread) enqueue(sub *engine.Subscription, w wakeUp) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if w.push {
		delete(t.cleared, sub.Consumer)
	}
	if t.closed || t.cleared[sub.Consumer] {
		return
	}
	if c := t.consumers[sub.Consumer]; c != nil {
		switch c.state {
		case stateQueued:
			c.fresh = c.fresh && w.fresh(c.name)
		case stateRunning:
			c.missed.add(w)
		}
		return
	}
	c := &consumer{name: sub.Consumer, lane: sub.Lane, warn: sub.WarnAfter, fresh: w.fresh(sub.Consumer),
		session: t.session(sub.Consumer)}
	t.consumers[c.name] = c
	t.submit(c)
	t.s.changes.tell()
}

// submit queues c. t.mu is held.
func (t *thread) submit(c *consumer) {
	c.enter(stateQueued)
	waits, cancel := context.WithCancel(t.s.waiting)
	c.cancel = cancel
	_, err := t.s.queue.Submit(waits, lane.Session(c.session, c.lane), func(ctx context.Context) error {
		defer cancel()
		select {
		case t.s.work <- struct{}{}:
			defer func() { <-t.s.work }()
			t.turn(ctx, c)
		case <-waits.Done(): // draining, too
		}
		return nil
	}, warnAfter(c.warn)...)
	if err != nil { // draining: it stays due, which the standby sees
		t.s.log.Debug("not queued", "thread", t.dir, "consumer", c.name, "error", err)
	}
}

// leave takes queued consumers out of their lanes, all those that match, and returns how
// many they were. What has had its turn is not changed (L-11, L-15). t.mu is held.
func (t *thread) leave(match func(*consumer) bool) (n int) {
	for _, c := range t.consumers {
		if c.state != stateQueued || !match(c) {
			continue
		}
		c.cancel()
		delete(t.consumers, c.name)
		if c.retry != nil {
			c.retry.Release()
			<-t.s.held
		}
		n++
	}
	if n > 0 {
		t.s.changes.tell()
	}
	return n
}

// clear takes the consumers of all threads out of a lane in which they wait. The next
// push of a thread, or its next server, queues them again.
func (s *Server) clear(name string) (n int) {
	for _, t := range s.all() {
		t.mu.Lock()
		n += t.leave(func(c *consumer) bool {
			if lane.GlobalLane(c.lane) != name {
				return false
			}
			t.cleared[c.name] = true
			return true
		})
		t.mu.Unlock()
	}
	s.log.Info("lane cleared", "lane", name, "count", n)
	return n
}

// turn is the consumer's turn in the lanes, task being the context of its task there.
func (t *thread) turn(task context.Context, c *consumer) {
	r := newRun(t, c.name)
	r.disown = func() { lane.Disown(task) }
	t.mu.Lock()
	if t.consumers[c.name] != c { // it left its lane a moment ago
		t.mu.Unlock()
		return
	}
	waited := time.Since(c.since)
	c.enter(stateRunning)
	c.run = r
	t.s.changes.tell()
	retry, fresh := c.retry, c.fresh
	if c.retry = nil; retry != nil {
		<-t.s.held
	}
	t.mu.Unlock()

	handle := r.handle()
	t.s.runs.Register(c.session, handle)
	// The handler is not a part of the lane's task: a reset disowns the task.
	ctx := context.Background()
	host := &dispatch.Hooks{Env: r.environment, Start: r.begin, Abort: r.abort, Stop: t.s.stop, Ends: t.s.ends, Ended: func(ok bool) {
		r.end()
		t.s.stats.ended(lane.GlobalLane(c.lane), ok, waited, r.length())
	}}
	var turn dispatch.Outcome
	var err error
	if retry != nil {
		turn, err = t.r.Resume(ctx, retry, host)
	} else {
		turn, err = t.r.Run(ctx, c.name, fresh, host)
	}
	t.s.runs.Clear(c.session, handle)
	r.close()
	t.after(c, turn, err)
}

// handle is what the registry knows of the run.
func (r *run) handle() *lane.Run {
	return &lane.Run{
		Deliver: r.deliver,
		Abort:   func() { r.aborted.Do(func() { close(r.abort) }) },
		// Who compacts has begun to answer; the reason for refusing is the narrower one.
		Streaming:  func() bool { w := r.word(); return w == wordStreaming || w == wordCompacting },
		Compacting: func() bool { return r.word() == wordCompacting },
	}
}

// word returns what the handler says of itself.
func (r *run) word() string { return wordIn(r.dir) }

// after is called when the consumer's locks have been released.
func (t *thread) after(c *consumer, turn dispatch.Outcome, err error) {
	if turn.Retry != nil {
		t.s.stats.retried(lane.GlobalLane(c.lane))
	}
	t.mu.Lock()
	c.run = nil
	switch {
	case turn.Retry != nil:
		select {
		case t.s.held <- struct{}{}:
			c.retry = turn.Retry
		default: // no descriptor to hold the right with; no other process is likely to take it
			turn.Retry.Release()
			c.fresh = false
		}
		c.enter(stateWaiting)
		c.timer = time.AfterFunc(time.Until(turn.Retry.At), func() { t.resume(c) })
	default:
		delete(t.consumers, c.name)
	}
	again := c.missed
	c.missed = wakeUp{}
	t.mu.Unlock()
	t.s.changes.tell()
	if turn.Ran {
		again = wakeUp{}
	}
	if turn.Look {
		again.add(wakeNew)
	}
	if err != nil { // not at once, or a lack of something becomes a lack of CPU, too
		again.add(wakeNew)
		time.AfterFunc(retryPause, func() { t.wake(again) })
		t.s.repeats.say(slog.LevelError, "consumer could not be run", "thread", t.dir, "consumer", c.name, "error", err)
	} else if again.set {
		t.wake(again)
	}
}

// resume queues a consumer whose retry is due. It has the right to run, so it
// does not need to be looked at.
func (t *thread) resume(c *consumer) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.closed && c.state == stateWaiting {
		t.submit(c)
	}
}
