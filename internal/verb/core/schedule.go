package core

import (
	"context"
	"fmt"
	"time"

	"thread/engine"
	"thread/event"
	"thread/internal/cli"
	"thread/internal/dispatch"
)

type scheduleAddCmd struct {
	cli.ThreadFlags
	Name    cli.Text `required:"" placeholder:"NAME" help:"The schedule's name."`
	When    cli.Text `required:"" placeholder:"SPEC" help:"Five cron fields (minute hour day month weekday, local time), @hourly, @daily, @weekly, @monthly, @yearly, or @every DURATION."`
	Source  cli.Text `required:"" placeholder:"NAME" help:"Who sends the event."`
	Type    cli.Text `required:"" placeholder:"TYPE" help:"What the event is."`
	Subtype cli.Text `placeholder:"TYPE" help:"What the event is more precisely."`
	Content cli.Text `placeholder:"TEXT" help:"The payload (default empty)."`
	cli.JSONFlag
}

const scheduleDetails = `A thread serve pushes the event at its time; without one, the next command that
uses the thread does. Times that were missed are made up for by one event.`

func scheduleAddVerb() *cli.Verb {
	return &cli.Verb{
		Name:    "schedule add",
		Summary: "Push an event again and again",
		Details: scheduleDetails,
		Examples: `thread schedule add --thread ./inbox --name tick --when "*/5 * * * *" --source cron --type tick
thread schedule add --thread ./inbox --name poll --when "@every 30s" --source cron --type poll`,
		Grammar: func() cli.Command { return new(scheduleAddCmd) },
	}
}

func (c *scheduleAddCmd) Run(ctx context.Context, a *cli.App) error {
	t, err := a.Open(c.Thread.Value)
	if err != nil {
		return err
	}
	defer t.Close()
	a.Schedule = c.Name.Value
	s := engine.Schedule{Name: c.Name.Value, Spec: c.When.Value,
		Draft: event.Draft{Source: c.Source.Value, Type: c.Type.Value, Content: c.Content.Value}}
	if c.Subtype.Set {
		s.Draft.Subtype = &c.Subtype.Value
	}
	if s.Next, err = t.AddSchedule(ctx, s); err != nil {
		return err
	}
	notAwaited(a, dispatch.RescheduledForever(t), nil)
	if c.JSON {
		return a.Out.JSON(newScheduleJSON(&s))
	}
	return a.Out.Text("Scheduled '" + cli.Printable(s.Name) + "', first at " + event.FormatTime(s.Next) + "\n")
}

// scheduleJSON is what is planned: by a schedule, or once, then without a name.
type scheduleJSON struct {
	Name *string `json:"name"`
	When *string `json:"when"`
	plannedJSON
}

// plannedJSON is when what is pushed.
type plannedJSON struct {
	NextAt  string  `json:"next_at"`
	Source  string  `json:"source"`
	Type    string  `json:"type"`
	Subtype *string `json:"subtype"`
	Content string  `json:"content"`
}

func newScheduleJSON(s *engine.Schedule) scheduleJSON {
	return scheduleJSON{&s.Name, &s.Spec, newPlannedJSON(s.Next, &s.Draft)}
}

func newPlannedJSON(at time.Time, d *event.Draft) plannedJSON {
	return plannedJSON{event.FormatTime(at), d.Source, d.Type, d.Subtype, d.Content}
}

type scheduleListCmd struct {
	cli.ThreadFlags
	cli.JSONFlag
}

func scheduleListVerb() *cli.Verb {
	return &cli.Verb{
		Name:    "schedule list",
		Summary: "Show what is scheduled",
		Details: `Schedules by name, then the events of push --delay and --at in the order of
time.`,
		Examples: `thread schedule list --thread ./inbox`,
		Grammar:  func() cli.Command { return new(scheduleListCmd) },
	}
}

func (c *scheduleListCmd) Run(ctx context.Context, a *cli.App) error {
	t, err := a.Open(c.Thread.Value)
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
			err = a.Out.JSON(newScheduleJSON(s))
		} else {
			err = a.Out.Text(fmt.Sprintf("%s  %s: %s from %s, next at %s\n", cli.Printable(s.Name), cli.Printable(s.Spec),
				cli.Printable(s.Draft.Type), cli.Printable(s.Draft.Source), event.FormatTime(s.Next)))
		}
		if err != nil {
			return err
		}
	}
	for _, d := range delayed {
		if c.JSON {
			err = a.Out.JSON(scheduleJSON{plannedJSON: newPlannedJSON(d.At, &d.Draft)})
		} else {
			err = a.Out.Text(fmt.Sprintf("once: %s from %s at %s\n", cli.Printable(d.Draft.Type), cli.Printable(d.Draft.Source), event.FormatTime(d.At)))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

type scheduleRemoveCmd struct {
	cli.ThreadFlags
	Name cli.Text `required:"" placeholder:"NAME" help:"The schedule's name."`
	cli.JSONFlag
}

func scheduleRemoveVerb() *cli.Verb {
	return &cli.Verb{
		Name:     "schedule remove",
		Summary:  "Remove a schedule",
		Details:  `The events that it has pushed stay.`,
		Examples: `thread schedule remove --thread ./inbox --name tick`,
		Grammar:  func() cli.Command { return new(scheduleRemoveCmd) },
	}
}

func (c *scheduleRemoveCmd) Run(ctx context.Context, a *cli.App) error {
	t, err := a.Open(c.Thread.Value)
	if err != nil {
		return err
	}
	defer t.Close()
	if c.Name.Value == "" {
		return cli.UsageError("--name is empty", "name the schedule")
	}
	a.Schedule = c.Name.Value
	if err := t.RemoveSchedule(ctx, c.Name.Value); err != nil {
		return err
	}
	if c.JSON {
		return a.Out.JSON(struct {
			Name string `json:"name"`
		}{c.Name.Value})
	}
	return a.Out.Text("Removed schedule '" + cli.Printable(c.Name.Value) + "'\n")
}
