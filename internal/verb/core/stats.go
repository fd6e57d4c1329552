package core

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"strings"
	"time"

	"thread/engine"
	"thread/event"
	"thread/internal/cli"
)

type statsCmd struct {
	cli.ThreadFlags
	By     cli.Text `placeholder:"COLUMNS" help:"What to count by: source, type and subtype, with commas in between (default all three)."`
	Filter cli.Text `placeholder:"WHERE" help:"Count only events that match."`
	cli.SeriesFlags
	Since cli.Text `placeholder:"TIME" help:"Count only events created at or after this time: 90m for so long ago, 18:00, yesterday 09:00, 2026-03-18T10:30:00Z. Without a zone it is local time."`
	Limit cli.Text `placeholder:"N" help:"How many lines at most, the greatest counts first (default all)."`
	cli.JSONFlag
}

func statsVerb() *cli.Verb {
	return &cli.Verb{
		Name:    "stats",
		Summary: "Count events by source, type and subtype",
		Details: `The greatest counts come first. An event without a subtype is counted apart from
those with an empty one: its subtype is -, with --json null. No event is read
unless --filter asks for more than source, type and subtype.`,
		Exits: "0 counted, perhaps nothing",
		Examples: `thread stats --thread ./inbox
thread stats --thread ./inbox --by type --source 'external:*'
thread stats --thread ./inbox --by source --since 24h --limit 10 --json`,
		Grammar: func() cli.Command { return new(statsCmd) },
	}
}

// columns of the count.
type statsBy struct{ source, typ, subtype bool }

func parseStatsBy(s string) (by statsBy, err error) {
	for column := range strings.SplitSeq(s, ",") {
		switch strings.TrimSpace(column) {
		case "source":
			by.source = true
		case "type":
			by.typ = true
		case "subtype":
			by.subtype = true
		default:
			return by, cli.UsageError("--by "+cli.ShellWord(s)+" is not known", "give source, type, subtype, or several with commas in between")
		}
	}
	return by, nil
}

func (c *statsCmd) Run(ctx context.Context, a *cli.App) error {
	t, err := a.Open(c.Thread.Value)
	if err != nil {
		return err
	}
	defer t.Close()
	by, err := parseStatsBy(c.By.Or("source,type,subtype"))
	if err != nil {
		return err
	}
	limit := int64(-1)
	if c.Limit.Set {
		if limit, err = cli.ParseLimit(c.Limit.Value); err != nil {
			return err
		}
	}
	var q engine.Query
	if q.Filter, err = c.Where(c.Filter.Value); err != nil {
		return err
	}
	if c.Since.Set {
		if q.Since, err = cli.ParseTime("--since", c.Since.Value, time.Now(), cli.Past); err != nil {
			return err
		}
	}
	counts, err := t.Counts(ctx, q)
	if err != nil {
		return err
	}
	return printStats(a, by.sum(counts), by, limit, c.JSON)
}

// sum adds up the counts of what is the same in the columns.
func (by statsBy) sum(counts map[engine.Series]int64) map[engine.Series]int64 {
	sums := make(map[engine.Series]int64, len(counts))
	for s, n := range counts {
		if !by.source {
			s.Source = ""
		}
		if !by.typ {
			s.Type = ""
		}
		if !by.subtype {
			s.Subtype, s.HasSubtype = "", false
		}
		sums[s] += n
	}
	return sums
}

func printStats(a *cli.App, counts map[engine.Series]int64, by statsBy, limit int64, json bool) error {
	list := make([]engine.Series, 0, len(counts))
	for s := range counts {
		list = append(list, s)
	}
	slices.SortFunc(list, func(x, y engine.Series) int {
		return cmp.Or(cmp.Compare(counts[y], counts[x]), cmp.Compare(x.Source, y.Source), cmp.Compare(x.Type, y.Type),
			cmp.Compare(x.Subtype, y.Subtype), cmp.Compare(strconv.FormatBool(x.HasSubtype), strconv.FormatBool(y.HasSubtype)))
	})
	if limit >= 0 && int64(len(list)) > limit {
		list = list[:limit]
	}
	table := &cli.Table{Out: &a.Out, Columns: cli.TableColumns(a.Out.W), Number: true, Least: []int{5, 12, 8, 8}}
	table.Header(by.cells("COUNT", "SOURCE", "TYPE", "SUBTYPE")...)
	for _, s := range list {
		var err error
		if json {
			err = by.json(a, &s, counts[s])
		} else {
			subtype := "-"
			if s.HasSubtype {
				subtype = cli.Printable(s.Subtype)
			}
			err = table.Row(by.cells(strconv.FormatInt(counts[s], 10), cli.Printable(s.Source), cli.Printable(s.Type), subtype)...)
		}
		if err != nil {
			return err
		}
	}
	return table.Flush()
}

func (by statsBy) cells(count, source, typ, subtype string) []string {
	row := []string{count}
	if by.source {
		row = append(row, source)
	}
	if by.typ {
		row = append(row, typ)
	}
	if by.subtype {
		row = append(row, subtype)
	}
	return row
}

func (by statsBy) json(a *cli.App, s *engine.Series, count int64) error {
	b := append(a.Out.Buf, `{"count":`...)
	b = strconv.AppendInt(b, count, 10)
	if by.source {
		b = event.AppendString(append(b, `,"source":`...), s.Source)
	}
	if by.typ {
		b = event.AppendString(append(b, `,"type":`...), s.Type)
	}
	if by.subtype && s.HasSubtype {
		b = event.AppendString(append(b, `,"subtype":`...), s.Subtype)
	} else if by.subtype {
		b = append(b, `,"subtype":null`...)
	}
	a.Out.Buf = append(b, "}\n"...)
	return a.Out.More()
}
