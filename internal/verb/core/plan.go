package core

import (
	"fmt"
	"strings"

	"thread/engine"
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
