package main

import (
	"context"
	"fmt"
	"strconv"

	"thread/engine"
	"thread/event"
	"thread/filter"
)

type filterCheckCmd struct {
	Where text     `arg:"" help:"The filter."`
	Help  helpFlag `short:"h" help:"Show this help."`
	jsonFlag
}

func filterCheckVerb() *verb {
	return &verb{
		name: "filter check", args: "<where>",
		summary:  "Say whether a text is a filter, and what it looks at",
		examples: `thread filter check "type = 'message' AND source LIKE 'external:%'"`,
		grammar:  func() command { return new(filterCheckCmd) },
	}
}

func (c *filterCheckCmd) run(_ context.Context, a *app) error {
	f, err := filter.Compile(c.Where.value)
	if err != nil {
		return err
	}
	return a.out.text(a.checked(f))
}

type filterTestCmd struct {
	threadFlags
	Where text `arg:"" help:"The filter."`
	Limit text `placeholder:"N" help:"How many of the matching events to print (default 5)."`
	jsonFlag
}

func filterTestVerb() *verb {
	return &verb{
		name: "filter test", args: "<where>",
		summary:  "Count the stored events that match a filter and print the first",
		examples: `thread filter test --thread ./inbox "type = 'message'"`,
		grammar:  func() command { return new(filterTestCmd) },
	}
}

func (c *filterTestCmd) run(ctx context.Context, a *app) error {
	t, err := a.open(c.Thread.value)
	if err != nil {
		return err
	}
	defer t.Close()
	limit, err := parseLimit(c.Limit.or("5"))
	if err != nil {
		return err
	}
	info, err := t.Info(ctx)
	if err != nil {
		return err
	}
	var matched int64
	var first []event.Event
	for e, err := range t.Events(ctx, engine.Query{Filter: c.Where.value}) {
		if err != nil {
			return err
		}
		if matched++; matched <= limit {
			first = append(first, e)
		}
	}
	if c.JSON {
		a.out.buf = strconv.AppendInt(append(a.out.buf, `{"matched":`...), matched, 10)
		a.out.buf = strconv.AppendInt(append(a.out.buf, `,"stored":`...), info.Stored, 10)
		a.out.buf = append(a.out.buf, `,"first":[`...)
		for i := range first {
			if i > 0 {
				a.out.buf = append(a.out.buf, ',')
			}
			a.out.buf = first[i].AppendJSON(a.out.buf)
		}
		return a.out.text("]}\n")
	}
	if err := a.out.text(fmt.Sprintf("%d of %d events match\n", matched, info.Stored)); err != nil {
		return err
	}
	for i := range first {
		if err := a.out.text(string(first[i].AppendJSON(nil)) + "\n"); err != nil {
			return err
		}
	}
	return nil
}
