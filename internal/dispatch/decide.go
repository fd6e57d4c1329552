package dispatch

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"thread/engine"
	"thread/lock"
)

const (
	// maxTries is how many runs in a row may fail before the consumer is left
	// alone until the next push.
	maxTries = 5
	// maxDelay bounds the back-off of a handler that succeeds without progress.
	maxDelay = 16 * time.Second
)

// firstDelay is the wait after the first failure; it doubles with each further
// one. A variable for the tests.
var firstDelay = time.Second

// backoff returns the wait after the n-th failure in a row, n from 1.
func backoff(n int) time.Duration {
	return min(firstDelay<<min(n-1, 10), maxDelay)
}

// ending is what is known when a handler has ended.
type ending struct {
	ok      bool // exit code 0
	stopped bool // the server that ran it was told to end
	moved   bool // progress is further than at the start
	pending bool // there are unread matching events
	fresh   bool // some of them were pushed after the start
}

type verdict int

const (
	done    verdict = iota // nothing is pending
	again                  // run again now
	retry                  // run again after the delay
	stopped                // leave it to the next push
	stalled                // the same, after maxTries failures
	left                   // leave it to the next push or server
)

// decide is the table of DESIGN section 6. It brings s up to date and returns
// what follows, and after which delay.
//
// A failed run that nevertheless made progress counts as the first failure: the
// tries are those at the same events. Successful runs without progress that go
// on seeing new events are slowed down but not stopped, because each time there
// is an event no handler has been started for.
func decide(e ending, s *streak) (verdict, time.Duration) {
	if e.moved {
		*s = streak{}
	}
	if e.stopped && e.pending {
		return left, 0 // the streak neither grows nor ends
	}
	if e.ok {
		s.Failures = 0
	} else {
		s.Failures++
		s.Idle = 0
	}
	switch {
	case !e.pending:
		*s = streak{}
		return done, 0
	case s.Failures >= maxTries:
		return stalled, 0
	case !e.ok:
		return retry, backoff(s.Failures)
	case e.moved:
		return again, 0
	case !e.fresh:
		s.Idle = 0
		return stopped, 0
	}
	s.Idle++
	if s.Idle == 1 {
		return again, 0
	}
	return retry, backoff(s.Idle - 1)
}

// AwaitNext calls take until it returns events: at once, and whenever something may have
// changed. When ctx ends first, it returns why. What take has begun is brought to its end,
// as an unreported lease blocks the consumer.
func AwaitNext(ctx context.Context, t *engine.Thread, take func(context.Context) (engine.Lease, error)) (l engine.Lease, err error) {
	w, err := t.Watch()
	if err != nil {
		return l, err
	}
	defer w.Close()
	for {
		if l, err = take(context.WithoutCancel(ctx)); err != nil || len(l.Events) > 0 {
			return l, err
		}
		until := l.NotBefore
		at, err := t.NextScheduled(context.WithoutCancel(ctx))
		if err != nil {
			return l, err
		}
		if until.IsZero() || !at.IsZero() && at.Before(until) {
			until = at
		}
		if err := w.Wait(ctx, until); err != nil {
			return l, cmp.Or(context.Cause(ctx), err)
		}
	}
}

// unpoppedFix is what is said to the process that takes a handler's stdin for its events.
const unpoppedFix = "no event comes on its stdin; thread consume -- CMD pops them for a command"

// anyUnpopped reports whether a note in the directory run says Unpopped.
func anyUnpopped(run string) bool {
	entries, _ := os.ReadDir(run)
	return slices.ContainsFunc(entries, func(e os.DirEntry) bool {
		if filepath.Ext(e.Name()) != ".json" {
			return false
		}
		var n note
		text, err := lock.ReadFile(filepath.Join(run, e.Name()))
		return err == nil && json.Unmarshal(text, &n) == nil && n.Unpopped
	})
}

// Unpopped returns the consumers whose handlers exited 0 the last time and had popped
// nothing, in the order of subscription. The database is asked, which looks at every
// consumer, only where a note says that there is one.
func Unpopped(ctx context.Context, t *engine.Thread) (consumers []string, err error) {
	r := newDispatcher(t, Options{})
	if t.URL() != "" || !anyUnpopped(r.run) {
		return nil, nil
	}
	info, err := t.Info(ctx)
	for i := range info.Subscriptions {
		if c := &info.Subscriptions[i]; r.readNote(c.Consumer).Unpopped {
			consumers = append(consumers, c.Consumer)
		}
	}
	return consumers, err
}

// Popped records that the calling process has been given events of consumer up
// to id. It does so only in a handler whose success acks what it popped
// (Subscription.AckOnSuccess, or THREAD_ACK=on-success), and only for that
// handler's own thread and consumer; elsewhere it does nothing. To be called
// after the events have been passed on.
func Popped(t *engine.Thread, consumer string, id int64) error {
	r := newDispatcher(t, Options{})
	path := r.poppedPath(consumer)
	if os.Getenv(envPopped) == "" || os.Getenv(envConsumer) != consumer || !r.inHandler() {
		return nil
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND|lock.NoFollow|lock.NoWait, 0o600)
	if err != nil {
		return err
	}
	// One write: a handler may pop in several processes.
	_, err = fmt.Fprintf(f, "%s %d\n", os.Getenv(envRunID), id)
	return errors.Join(err, f.Close())
}

// inHandler reports whether this process belongs to a handler of the thread, or is
// left of one.
func (r *dispatcher) inHandler() bool {
	if url := r.t.URL(); url != "" {
		return os.Getenv(envRunID) != "" && os.Getenv(envDir) == url
	}
	return os.Getenv(envRunID) != "" && sameDir(os.Getenv(envDir), r.t.Dir())
}

func (r *dispatcher) forgetPopped(consumer string) error {
	if err := os.Remove(r.poppedPath(consumer)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

// ForgetPopped drops what earlier handlers of consumer have recorded with Popped, and returns the
// variable with which the next one records. It is for the supervisor of a thread on a server.
func ForgetPopped(t *engine.Thread, consumer string) (variable string, err error) {
	r := newDispatcher(t, Options{})
	return envPopped + "=" + r.poppedPath(consumer), r.forgetPopped(consumer)
}

// AckPopped acks the highest id that the run has recorded with Popped, if any.
func AckPopped(ctx context.Context, t *engine.Thread, consumer, run string) error {
	highest, err := newDispatcher(t, Options{}).popped(consumer, run)
	if err != nil || highest == 0 {
		return err
	}
	return t.Ack(ctx, consumer, highest)
}

// popped returns the highest id that the run has recorded, 0 for none.
func (r *dispatcher) popped(consumer, run string) (highest int64, err error) {
	f, err := os.OpenFile(r.poppedPath(consumer), os.O_RDONLY|lock.NoFollow|lock.NoWait, 0)
	if errors.Is(err, os.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		rest, mine := strings.CutPrefix(lines.Text(), run+" ")
		if id, err := strconv.ParseInt(rest, 10, 64); mine && err == nil {
			highest = max(highest, id)
		}
	}
	return highest, lines.Err()
}

// sameDir reports whether two paths lead to one directory: by way of a link or of
// another mount it has another path, and is the same thread.
func sameDir(a, b string) bool {
	if a == b {
		return true
	}
	if a == "" || b == "" {
		return false
	}
	one, err := os.Stat(a)
	if err != nil {
		return false
	}
	other, err := os.Stat(b)
	return err == nil && os.SameFile(one, other)
}
