//go:build !noserve

package main

import (
	"context"
	"fmt"
	"time"

	"thread/event"
	"thread/serve"
)

type lanesCmd struct {
	threadFlags
	jsonFlag
}

func lanesVerb() *verb {
	return &verb{
		name:    "lanes",
		summary: "Show the lanes of thread serve",
		details: `For each lane that is in use or configured: how many handlers run in it, its
limit, how many wait and for how long the first of them. A thread serve has its
lanes in common for all of its threads.`,
		examples: `thread lanes --thread ./inbox`,
		grammar:  func() command { return new(lanesCmd) },
	}
}

func (c *lanesCmd) run(_ context.Context, a *app) error {
	answer, err := a.ask(c.Thread.value, serve.Request{Op: "lanes"})
	if err != nil {
		return err
	}
	for _, l := range answer.Lanes {
		if c.JSON {
			b := event.AppendString(append(a.out.buf, `{"name":`...), l.Name)
			a.out.buf = fmt.Appendf(b, `,"limit":%d,"active":%d,"queued":%d,"oldest_ms":%d}`+"\n", l.Limit, l.Active, l.Queued, l.OldestMS)
			continue
		}
		a.out.buf = fmt.Appendf(a.out.buf, "%s  %d of %d run, %d wait", printable(l.Name), l.Active, l.Limit, l.Queued)
		if l.Queued > 0 {
			a.out.buf = fmt.Appendf(a.out.buf, ", the first for %v", time.Duration(l.OldestMS)*time.Millisecond)
		}
		a.out.buf = append(a.out.buf, '\n')
	}
	return nil
}
