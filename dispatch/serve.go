package dispatch

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"time"

	"thread/engine"
	"thread/lock"
)

// The environment of a handler, beside what the push had (contract T-65).
const (
	envDir       = "THREAD_DIR"           // the thread directory, absolute
	envConsumer  = "THREAD_CONSUMER"      // the subscription
	envLastAcked = "THREAD_LAST_ACKED_ID" // the progress at the start
	envRunID     = "THREAD_RUN_ID"        // 32 hex digits, different for every run
	envPopped    = "THREAD_POPPED"        // where Popped writes, "" when success does not ack
)

// envAck, set to ackOnSuccess where a push is made, has the effect of
// Subscription.AckOnSuccess for the handlers that it starts.
const (
	envAck       = "THREAD_ACK"
	ackOnSuccess = "on-success"
)

// serve runs the handler of a claimed consumer once, decides what follows, and
// gives the claim back. An error of one consumer is logged, not returned.
func (s *supervisor) serve(ctx context.Context, c *claim) error {
	consumer := c.due.Consumer
	if c.due.First == 0 { // unsubscribed or acked since the dispatch saw it
		c.drop()
		return nil
	}
	if c.busy == nil {
		var err error
		if c.busy, err = lock.Open(ctx, s.busyPath(consumer), lock.Exclusive); err != nil {
			c.drop()
			return err
		}
	}
	n := note{State: stateRunning, RunID: newRunID(), StartedAt: time.Now(), EndedAt: c.note.EndedAt, Exit: c.note.Exit,
		Seen: c.due.Newest, SeenRetried: c.due.Retried, streak: c.note.resumed()}
	acks := c.due.AckOnSuccess || os.Getenv(envAck) == ackOnSuccess
	h := handler{room: s.room, due: c.due, runID: n.RunID, acks: acks, host: s.host}
	if err := s.writeNote(consumer, n); err != nil {
		s.report("supervise", consumer, err)
	}
	x, err := h.run(ctx)
	if ctx.Err() != nil {
		return ctx.Err() // the process ends, and its locks with it
	}
	if err != nil {
		s.report("supervise", consumer, err)
		x = exit{text: err.Error()}
	}
	if s.host != nil && s.host.Ended != nil {
		s.host.Ended(x.ok)
	}
	now := time.Now()
	n.EndedAt, n.Exit = &now, x.text
	if acks && x.ok {
		s.ackPopped(ctx, consumer, n.RunID)
	}

	after, err := s.dueFor(ctx, consumer, 0)
	e := ending{ok: x.ok, moved: after.Progress.From() > c.due.Progress.From(), pending: after.First != 0}
	if err == nil && e.pending {
		var newer engine.Due
		newer, err = s.dueFor(ctx, consumer, c.due.Newest)
		e.fresh = newer.First != 0 || after.Retried != c.due.Retried
	}
	if err != nil {
		c.drop()
		return err
	}
	s.log.Info("supervise: consumer=%s run=%s ended: %s after %v, last_acked_id=%d", consumer, n.RunID, x.text,
		now.Sub(n.StartedAt).Round(time.Millisecond), after.Progress.LastAcked)
	n.Seen, n.SeenRetried = after.Newest, after.Retried
	if err := s.settle(c, n, e); err != nil {
		s.report("supervise", consumer, err)
	}
	return nil
}

// newRunID returns a name that no other run has. Nothing trusts it to be secret.
func newRunID() string {
	return fmt.Sprintf("%016x%016x", rand.Uint64(), rand.Uint64())
}

// environment is what the handler gets: everything that we have, and the run.
func (h *handler) environment() []string {
	popped := ""
	if h.acks {
		popped = h.poppedPath(h.due.Consumer)
	}
	// The last value of a name counts.
	env := append(os.Environ(), envDir+"="+h.t.Dir(), envConsumer+"="+h.due.Consumer,
		envLastAcked+"="+strconv.FormatInt(h.due.Progress.LastAcked, 10), envRunID+"="+h.runID, envPopped+"="+popped)
	if h.host != nil && h.host.Env != nil {
		env = append(env, h.host.Env()...)
	}
	return env
}
