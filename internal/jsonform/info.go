package jsonform

import (
	"time"

	"thread/engine"
	"thread/event"
	"thread/internal/dispatch"
)

// ConsumerState is what is shown of a consumer.
type ConsumerState struct {
	engine.ConsumerInfo
	Pending    int64
	Oldest     string // created_at of the oldest pending event, "" when there is none
	PendingErr error  // Pending and Oldest are not known, or are from CountedAt
	// CountedAt is when Pending and Oldest were counted, zero for never.
	CountedAt time.Time
	Handler   dispatch.State
	// LastOutput is the last line that a failed handler has printed, "" for none.
	LastOutput string
}

// Trouble is why a consumer does not get on, "" when it does.
func (c *ConsumerState) Trouble() string {
	switch {
	case c.PendingErr != nil:
		return c.PendingErr.Error()
	case c.Failing != 0:
		return c.LastError
	case c.Handler.Failures > 0:
		return c.Handler.LastExit
	case c.Handler.Unpopped:
		return "its handler popped nothing"
	}
	return ""
}

// Info is what info --json prints. The keys up to subscriptions, and in a
// subscription up to updated_at, are from T-53 in its order; the others follow.
type Info struct {
	EventCount    int64      `json:"event_count"`
	Subscriptions []Consumer `json:"subscriptions"`
	Stored        int64      `json:"stored_count"`
	Newest        int64      `json:"last_event_id"`
	Scheduled     int64      `json:"scheduled_count"`
	NextScheduled *string    `json:"next_scheduled_at"`
	Thread        string     `json:"thread"`
	Limits        *Limits    `json:"limits,omitempty"` // nil: everything is kept
	Durability    string     `json:"durability,omitempty"`
	Lines         string     `json:"lines,omitempty"` // "off", or not there
}

// Consumer is a subscription in it.
type Consumer struct {
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
	WarnAfter     *int64  `json:"warn_after_ms,omitempty"`
	*parallelJSON         // nil when it was never consumed with --parallel
	*failingJSON          // nil when nothing fails
	Pull          bool    `json:"pull,omitempty"`
	MaxAttempts   int64   `json:"max_attempts,omitempty"`
	*leaseJSON            // nil when nothing is in flight with thread next
	Running       bool    `json:"running"`
	RunningSince  *string `json:"running_since"`
	LastExit      *string `json:"last_exit"`
	LastExitAt    *string `json:"last_exit_at"`
	Failures      int     `json:"failures"`
	RetryAt       *string `json:"retry_at"`
	Stalled       bool    `json:"stalled"`
	Stopped       bool    `json:"stopped"`
	Interrupted   bool    `json:"interrupted"`
	Unpopped      bool    `json:"popped_nothing,omitempty"`
}

type parallelJSON struct {
	Settled int64 `json:"settled_count"` // above last_acked_id
	Ranges  int64 `json:"settled_ranges"`
	Out     int64 `json:"out_count"`
	Waiting int64 `json:"waiting_count"`
	Window  int64 `json:"window"`
	Full    bool  `json:"window_full"`
}

type leaseJSON struct {
	Number int64  `json:"delivery"`
	First  int64  `json:"delivery_first_id"`
	Last   int64  `json:"delivery_last_id"`
	Count  int64  `json:"delivery_count"`
	Until  string `json:"lease_until"`
}

type failingJSON struct {
	ID       int64   `json:"failing_event_id"`
	Attempts int64   `json:"failing_attempts"`
	Error    *string `json:"failing_error"`
	NextAt   *string `json:"failing_next_at"`
}

// NewInfo returns the JSON of info, with a state for each subscription.
func NewInfo(info *engine.Info, consumers []ConsumerState) Info {
	j := Info{EventCount: info.EventCount, Subscriptions: make([]Consumer, len(consumers)), Stored: info.Stored,
		Newest: info.Newest, Scheduled: info.Scheduled, Thread: info.Dir, Limits: NewLimits(info.Limits), Durability: info.Durability}
	if info.LinesOff {
		j.Lines = "off"
	}
	if info.Scheduled > 0 {
		j.NextScheduled = TimeText(&info.NextScheduled)
	}
	for i := range consumers {
		j.Subscriptions[i] = newConsumer(&consumers[i])
	}
	return j
}

func newConsumer(c *ConsumerState) Consumer {
	h := &c.Handler
	j := Consumer{Consumer: c.Consumer, Handler: c.Subscription.Handler, Filter: c.Filter, LastAcked: c.LastAcked, UpdatedAt: c.UpdatedAt,
		Timeout: c.Timeout.Milliseconds(), AckOnSuccess: c.AckOnSuccess, Lane: Null(c.Lane),
		Parallel: c.Parallel, Key: c.Key, Paused: c.Paused, Dead: c.Dead, Retries: c.Retries,
		Running: h.Running, RunningSince: TimeText(h.RunningSince), LastExit: Null(h.LastExit), LastExitAt: TimeText(h.LastExitAt),
		Failures: h.Failures, RetryAt: TimeText(h.RetryAt), Stalled: h.Stalled, Stopped: h.Stopped, Interrupted: h.Interrupted, Unpopped: h.Unpopped}
	if c.PendingErr == nil {
		j.Pending, j.Oldest = &c.Pending, Null(c.Oldest)
	} else {
		j.PendingError = c.PendingErr.Error()
	}
	if c.WarnAfter != nil {
		ms := c.WarnAfter.Milliseconds()
		j.WarnAfter = &ms
	}
	if c.Window != 0 {
		j.parallelJSON = &parallelJSON{c.Settled, c.Ranges, c.Out, c.Waiting, c.Window, c.Full()}
	}
	j.Pull, j.MaxAttempts = c.Pull, c.MaxAttempts
	if l := c.Lease; l.Number != 0 {
		j.leaseJSON = &leaseJSON{l.Number, l.First, l.Last, l.Count, event.FormatTime(l.Until)}
	}
	if c.Failing != 0 {
		j.failingJSON = &failingJSON{c.Failing, c.Attempts, Null(c.LastError), TimeText(&c.NextAt)}
	}
	return j
}

// Null is what JSON has for "": null.
func Null(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

// TimeText is t as events have it, nil for nil.
func TimeText(t *time.Time) *string {
	if t == nil {
		return nil
	}
	return Null(event.FormatTime(*t))
}
