package outbox

import (
	"encoding/json"
	"fmt"
	"time"

	"thread/engine"
)

// Settings are kept in the thread. The zero value is not the default: see
// DefaultSettings.
type Settings struct {
	MentionTriggers  bool `json:"mention_triggers"`  // a mention of an agent runs it
	SelfAction       bool `json:"self_action"`       // what users do to themselves counts
	FeedbackNotifies bool `json:"feedback_notifies"` // a feedback is a notification for its target

	Handler string        `json:"handler"` // a shell command; "" for none
	Timeout time.Duration `json:"timeout"` // of one run of the handler; 0 for none

	RecordRuns bool `json:"record_runs"` // each run of the handler is kept by the relay's Recorder

	MaxAttempts  int64         `json:"max_attempts"`  // failures that make a record failed
	Backoff      time.Duration `json:"backoff"`       // after the first failure; it doubles
	MaxBackoff   time.Duration `json:"max_backoff"`   // bounds it
	DedupeWindow time.Duration `json:"dedupe_window"` // how long a dedupe key counts
}

// DefaultSettings returns the settings of a thread that no process has set any in.
func DefaultSettings() Settings {
	return Settings{MentionTriggers: true, RecordRuns: true, MaxAttempts: 5, Backoff: time.Second, MaxBackoff: 5 * time.Minute, DedupeWindow: 24 * time.Hour}
}

const (
	tableRows          = "outbox"
	tableIDs           = "outbox_ids"
	tableNotifications = "outbox_notifications"
	tableReceipts      = "outbox_receipts"
	tableConfig        = "outbox_config"
)

var settingsKey = []byte("settings")

// ReadSettings returns the settings of the thread.
func ReadSettings(tx *engine.Tx) (Settings, error) {
	s := DefaultSettings()
	r, err := tx.Records(tableConfig)
	if err != nil {
		return s, err
	}
	if v := r.Get(settingsKey); v != nil {
		if err := json.Unmarshal(v, &s); err != nil {
			return s, fmt.Errorf("%w: settings of the outbox: %w", engine.ErrCorrupt, err)
		}
	}
	return s, nil
}

// WriteSettings stores the settings, for all who use the thread from then on.
//
// It returns [engine.ErrInvalid] for attempts below 1, and for times that are
// negative or, other than Timeout, 0.
func WriteSettings(tx *engine.Tx, s Settings) error {
	if s.MaxAttempts < 1 || s.Backoff <= 0 || s.MaxBackoff < s.Backoff || s.DedupeWindow <= 0 || s.Timeout < 0 {
		return fmt.Errorf("%w: attempts and times of the outbox are positive, and the longest wait is not below the first", engine.ErrInvalid)
	}
	r, err := tx.Records(tableConfig)
	if err != nil {
		return err
	}
	v, err := json.Marshal(s)
	if err != nil {
		return err
	}
	return r.Put(settingsKey, v)
}
