package dispatch

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"thread/engine"
	"thread/lock"
)

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
	for lines := bufio.NewScanner(f); lines.Scan(); {
		rest, mine := strings.CutPrefix(lines.Text(), run+" ")
		if id, err := strconv.ParseInt(rest, 10, 64); mine && err == nil {
			highest = max(highest, id)
		}
	}
	return highest, nil
}

// ackPopped is AckPopped of a supervisor. A record that is lost costs a second delivery, so errors
// are logged.
func (s *supervisor) ackPopped(ctx context.Context, consumer, run string) {
	_, err := retryBusy(ctx, s.dispatcher, func() (struct{}, error) { return struct{}{}, AckPopped(ctx, s.t, consumer, run) })
	if err != nil && !errors.Is(err, engine.ErrNoSubscription) {
		s.report(consumer, err)
	}
}
