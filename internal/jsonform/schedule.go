package jsonform

import (
	"time"

	"thread/engine"
	"thread/event"
)

// Schedule is what is planned: by a schedule, or once, then without a name.
type Schedule struct {
	Name    *string `json:"name"`
	When    *string `json:"when"`
	Delayed *int64  `json:"delayed_id"`
	Planned
}

// Planned is when what is pushed.
type Planned struct {
	NextAt  string  `json:"next_at"`
	Source  string  `json:"source"`
	Type    string  `json:"type"`
	Subtype *string `json:"subtype"`
	Content string  `json:"content"`
}

// NewSchedule returns the JSON of s.
func NewSchedule(s *engine.Schedule) Schedule {
	return Schedule{&s.Name, &s.Spec, nil, NewPlanned(s.Next, &s.Draft)}
}

// NewDelayed returns the JSON of d.
func NewDelayed(d *engine.Delayed) Schedule {
	return Schedule{Delayed: &d.ID, Planned: NewPlanned(d.At, &d.Draft)}
}

// NewPlanned returns the JSON of a draft that is pushed then.
func NewPlanned(at time.Time, d *event.Draft) Planned {
	return Planned{event.FormatTime(at), d.Source, d.Type, d.Subtype, d.Content}
}
