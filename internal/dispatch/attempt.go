package dispatch

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"thread/engine"
	"thread/internal/lanes"
	"thread/lock"
)

// serve runs the handler of a claimed consumer once, or deals with a run that has
// lost its supervisor, decides what follows, and gives the claim back. It returns the
// right to run the consumer later if that is what follows. An error of one consumer
// is logged, not returned.
func (s *supervisor) attempt(ctx context.Context, c *claim) (*waiter, error) {
	consumer := c.due.Consumer
	if c.supervisorLock == nil {
		var err error
		if c.supervisorLock, err = lock.Open(ctx, s.supervisorLockPath(consumer), lock.Exclusive); err != nil {
			c.drop()
			return nil, err
		}
	}
	h := &handler{dispatcher: s.dispatcher, due: c.due, file: c.record, room: c.room, standby: s.standby, hooks: s.hooks, orphans: beginRun()}
	defer h.orphans.end()
	if c.lost != nil {
		s.awaitStandby() // before its rest is ended; a new run has it later, in prepared
	}
	if c.lost != nil && c.lost.Manual {
		// No run: what is left of it is ended, and the consumer is run as if it had not been.
		h.rec = c.lost
		err := h.clear(ctx, killGrace)
		if err == nil {
			err = c.record.File().Truncate(0)
		}
		if c.lost = nil; err != nil || c.due.First == 0 || c.due.Lane != "" && s.max != serverSlots {
			c.drop() // in a lane it needs a place, which who looks next takes
			return nil, err
		}
	}
	var x exit
	var err error
	if c.lost != nil {
		h.rec = c.lost
		s.log.Warn("supervise: consumer=%s run=%s lost its supervisor", consumer, h.runID())
		s.noteRun(consumer, h.rec.note)
		x, err = h.adopt(ctx)
	} else {
		n := note{State: stateRunning, RunID: newRunID(), StartedAt: time.Now().UTC(), EndedAt: c.note.EndedAt, Exit: c.note.Exit,
			Seen: c.due.Newest, SeenRetried: c.due.Retried, Unpopped: c.note.Unpopped, streak: c.note.resumed()}
		h.rec = &record{note: n, Consumer: consumer, From: c.due.Progress.From(), First: c.due.First, Popped: c.due.Progress.UpdatedAt, Log: s.logSize(consumer)}
		h.acks = c.due.AckOnSuccess || os.Getenv(envAck) == ackOnSuccess
		h.prepared = func() {
			s.awaitStandby()
			s.noteRun(consumer, h.rec.note) // model: note
		}
		x, err = h.run(ctx)
	}
	if ctx.Err() != nil {
		return nil, ctx.Err() // the process ends, and its locks with it
	}
	if err != nil {
		s.report(consumer, err)
		x = exit{text: err.Error()}
	}
	return s.conclude(ctx, c, h, x)
}

func (s *supervisor) noteRun(consumer string, n note) {
	if err := s.writeNote(consumer, n); err != nil {
		s.report(consumer, err)
	}
}

// conclude decides what follows a run (model: conclude).
func (s *supervisor) conclude(ctx context.Context, c *claim, h *handler, x exit) (*waiter, error) {
	consumer := c.due.Consumer
	testPoint("ended")
	n := h.rec.note
	now := time.Now()
	n.EndedAt, n.Exit = &now, x.text
	if h.acks && x.ok {
		s.ackPopped(ctx, consumer, n.RunID)
	}

	after, err := s.dueFor(ctx, consumer, 0)
	e := ending{ok: x.ok, stopped: x.stopped || s.hooks.stops(), moved: after.Progress.From() > h.rec.From, pending: after.First != 0}
	if x.unknown {
		e.ok = e.moved || !e.pending
	}
	if err == nil && e.pending {
		var newer engine.Due
		newer, err = s.dueFor(ctx, consumer, h.rec.Seen)
		e.fresh = newer.First != 0 || after.Retried != h.rec.SeenRetried
	}
	s.recordEnd(ctx, h, &n, e, x, after.Progress.From())
	if s.hooks != nil && s.hooks.Ended != nil {
		s.hooks.Ended(e.ok)
	}
	if err != nil {
		c.drop()
		return nil, err
	}
	s.log.Info("supervise: consumer=%s run=%s ended: %s after %v, last_acked_id=%d", consumer, n.RunID, x.text,
		now.Sub(n.StartedAt).Round(time.Millisecond), after.Progress.LastAcked)
	n.Seen, n.SeenRetried = after.Newest, after.Retried
	// Of an adopted run it is not known how it ended.
	known := c.lost == nil && !e.moved && e.pending && e.ok
	unpopped := known && after.Progress.UpdatedAt == h.rec.Popped && !s.windowed(ctx, consumer)
	if unpopped && !n.Unpopped {
		s.log.Warn("supervise: consumer=%s run=%s exited 0 without popping anything, so its events stay unread: %s", consumer, n.RunID, unpoppedFix)
	}
	n.Unpopped = unpopped
	w, err := s.settle(c, n, e)
	if err != nil {
		s.report(consumer, err)
	}
	return w, nil
}

