package core

import (
	"context"
	"fmt"
	"strconv"

	"thread/engine"
	"thread/event"
	"thread/filter"
	"thread/internal/cli"
)

type filterCheckCmd struct {
	Where cli.Text     `arg:"" help:"The filter."`
	Help  cli.HelpFlag `short:"h" help:"Show this help."`
	cli.JSONFlag
}

func filterCheckVerb() *cli.Verb {
	return &cli.Verb{
		Name: "filter check", Args: "<where>",
		Summary:  "Check a filter, and show what it reads",
		Exits:    "0 the filter is valid\n2 the filter is invalid: where, and why",
		Examples: `thread filter check "type = 'message' AND source LIKE 'external:%'"`,
		Grammar:  func() cli.Command { return new(filterCheckCmd) },
	}
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

func filterTestVerb() *cli.Verb {
	return &cli.Verb{
		Name: "filter test", Args: "<where>",
		Summary:  "Count the stored events that match a filter and print the first",
		Exits:    "0 counted, perhaps none",
		Examples: `thread filter test --thread ./inbox "type = 'message'"`,
		Grammar:  func() cli.Command { return new(filterTestCmd) },
	}
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
