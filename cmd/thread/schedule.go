//go:build !noserve

package main

import (
	"context"
	"errors"
	"fmt"

	"thread/dispatch"
	"thread/engine"
	"thread/event"
)

type scheduleAddCmd struct {
	threadFlags
	Name    text `required:"" placeholder:"NAME" help:"The schedule's name."`
	When    text `required:"" placeholder:"SPEC" help:"Five cron fields (minute hour day month weekday, local time), @hourly, @daily, @weekly, @monthly, @yearly, or @every DURATION."`
	Source  text `required:"" placeholder:"NAME" help:"Who sends the event."`
	Type    text `required:"" placeholder:"TYPE" help:"What the event is."`
	Subtype text `placeholder:"TYPE" help:"What the event is more precisely."`
	Content text `placeholder:"TEXT" help:"The payload (default empty)."`
	jsonFlag
}

const scheduleDetails = `A thread serve pushes the event at its time; without one, the next command that
uses the thread does. Times that were missed are made up for by one event.`

func scheduleAddVerb() *verb {
	return &verb{
		name:    "schedule add",
		summary: "Push an event again and again",
		details: scheduleDetails,
		examples: `thread schedule add --thread ./inbox --name tick --when "*/5 * * * *" --source cron --type tick
thread schedule add --thread ./inbox --name poll --when "@every 30s" --source cron --type poll`,
		grammar: func() command { return new(scheduleAddCmd) },
	}
}

func (c *scheduleAddCmd) run(ctx context.Context, a *app) error {
	t, err := a.open(c.Thread.value)
	if err != nil {
		return err
	}
	defer t.Close()
	s := engine.Schedule{Name: c.Name.value, Spec: c.When.value,
		Draft: event.Draft{Source: c.Source.value, Type: c.Type.value, Content: c.Content.value}}
	if c.Subtype.set {
		s.Draft.Subtype = &c.Subtype.value
	}
	if s.Next, err = t.AddSchedule(ctx, s); err != nil {
		return a.aboutSchedule(err, s.Name)
	}
	dispatch.Rescheduled(t)
	if c.JSON {
		a.out.buf = appendSchedule(a.out.buf, &s)
		return nil
	}
	return a.out.text("Scheduled '" + printable(s.Name) + "', first at " + event.FormatTime(s.Next) + "\n")
}

func (a *app) aboutSchedule(err error, name string) error {
	switch {
	case errors.Is(err, engine.ErrScheduleExists):
		return logic("schedule '"+name+"' already exists", "run thread schedule remove --thread "+shellWord(a.dir)+" --name "+shellWord(name))
	case errors.Is(err, engine.ErrNoSchedule):
		return logic("there is no schedule '"+name+"'", "see thread schedule list --thread "+shellWord(a.dir))
	}
	return err
}

func appendSchedule(b []byte, s *engine.Schedule) []byte {
	b = event.AppendString(append(b, `{"name":`...), s.Name)
	b = event.AppendString(append(b, `,"when":`...), s.Spec)
	return appendPlanned(b, s.Next, &s.Draft)
}

type scheduleListCmd struct {
	threadFlags
	jsonFlag
}

func scheduleListVerb() *verb {
	return &verb{
		name:    "schedule list",
		summary: "Show what is scheduled",
		details: `Schedules by name, then the events of push --delay and --at in the order of
time.`,
		examples: `thread schedule list --thread ./inbox`,
		grammar:  func() command { return new(scheduleListCmd) },
	}
}

func (c *scheduleListCmd) run(ctx context.Context, a *app) error {
	t, err := a.open(c.Thread.value)
	if err != nil {
		return err
	}
	defer t.Close()
	schedules, err := t.Schedules(ctx)
	if err != nil {
		return err
	}
	delayed, err := t.Delayed(ctx, 0)
	if err != nil {
		return err
	}
	for i := range schedules {
		s := &schedules[i]
		if c.JSON {
			a.out.buf = appendSchedule(a.out.buf, s)
		} else {
			a.out.buf = fmt.Appendf(a.out.buf, "%s  %s: %s from %s, next at %s\n", printable(s.Name), printable(s.Spec),
				printable(s.Draft.Type), printable(s.Draft.Source), event.FormatTime(s.Next))
		}
		if err := a.out.more(); err != nil {
			return err
		}
	}
	for _, d := range delayed {
		if c.JSON {
			a.out.buf = appendPlanned(append(a.out.buf, `{"name":null,"when":null`...), d.At, &d.Draft)
		} else {
			a.out.buf = fmt.Appendf(a.out.buf, "once: %s from %s at %s\n", printable(d.Draft.Type), printable(d.Draft.Source), event.FormatTime(d.At))
		}
		if err := a.out.more(); err != nil {
			return err
		}
	}
	return nil
}

type scheduleRemoveCmd struct {
	threadFlags
	Name text `required:"" placeholder:"NAME" help:"The schedule's name."`
	jsonFlag
}

func scheduleRemoveVerb() *verb {
	return &verb{
		name:     "schedule remove",
		summary:  "Remove a schedule",
		details:  `The events that it has pushed stay.`,
		examples: `thread schedule remove --thread ./inbox --name tick`,
		grammar:  func() command { return new(scheduleRemoveCmd) },
	}
}

func (c *scheduleRemoveCmd) run(ctx context.Context, a *app) error {
	t, err := a.open(c.Thread.value)
	if err != nil {
		return err
	}
	defer t.Close()
	if c.Name.value == "" {
		return usage("--name is empty", "name the schedule")
	}
	if err := t.RemoveSchedule(ctx, c.Name.value); err != nil {
		return a.aboutSchedule(err, c.Name.value)
	}
	if c.JSON {
		return a.out.text(string(event.AppendString([]byte(`{"name":`), c.Name.value)) + "}\n")
	}
	return a.out.text("Removed schedule '" + printable(c.Name.value) + "'\n")
}