// stops reports whether a consumer is to be left.
func (h *Hooks) stops() bool { return h != nil && h.Ends != nil && h.Ends() }

// windowed reports whether the consumer's events are settled out of order: then a run
// that has handled some may leave the progress where it was.
func (s *supervisor) windowed(ctx context.Context, consumer string) bool {
	info, err := s.t.Info(ctx)
	for i := range info.Subscriptions {
		if c := &info.Subscriptions[i]; c.Consumer == consumer {
			return c.Window != 0
		}
	}
	return err != nil
}

// next claims and runs the consumers that have to run, by their first unread events.
// It ends when a check of all of them, begun after the call, finds none that there is
// room for, or when a server does the checking.
//
// The first look of a process that a push has started answers that push: also what
// was left to the next push runs.
func (s *supervisor) next(ctx context.Context) error {
	if err := s.prepare(); err != nil {
		return err
	}
	first := s.first
	for _, consumer := range s.lost {
		s.queue = append(s.queue, engine.Due{Subscription: engine.Subscription{Consumer: consumer}})
	}
	s.lost = nil
	visited := map[string]bool{} // lanes that were full: what is behind in one does not pass (L-06)
	for fresh := false; ; {
		for len(s.queue) > 0 {
			d := s.queue[0]
			if d.First != 0 && visited[d.Lane] && s.readNote(d.Consumer).State != stateRunning {
				s.queue = s.queue[1:]
				continue
			}
			rule := s.ruleNew
			if first {
				rule = s.ruleAfterPush(d.Consumer)
			}
			c, a, err := s.claim(ctx, d.Consumer, rule)
			switch {
			case err != nil:
				s.report(d.Consumer, err)
			case a == noSlot:
				if first {
					s.log.Info("dispatch: consumer=%s waits for a slot, with up to %d after it: %d handlers are running", d.Consumer, len(s.queue)-1, s.max)
				}
				return nil
			case a == noPlace:
				if first {
					s.log.Info("dispatch: consumer=%s waits for a place in lane %s, which has %d", d.Consumer, d.Lane, lanes.DefaultLimit(d.Lane))
				}
				s.queueHolders(d.Lane, visited)
				testPoint("full")
			case a == claimed && c.passes(visited):
				// A place was freed meanwhile: the one that was refused has it, in a new look.
				delete(visited, c.due.Lane)
				c.drop()
				fresh = false
			case a == recheck:
				fresh = false
			case a == claimed:
				s.run(ctx, c)
			case a == held && first && s.first:
				s.log.Info("dispatch: consumer=%s skipped (lock held)", d.Consumer)
			case a == retrying && first && s.first:
				s.log.Info("dispatch: consumer=%s skipped (waiting to retry)", d.Consumer)
			}
			s.queue = s.queue[1:]
		}
		if fresh {
			return nil
		}
		// Not the first look of a process: that was made by the dispatch, or is the
		// answer to a push that a server did not get.
		if !first && s.ping(pingLook, "") {
			return nil
		}
		due, err := s.due(ctx)
		if err != nil {
			return err
		}
		for _, d := range due {
			switch {
			case d.Err == nil:
				s.queue = append(s.queue, d)
			case s.first:
				s.logBroken(d.Consumer, d.Err)
			}
		}
		fresh = true
	}
}

