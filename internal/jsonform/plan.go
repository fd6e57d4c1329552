package jsonform

import (
	"thread/engine"
	"thread/filter"
)

// Plan is how events are found, and what was read for that.
type Plan struct {
	Parts         []filter.Part `json:"parts"`
	FirstID       int64         `json:"first_id"`
	LastID        int64         `json:"last_id"`
	CreatedFrom   *string       `json:"created_from"`
	CreatedBefore *string       `json:"created_before"`
	Series        int64         `json:"series_count"`
	Asked         int64         `json:"series_asked"`
	All           int64         `json:"series_matching"`
	None          int64         `json:"series_not_matching"`
	Open          int64         `json:"series_open"`
	Blocks        int64         `json:"blocks_read"`
	BlocksPassed  int64         `json:"blocks_passed_over"`
	Tail          int64         `json:"tail_events"`
	Events        int64         `json:"events_read"`
	Matched       int64         `json:"events_found"`
	Transactions  int64         `json:"transactions"`
	Elapsed       int64         `json:"elapsed_us"`
}

// NewPlan returns the JSON of p.
func NewPlan(p *engine.Plan) Plan {
	s, r := &p.Series, &p.Reads
	return Plan{p.Filter.Parts, p.FirstID, p.LastID, Null(p.CreatedFrom), Null(p.CreatedBefore),
		s.Stored, s.Asked, s.All, s.None, s.Open,
		r.Blocks, r.BlocksPassed, r.Tail, r.Events, r.Matched, r.Transactions, p.Elapsed.Microseconds()}
}
