package jsonform

import (
	"thread/engine"
	"thread/event"
)

// Letter is a dead letter without its event.
type Letter struct {
	Consumer   string `json:"consumer_id"`
	EventID    int64  `json:"event_id"`
	Attempts   int64  `json:"attempts"`
	ExitCode   *int64 `json:"exit_code"` // null: a signal or a crash ended the attempt
	FirstError string `json:"first_error"`
	LastError  string `json:"last_error"`
	FirstAt    string `json:"first_failed_at"`
	LastAt     string `json:"last_failed_at"`
	DiedAt     string `json:"died_at"`
}

// NewLetter returns the JSON of l.
func NewLetter(l *engine.DeadLetter) Letter {
	j := Letter{Consumer: l.Consumer, EventID: l.Event.ID, Attempts: l.Attempts, FirstError: l.FirstError, LastError: l.LastError,
		FirstAt: event.FormatTime(l.FirstAt), LastAt: event.FormatTime(l.LastAt), DiedAt: event.FormatTime(l.DiedAt)}
	if l.ExitCode >= 0 {
		j.ExitCode = &l.ExitCode
	}
	return j
}
