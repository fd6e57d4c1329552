package core

import (
	"context"
	"iter"
	"strconv"
	"time"

	"thread/engine"
	"thread/internal/cli"
	"thread/internal/counts"
	"thread/internal/terminal"
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

var statsVerb = &cli.Verb{
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

func (c *statsCmd) Run(ctx context.Context, a *cli.App) error {
	t, err := a.Open(c.Thread.Value)
	if err != nil {
		return err
	}
	defer t.Close()
	by, err := counts.Parse(c.By.Or(counts.All))
	if err != nil {
		return cli.UsageError("--by "+cli.ShellWord(c.By.Value)+" is not known", "give source, type, subtype, or several with commas in between")
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
	list, err := by.Count(ctx, t, q, limit)
	if err != nil {
		return err
	}
	return printStats(a, list, by, c.JSON)
}

func printStats(a *cli.App, list iter.Seq2[engine.Series, int64], by counts.By, json bool) error {
	table := &terminal.Table{Out: &a.Out, Columns: terminal.TableColumns(a.Out.W), Number: true, Least: []int{5, 12, 8, 8}}
	table.Header(cells(by, "COUNT", "SOURCE", "TYPE", "SUBTYPE")...)
	for s, n := range list {
		var err error
		if json {
			a.Out.Buf = append(by.AppendJSON(a.Out.Buf, &s, n), '\n')
			err = a.Out.More()
		} else {
			subtype := "-"
			if s.HasSubtype {
				subtype = terminal.Printable(s.Subtype)
			}
			err = table.Row(cells(by, strconv.FormatInt(n, 10), terminal.Printable(s.Source), terminal.Printable(s.Type), subtype)...)
		}
		if err != nil {
			return err
		}
	}
	return table.Flush()
}

func cells(by counts.By, count, source, typ, subtype string) []string {
	row := []string{count}
	if by.Source {
		row = append(row, source)
	}
	if by.Type {
		row = append(row, typ)
	}
	if by.Subtype {
		row = append(row, subtype)
	}
	return row
}