// newRunID returns a name that no other run has. Nothing trusts it to be secret.
func newRunID() string {
	return fmt.Sprintf("%016x%016x", rand.Uint64(), rand.Uint64())
}

// standardPath is where a shell looks when there is no PATH.
const standardPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// handlerPath returns PATH with our own directory, which cron's has not, so that a
// handler finds thread. It comes last: another thread that the user has put into
// the way is meant.
func handlerPath() string {
	path, set := os.LookupEnv("PATH")
	if !set {
		path = standardPath
	}
	exe, err := executable()
	dir := filepath.Dir(exe)
	const sep = string(os.PathListSeparator)
	if err != nil || strings.Contains(sep+path+sep, sep+dir+sep) || strings.Contains(dir, sep) {
		return path
	}
	return path + sep + dir
}

// ofService reports whether a variable tells a process where the service manager that
// has started it listens (sd_notify(3), sd_watchdog_enabled(3)). A handler is not
// the service: what it said there would be taken for the word of ours.
func ofService(variable string) bool {
	name, _, _ := strings.Cut(variable, "=")
	return name == "NOTIFY_SOCKET" || name == "WATCHDOG_USEC" || name == "WATCHDOG_PID"
}

// trace returns the trace context of the first unread event, for the environment. What that
// has none of stays as it was for the dispatch.
func (h *handler) trace() (parent, request string) {
	_ = h.t.View(context.Background(), func(tx *engine.Tx) error { // the handler will meet the error itself
		e, ok, err := tx.Event(h.rec.First)
		if !ok || err != nil {
			return err
		}
		parent, request = e.Trace()
		return nil
	})
	return parent, request
}

// environment is what the handler gets: everything that we have but what is of our
// service, and the run.
func (h *handler) environment() []string {
	popped := ""
	if h.acks {
		popped = h.poppedPath(h.due.Consumer)
	}
	// The last value of a name counts.
	env := append(slices.DeleteFunc(os.Environ(), ofService), envDir+"="+h.t.Dir(), envConsumer+"="+h.due.Consumer,
		envLastAcked+"="+strconv.FormatInt(h.due.Progress.LastAcked, 10), envRunID+"="+h.runID(), envPopped+"="+popped)
	env = append(env, "PATH="+handlerPath())
	parent, request := h.trace()
	if parent != "" {
		env = append(env, envTraceparent+"="+parent)
	}
	if request != "" {
		env = append(env, envRequestID+"="+request)
	}
	if h.hooks != nil && h.hooks.Env != nil {
		env = append(env, h.hooks.Env(h.runID(), h.rec.First)...)
	}
	return env
}

// Ended is what a server of a thread that is not a directory knows when a handler has
// ended.
type Ended struct {
	OK      bool // exit code 0
	Moved   bool // progress is further than at the start
	Pending bool // there are unread matching events
	Fresh   bool // some of them were pushed after the start
}

// Streak decides what follows the endings in a row of one consumer's handler, as for one in
// a directory.
type Streak struct{ s streak }

// After reports whether the handler is to be run again, and after which delay; otherwise the
// next event starts it.
func (s *Streak) After(e Ended) (run bool, delay time.Duration) {
	v, delay := decide(ending{ok: e.OK, moved: e.Moved, pending: e.Pending, fresh: e.Fresh}, &s.s)
	if v == stalled {
		s.s = streak{} // what comes next starts afresh
	}
	return v == again || v == retry, delay
}

// ruleAfterPush is rulePending, except for the consumer whose own handler made
// the push: its push of something else is not the "next push" that runs it
// again, or a handler that answers into its own thread without ever acking
// would run for ever.
func (r *dispatcher) ruleAfterPush(consumer string) runRule {
	if r.author() == consumer {
		return r.ruleNew
	}
	return r.rulePending
}
