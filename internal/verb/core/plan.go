package core

import (
	"fmt"
	"strings"

	"thread/engine"
	"thread/filter"
	"thread/internal/cli"
)

// planText is what thread peek --explain prints.
func planText(p *engine.Plan) string {
	var b strings.Builder
	writeParts(&b, p.Filter.Parts)
	fmt.Fprintf(&b, "Ids: %d to %d\n", p.FirstID, p.LastID)
	if p.CreatedFrom != "" {
		fmt.Fprintf(&b, "Created: at or after %s\n", cli.Printable(p.CreatedFrom))
	}
	if p.CreatedBefore != "" {
		fmt.Fprintf(&b, "Created: before %s\n", cli.Printable(p.CreatedBefore))
	}
	s, r := &p.Series, &p.Reads
	fmt.Fprintf(&b, "Series: %d, the filter was asked %d times: %d match, %d do not, %d depend on the event\n", s.Stored, s.Asked, s.All, s.None, s.Open)
	fmt.Fprintf(&b, "Column blocks: %d looked at, %d passed over for their times; %d events behind the last one\n", r.Blocks, r.BlocksPassed, r.Tail)
	fmt.Fprintf(&b, "Events: %d read, %d found\n", r.Events, r.Matched)
	fmt.Fprintf(&b, "Transactions: %d\nTime: %.3f ms\n", r.Transactions, float64(p.Elapsed.Microseconds())/1000)
	return b.String()
}

func printPlanJSON(a *cli.App, p *engine.Plan) error {
	s, r := &p.Series, &p.Reads
	return a.Out.JSON(struct {
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
	}{p.Filter.Parts, p.FirstID, p.LastID, cli.Null(p.CreatedFrom), cli.Null(p.CreatedBefore),
		s.Stored, s.Asked, s.All, s.None, s.Open,
		r.Blocks, r.BlocksPassed, r.Tail, r.Events, r.Matched, r.Transactions, p.Elapsed.Microseconds()})
}
