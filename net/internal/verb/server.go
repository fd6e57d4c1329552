package verb

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"time"

	"thread/engine"
	"thread/internal/cli"
	"thread/internal/dispatch"
	"thread/lane"
	"thread/net/pgstore"
)

// server runs the handlers of a thread for as long as it has their consumers' turns.
type server struct {
	a    *cli.App
	t    *engine.Thread
	q    *lane.Queue
	wake chan struct{} // one is enough: each look is at everything
	work sync.WaitGroup

	mu        sync.Mutex
	consumers map[string]*served
	warned    map[string]bool
}

// served is a consumer.
type served struct {
	busy      bool // it waits for its lane or runs
	streak    dispatch.Streak
	notBefore time.Time
	// It is left alone until there is more than this.
	newest, retried int64
	left            bool
}

func newServer(a *cli.App, t *engine.Thread, q *lane.Queue) *server {
	return &server{a: a, t: t, q: q, wake: make(chan struct{}, 1), consumers: map[string]*served{}, warned: map[string]bool{}}
}

const (
	// lookAgain is how soon who did not get a turn asks again: a notice may be lost.
	lookAgain = 5 * time.Second
	// drain is how long a handler may go on when the server is told to end, and grace how
	// long after SIGTERM.
	drain = 30 * time.Second
	grace = 5 * time.Second
)

func (s *server) look() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

func (s *server) run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer s.work.Wait()
	defer cancel()
	w := s.t.Store().(*pgstore.Store).Watch(ctx) // before the first look
	s.work.Go(func() {
		defer w.Close()
		for w.Wait(ctx, time.Time{}) == nil {
			s.look()
		}
	})
	for first := true; ; first = false {
		due, err := s.t.Due(ctx)
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil && first:
			return err
		case err != nil:
			s.warn("the thread could not be read: %v", err)
		}
		for _, d := range due {
			s.consider(ctx, d)
		}
		select {
		case <-s.wake:
		case <-ctx.Done():
			return nil
		}
	}
}

func (s *server) warn(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.a.Warn(format, args...)
}

// warnOnce does not say the same again.
func (s *server) warnOnce(format string, args ...any) {
	line := fmt.Sprintf(format, args...)
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.warned[line] {
		s.warned[line] = true
		s.a.Warn("%s", line)
	}
}

// consider submits a consumer that has something to do to its lane.
func (s *server) consider(ctx context.Context, d engine.Due) {
	switch {
	case d.Err != nil:
		s.warnOnce("consumer %s: %v", cli.ShellWord(d.Consumer), d.Err)
		return
	case d.AckOnSuccess:
		s.warnOnce("consumer %s: --ack-on-success is for a directory: subscribe it without, and let its handler pop or consume", cli.ShellWord(d.Consumer))
		return
	case d.First == 0:
		return
	}
	s.mu.Lock()
	c := s.consumers[d.Consumer]
	if c == nil {
		c = new(served)
		s.consumers[d.Consumer] = c
	}
	idle := c.busy || time.Now().Before(c.notBefore) || c.left && d.Newest <= c.newest && d.Retried == c.retried
	if !idle {
		c.busy = true
	}
	s.mu.Unlock()
	if idle {
		return
	}
	s.work.Go(func() {
		_, err := lane.Do(ctx, s.q, lane.Lane(d.Lane), func(ctx context.Context) (struct{}, error) {
			return struct{}{}, s.handle(ctx, d.Consumer, c)
		})
		after := time.Duration(0)
		taken := (*pgstore.TakenError)(nil)
		switch {
		case ctx.Err() != nil, err == nil, errors.Is(err, engine.ErrNoSubscription):
		case errors.As(err, &taken):
			after = min(max(taken.Left, time.Millisecond), lookAgain)
		default:
			s.warn("consumer %s: %v", cli.ShellWord(d.Consumer), err)
			after = lookAgain
		}
		s.mu.Lock()
		if c.busy = false; after > 0 {
			c.notBefore = time.Now().Add(after)
		}
		after = time.Until(c.notBefore)
		s.mu.Unlock()
		time.AfterFunc(after, s.look) // what came meanwhile was passed over
	})
}

// handle takes the consumer's turn and runs its handler for as long as there is
// something to do. The handle is its own: every write of it compares the fence.
func (s *server) handle(ctx context.Context, consumer string, c *served) (err error) {
	t, err := Servers{}.Open(s.t.URL(), nil)
	if err != nil {
		return err
	}
	defer t.Close()
	held, err := Servers{}.Lock(ctx, t, consumer, false)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, held.Release(context.WithoutCancel(ctx))) }()
	before, err := t.DueFor(ctx, consumer, 0)
	for err == nil && before.First > 0 && !before.Paused && before.Err == nil {
		ok := s.runHandler(ctx, t, held, &before)
		if ctx.Err() != nil || held.Err() != nil {
			return held.Err()
		}
		var after engine.Due
		if after, err = t.DueFor(ctx, consumer, 0); err != nil {
			return err
		}
		s.mu.Lock()
		again, delay := c.streak.After(dispatch.Ended{
			OK: ok, Moved: after.Progress.LastAcked > before.Progress.LastAcked,
			Pending: after.First > 0, Fresh: after.Newest > before.Newest,
		})
		c.left, c.newest, c.retried = !again && after.First > 0, after.Newest, after.Retried
		c.notBefore = time.Now().Add(delay)
		s.mu.Unlock()
		if !again || delay > 0 {
			return nil
		}
		before = after
	}
	return err
}

// runHandler runs the handler once, and reports whether it ended with exit code 0.
func (s *server) runHandler(ctx context.Context, t *engine.Thread, held cli.Held, d *engine.Due) bool {
	cmd := exec.Command("sh", "-c", d.Handler)
	ownGroup(cmd)
	cmd.Stdout, cmd.Stderr, cmd.WaitDelay = s.a.Stderr, s.a.Stderr, grace
	fence := t.Store().(*pgstore.Store).Fence()
	cmd.Env = append(os.Environ(), "THREAD_DIR="+t.URL(), "THREAD_CONSUMER="+d.Consumer, envTurn+"="+strconv.FormatInt(fence, 10),
		"THREAD_LAST_ACKED_ID="+strconv.FormatInt(d.Progress.LastAcked, 10), fmt.Sprintf("THREAD_RUN_ID=%016x%016x", time.Now().UnixNano(), fence))
	if err := cmd.Start(); err != nil {
		s.warn("consumer %s: %v", cli.ShellWord(d.Consumer), err)
		return false
	}
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	var late <-chan time.Time
	if d.Timeout > 0 {
		late = time.After(d.Timeout)
	}
	var why string
	select {
	case err := <-done:
		if err != nil {
			s.warn("consumer %s: its handler: %v", cli.ShellWord(d.Consumer), err)
		}
		return err == nil
	case <-held.Lost(): // at once, while nobody else can have begun
		killGroup(cmd.Process)
		<-done
		return false
	case <-late:
		why = "its time was up"
	case <-ctx.Done():
		select {
		case err := <-done:
			return err == nil
		case <-held.Lost():
		case <-time.After(drain):
		}
		why = "thread serve ends"
	}
	s.warn("consumer %s: its handler is ended: %s", cli.ShellWord(d.Consumer), why)
	terminateGroup(cmd.Process)
	select {
	case <-done:
	case <-held.Lost():
	case <-time.After(grace):
	}
	killGroup(cmd.Process)
	return false
}
