package dispatch

import (
	"context"
	"slices"
	"strings"
	"time"

	"thread/engine"
)

// ActiveRun is a consumer whose handler runs or waits to be tried again.
type ActiveRun struct {
	Consumer string
	Running  bool
	RunID    string // of the running handler
	PID      int    // of its first process, 0 when it is not known
	Since    time.Time
	RetryAt  time.Time // of one that waits
	Log      int64     // where in OutputPath begins what a running handler has printed
}

// Active returns what is known of the consumers whose handlers run or wait to be tried
// again, whichever process supervises them, by name. It changes nothing, and it holds up no
// dispatch.
func Active(ctx context.Context, t *engine.Thread) (list []ActiveRun, err error) {
	r := newDispatcher(t, Options{})
	info, err := t.Info(ctx)
	if err != nil {
		return nil, err
	}
	var consumers []string
	for i := range info.Subscriptions {
		consumers = append(consumers, info.Subscriptions[i].Consumer)
	}
	records := map[string]*record{}
	for _, rec := range r.records() {
		records[rec.Consumer] = rec
		consumers = append(consumers, rec.Consumer) // it may be unsubscribed
	}
	slices.Sort(consumers)
	for _, c := range slices.Compact(consumers) {
		s, err := Status(t, c)
		if err != nil {
			return nil, err
		}
		switch {
		case s.Running:
			a := ActiveRun{Consumer: c, Running: true, RunID: s.RunID, Since: *s.RunningSince}
			if rec := records[c]; rec != nil && rec.RunID == s.RunID {
				a.PID, a.Log = rec.PID, rec.Log
			}
			list = append(list, a)
		case s.RetryAt != nil:
			a := ActiveRun{Consumer: c, RetryAt: *s.RetryAt}
			if s.LastExitAt != nil {
				a.Since = *s.LastExitAt
			}
			list = append(list, a)
		}
	}
	slices.SortFunc(list, func(a, b ActiveRun) int { return strings.Compare(a.Consumer, b.Consumer) })
	return list, nil
}
