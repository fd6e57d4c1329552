package verb

import (
	"context"
	"errors"
	"os"
	"time"

	"thread/history"
	"thread/internal/dispatch"
)

// A run of a handler that has ended is a file on this host, as in a directory, until the history
// has taken it. So a server that does not answer delays no handler and loses no run.

const (
	// recordEvery is how long a run that went well waits for others at most, and
	// recoverEvery how often runs are looked for whose host is gone.
	recordEvery  = 5 * time.Second
	recoverEvery = 10 * time.Second
	// recordTime bounds the wait for a server that does not answer.
	recordTime = 10 * time.Second
)

// leave leaves the run to the history.
func (s *remote) leave(run *dispatch.EndedRun) {
	limited, cancel := context.WithTimeout(context.Background(), recordTime)
	defer cancel()
	off, err := run.Describe(limited, s.t)
	if off {
		return
	}
	if err != nil { // its end is known all the same
		s.warnOnce(run.Consumer, "the event of its run cannot be read", err)
	}
	failed := run.Status != history.Completed
	many, err := run.Leave(s.t.Dir(), !failed)
	if err != nil {
		s.warnOnce(run.Consumer, "its runs are not recorded", err)
		return
	}
	if failed || many {
		select {
		case s.left <- struct{}{}:
		default:
		}
	}
}

// keepRecording lets the history take the runs that have ended, and recovers those whose host
// is gone, until ctx ends.
func (s *remote) keepRecording(ctx context.Context) {
	tick := time.NewTicker(recordEvery)
	defer tick.Stop()
	var recovered time.Time
	for {
		s.record()
		if time.Since(recovered) >= recoverEvery {
			recovered = time.Now()
			s.recover(ctx)
		}
		select {
		case <-s.left:
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// record lets the history take the runs that have ended.
func (s *remote) record() {
	if entries, _ := os.ReadDir(dispatch.EndedDir(s.t.Dir())); len(entries) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), recordTime)
	defer cancel()
	h, err := history.Open(ctx, s.t.URL())
	if err == nil {
		_, err = h.TakeRuns(ctx) // Open has taken them, or says nothing of why not
		err = errors.Join(err, h.Close())
	}
	if err != nil {
		s.warnOnce("", "the history cannot take runs of handlers now", err)
	}
}

// recover ends the runs of handlers that have no host.
func (s *remote) recover(ctx context.Context) {
	limited, cancel := context.WithTimeout(ctx, recordTime)
	defer cancel()
	h, err := history.Open(limited, s.t.URL(), history.LeaveRuns())
	if err == nil {
		_, err = h.Recover(limited, history.RecoverOptions{Only: func(row *history.RunRow) bool {
			_, ok := history.HandlerOf(row)
			return ok
		}})
		err = errors.Join(err, h.Close())
	}
	if err != nil && ctx.Err() == nil {
		s.warnOnce("", "runs of handlers cannot be recovered now", err)
	}
}

// beat lets the run beat until its handler ends, if the handler records something.
func (s *remote) beat(run string, ended <-chan struct{}) {
	tick := time.NewTicker(history.DefaultBeat)
	defer tick.Stop()
	var h *history.History
	for {
		select {
		case <-ended:
			if h != nil {
				_ = h.Close() // it holds connections only
			}
			return
		case <-tick.C:
		}
		ctx, cancel := context.WithTimeout(context.Background(), history.DefaultBeat)
		var err error
		if h == nil {
			h, err = history.Open(ctx, s.t.URL(), history.LeaveRuns())
		}
		if err == nil {
			err = h.Attach(run, 0).BeatOnce(ctx)
		}
		cancel()
		if err != nil && !errors.Is(err, history.ErrNotFound) {
			s.warnOnce("", "the run of a handler cannot beat", err)
		}
	}
}
