package jsonform

import "thread/engine"

// Limits is what retain prints, and a part of what info does.
type Limits struct {
	MaxAge    int64   `json:"max_age_ms"`
	MaxBytes  int64   `json:"max_bytes"`
	MaxEvents int64   `json:"max_events"`
	Force     bool    `json:"force"`
	Over      bool    `json:"over"`
	HeldBy    *string `json:"held_back_by"`
	HeldAt    int64   `json:"held_back_event_id,omitempty"`
	HeldDead  bool    `json:"held_back_dead,omitempty"`
	Doubted   *string `json:"clock_doubted_since"`
}

// NewLimits returns the JSON of limits, nil for none.
func NewLimits(s *engine.LimitsState) *Limits {
	if s == nil {
		return nil
	}
	j := &Limits{MaxAge: s.MaxAge.Milliseconds(), MaxBytes: s.MaxBytes, MaxEvents: s.MaxEvents, Force: s.Force, Over: s.Over}
	if h := s.Held; h != nil {
		j.HeldBy, j.HeldAt, j.HeldDead = &h.Consumer, h.First, h.Dead
	}
	if !s.Doubted.IsZero() {
		j.Doubted = TimeText(&s.Doubted)
	}
	return j
}
