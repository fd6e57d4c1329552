package core

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"thread/engine"
	"thread/event"
	"thread/filter"
	"thread/internal/cli"
	"thread/internal/terminal"
)

type filterCheckCmd struct {
	Where cli.Text     `arg:"" help:"The filter."`
	Help  cli.HelpFlag `short:"h" help:"Show this help."`
	cli.JSONFlag
}

var filterCheckVerb = &cli.Verb{
	Name: "filter check", Args: "<where>",
	Summary:  "Check a filter, and show what it reads",
	Exits:    "0 the filter is valid\n2 the filter is invalid: where, and why",
	Examples: `thread filter check "type = 'message' AND source LIKE 'external:%'"`,
	Grammar:  func() cli.Command { return new(filterCheckCmd) },
}

func (c *filterCheckCmd) Run(_ context.Context, a *cli.App) error {
	f, err := filter.Compile(c.Where.Value)
	if err != nil {
		return err
	}
	return printChecked(a, f)
}

type filterTestCmd struct {
	cli.ThreadFlags
	Where cli.Text `arg:"" help:"The filter."`
	Limit cli.Text `placeholder:"N" help:"How many of the matching events to print (default 5)."`
	cli.JSONFlag
}

var filterTestVerb = &cli.Verb{
	Name: "filter test", Args: "<where>",
	Summary:  "Count the stored events that match a filter and print the first",
	Exits:    "0 counted, perhaps none",
	Examples: `thread filter test --thread ./inbox "type = 'message'"`,
	Grammar:  func() cli.Command { return new(filterTestCmd) },
}

func (c *filterTestCmd) Run(ctx context.Context, a *cli.App) error {
	t, err := a.Open(c.Thread.Value)
	if err != nil {
		return err
	}
	defer t.Close()
	limit, err := cli.ParseLimit(c.Limit.Or("5"))
	if err != nil {
		return err
	}
	info, err := t.Info(ctx)
	if err != nil {
		return err
	}
	var matched int64
	var first []event.Event
	for e, err := range t.Events(ctx, engine.Query{Filter: c.Where.Value}) {
		if err != nil {
			return err
		}
		if matched++; matched <= limit {
			first = append(first, e)
		}
	}
	if c.JSON {
		a.Out.Buf = strconv.AppendInt(append(a.Out.Buf, `{"matched":`...), matched, 10)
		a.Out.Buf = strconv.AppendInt(append(a.Out.Buf, `,"stored":`...), info.Stored, 10)
		a.Out.Buf = append(a.Out.Buf, `,"first":[`...)
		for i := range first {
			if i > 0 {
				a.Out.Buf = append(a.Out.Buf, ',')
			}
			a.Out.Buf = first[i].AppendJSON(a.Out.Buf)
		}
		return a.Out.Text("]}\n")
	}
	if err := a.Out.Text(fmt.Sprintf("%d of %d events match\n", matched, info.Stored)); err != nil {
		return err
	}
	for i := range first {
		if err := a.Out.Text(string(first[i].AppendJSON(nil)) + "\n"); err != nil {
			return err
		}
	}
	return nil
}

// printChecked prints what filter check says of a valid filter. Warnings are part of
// the JSON, and go to stderr otherwise.
func printChecked(a *cli.App, f *filter.Filter) error {
	e := f.Explain()
	if a.Json {
		return a.Out.JSON(struct {
			Valid  bool   `json:"valid"`
			Filter string `json:"filter"`
			Expr   string `json:"expr,omitempty"`
			filter.Explanation
		}{true, f.Text(), f.Expr(), e})
	}
	for _, w := range e.Warnings {
		a.Warn("%s", w)
	}
	return a.Out.Text(explanationText(f, e))
}

func explanationText(f *filter.Filter, e filter.Explanation) string {
	var b strings.Builder
	columns := strings.Join(e.Columns, ", ")
	if columns == "" {
		columns = "(none)"
	}
	fmt.Fprintf(&b, "Valid filter: %s\nColumns: %s\n", terminal.Printable(f.Text()), columns)
	if expr := f.Expr(); expr != "" {
		fmt.Fprintf(&b, "Expr: %s\n", terminal.Printable(expr))
	}
	writeParts(&b, e.Parts)
	if e.CanFail {
		b.WriteString("Can fail: on an event whose content is not what a function expects\n")
	}
	return b.String()
}

func writeParts(b *strings.Builder, parts []filter.Part) {
	if len(parts) > 0 {
		b.WriteString("Parts:\n")
	}
	for _, p := range parts {
		fmt.Fprintf(b, "  %s\n    %s\n", terminal.Printable(p.Text), indexWords(p.Index))
	}
}

func indexWords(index string) string {
	switch index {
	case filter.IndexSeries:
		return "the index answers, without reading events"
	case filter.IndexID:
		return "narrows the range of ids"
	case filter.IndexTime:
		return "narrows the range of times"
	}
	return "looks at every event that the other parts leave"
}

// planText is what thread peek --explain prints.
func planText(p *engine.Plan) string {
	var b strings.Builder
	writeParts(&b, p.Filter.Parts)
	fmt.Fprintf(&b, "Ids: %d to %d\n", p.FirstID, p.LastID)
	if p.CreatedFrom != "" {
		fmt.Fprintf(&b, "Created: at or after %s\n", terminal.Printable(p.CreatedFrom))
	}
	if p.CreatedBefore != "" {
		fmt.Fprintf(&b, "Created: before %s\n", terminal.Printable(p.CreatedBefore))
	}
	s, r := &p.Series, &p.Reads
	fmt.Fprintf(&b, "Series: %d, the filter was asked %d times: %d match, %d do not, %d depend on the event\n", s.Stored, s.Asked, s.All, s.None, s.Open)
	fmt.Fprintf(&b, "Column blocks: %d looked at, %d passed over for their times; %d events behind the last one\n", r.Blocks, r.BlocksPassed, r.Tail)
	fmt.Fprintf(&b, "Events: %d read, %d found\n", r.Events, r.Matched)
	fmt.Fprintf(&b, "Transactions: %d\nTime: %.3f ms\n", r.Transactions, float64(p.Elapsed.Microseconds())/1000)
	return b.String()
}
