package core

import (
	"thread/engine"
	"thread/internal/cli"
)

// infoJSON is what info --json prints. The keys up to subscriptions, and in a
// subscription up to updated_at, are those of T-53 in its order; the others follow.
type infoJSON struct {
	EventCount    int64          `json:"event_count"`
	Subscriptions []consumerJSON `json:"subscriptions"`
	Stored        int64          `json:"stored_count"`
	Newest        int64          `json:"last_event_id"`
	Scheduled     int64          `json:"scheduled_count"`
	NextScheduled *string        `json:"next_scheduled_at"`
	Thread        string         `json:"thread"`
}

type consumerJSON struct {
	Consumer      string  `json:"consumer_id"`
	Handler       string  `json:"handler_cmd"`
	Filter        *string `json:"filter"`
	LastAcked     int64   `json:"last_acked_id"`
	UpdatedAt     *string `json:"updated_at"`
	Timeout       int64   `json:"timeout_ms"`
	AckOnSuccess  bool    `json:"ack_on_success"`
	Lane          *string `json:"lane"`
	Pending       *int64  `json:"pending_count"` // null: not known
	Oldest        *string `json:"oldest_pending_at"`
	PendingError  string  `json:"pending_error,omitempty"`
	Paused        bool    `json:"paused"`
	Dead          int64   `json:"dead_count"`
	Retries       int64   `json:"retry_count"`
	Parallel      int64   `json:"parallel,omitempty"` // of the subscription
	Key           string  `json:"key,omitempty"`
	*parallelJSON         // nil when it was never consumed with --parallel
	*failingJSON          // nil when nothing fails
	Running       bool    `json:"running"`
	RunningSince  *string `json:"running_since"`
	LastExit      *string `json:"last_exit"`
	LastExitAt    *string `json:"last_exit_at"`
	Failures      int     `json:"failures"`
	RetryAt       *string `json:"retry_at"`
	Stalled       bool    `json:"stalled"`
	Stopped       bool    `json:"stopped"`
	Interrupted   bool    `json:"interrupted"`
}

type parallelJSON struct {
	Settled int64 `json:"settled_count"` // above last_acked_id
	Ranges  int64 `json:"settled_ranges"`
	Out     int64 `json:"out_count"`
	Waiting int64 `json:"waiting_count"`
	Window  int64 `json:"window"`
	Full    bool  `json:"window_full"`
}

type failingJSON struct {
	ID       int64   `json:"failing_event_id"`
	Attempts int64   `json:"failing_attempts"`
	Error    *string `json:"failing_error"`
	NextAt   *string `json:"failing_next_at"`
}

func newInfoJSON(info *engine.Info, consumers []consumer) infoJSON {
	j := infoJSON{EventCount: info.EventCount, Subscriptions: make([]consumerJSON, len(consumers)), Stored: info.Stored,
		Newest: info.Newest, Scheduled: info.Scheduled, Thread: info.Dir}
	if info.Scheduled > 0 {
		j.NextScheduled = cli.TimeText(&info.NextScheduled)
	}
	for i := range consumers {
		j.Subscriptions[i] = newConsumerJSON(&consumers[i])
	}
	return j
}

func newConsumerJSON(c *consumer) consumerJSON {
	h := &c.handler
	j := consumerJSON{Consumer: c.Consumer, Handler: c.Handler, Filter: c.Filter, LastAcked: c.LastAcked, UpdatedAt: c.UpdatedAt,
		Timeout: c.Timeout.Milliseconds(), AckOnSuccess: c.AckOnSuccess, Lane: cli.Null(c.Lane),
		Parallel: c.Parallel, Key: c.Key, Paused: c.Paused, Dead: c.Dead, Retries: c.Retries,
		Running: h.Running, RunningSince: cli.TimeText(h.RunningSince), LastExit: cli.Null(h.LastExit), LastExitAt: cli.TimeText(h.LastExitAt),
		Failures: h.Failures, RetryAt: cli.TimeText(h.RetryAt), Stalled: h.Stalled, Stopped: h.Stopped, Interrupted: h.Interrupted}
	if c.pendingErr == nil {
		j.Pending, j.Oldest = &c.pending, cli.Null(c.oldest)
	} else {
		j.PendingError = c.pendingErr.Error()
	}
	if c.Window != 0 {
		j.parallelJSON = &parallelJSON{c.Settled, c.Ranges, c.Out, c.Waiting, c.Window, c.Full()}
	}
	if c.Failing != 0 {
		j.failingJSON = &failingJSON{c.Failing, c.Attempts, cli.Null(c.LastError), cli.TimeText(&c.NextAt)}
	}
	return j
}
