package serve

import (
	"context"
	"net/http"
	"strings"
	"time"

	"thread/history"
	"thread/internal/dispatch"
)

// ofSession makes f a stream of the history of its thread (H-11), which need not be served
// itself.
func (f *follower) ofSession(ctx context.Context) error {
	h, err := history.Open(ctx, f.t.dir, history.LeaveRuns(), history.WithEngine(dispatch.OwnFile(f.t.dir)))
	if err != nil {
		return &httpError{http.StatusServiceUnavailable, err.Error()}
	}
	t, err := h.Thread()
	if err != nil || t == nil {
		_ = h.Close() // nothing was written
		return &httpError{http.StatusNotFound, "that thread has no history yet"}
	}
	w, err := t.Watch()
	if err != nil {
		_ = h.Close() // nothing was written
		return &httpError{http.StatusServiceUnavailable, err.Error()}
	}
	ctx, cancel := context.WithCancel(ctx)
	changes, ended := make(chan struct{}, 1), make(chan struct{})
	go func() {
		defer close(ended)
		for ctx.Err() == nil {
			if w.Wait(ctx, time.Now().Add(f.t.s.opts.heartbeat)) != nil {
				sleep(ctx, f.t.s.opts.heartbeat) // without notices, by the clock
			}
			select {
			case changes <- struct{}{}:
			default: // the stream has not looked since
			}
		}
	}()
	f.read, f.changed = t, func() <-chan struct{} { return changes }
	f.close = func() {
		cancel()
		<-ended
		w.Close()
		_ = h.Close() // nothing was written
	}
	return nil
}

func sleep(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}

// ofSession is the filter of what a session's rows have.
func ofSession(session, where string) string {
	of := "source = 'session:" + strings.ReplaceAll(session, "'", "''") + "'"
	if where == "" {
		return of
	}
	return of + " AND (" + where + "\n)"
}
