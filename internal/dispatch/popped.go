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

// ackPopped moves the progress of consumer to the highest id that its run has
// popped. A record that is lost costs a second delivery, so errors are logged.
func (s *supervisor) ackPopped(ctx context.Context, consumer, run string) {
	f, err := os.OpenFile(s.poppedPath(consumer), os.O_RDONLY|lock.NoFollow|lock.NoWait, 0)
	if errors.Is(err, os.ErrNotExist) {
		return
	}
	if err != nil {
		s.report(consumer, err)
		return
	}
	defer f.Close()
	var highest int64
	for lines := bufio.NewScanner(f); lines.Scan(); {
		rest, mine := strings.CutPrefix(lines.Text(), run+" ")
		if id, err := strconv.ParseInt(rest, 10, 64); mine && err == nil {
			highest = max(highest, id)
		}
	}
	if highest == 0 {
		return
	}
	_, err = retryBusy(ctx, s.dispatcher, func() (struct{}, error) { return struct{}{}, s.t.Ack(ctx, consumer, highest) })
	if err != nil && !errors.Is(err, engine.ErrNoSubscription) {
		s.report(consumer, err)
	}
}
