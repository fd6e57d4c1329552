package core

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"thread/engine"
	"thread/event"
	"thread/internal/cli"
	"thread/internal/dispatch"
	"thread/internal/jsonform"
	"thread/internal/terminal"
)

type scheduleAddCmd struct {
	cli.ThreadFlags
	Name    cli.Text `required:"" placeholder:"NAME" help:"The schedule's name."`
	When    cli.Text `required:"" placeholder:"SPEC" help:"Five cron fields (minute hour day month weekday, local time), @hourly, @daily, @weekly, @monthly, @yearly, or @every DURATION."`
	Source  cli.Text `required:"" placeholder:"SOURCE" help:"Who sends the event."`
	Type    cli.Text `required:"" placeholder:"TYPE" help:"What the event is."`
	Subtype cli.Text `placeholder:"SUBTYPE" help:"What the event is more precisely."`
	Content cli.Text `placeholder:"TEXT" help:"The payload (default empty)."`
	cli.JSONFlag
}

const scheduleDetails = `A thread serve pushes the event at its time; without one, the next command that
uses the thread does. Times that were missed are made up for by one event.`

var scheduleAddVerb = &cli.Verb{
	Name:    "schedule add",
	Summary: "Push an event again and again",
	Details: scheduleDetails,
	Exits:   "0 stored\n1 a schedule of that name exists",
	Examples: `thread schedule add --thread ./inbox --name tick --when "*/5 * * * *" --source cron --type tick
thread schedule add --thread ./inbox --name poll --when "@every 30s" --source cron --type poll`,
	Grammar: func() cli.Command { return new(scheduleAddCmd) },
}

func (c *scheduleAddCmd) Run(ctx context.Context, a *cli.App) error {
	t, err := a.OpenEvents(c.Thread.Value)
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
	notAwaited(a, t, dispatch.RescheduledForever(t), nil)
	if c.JSON {
		return a.Out.JSON(jsonform.NewSchedule(&s))
	}
	return a.Out.Text("Scheduled '" + terminal.Printable(s.Name) + "', first at " + event.FormatTime(s.Next) + "\n")
}

type scheduleListCmd struct {
	cli.ThreadFlags
	cli.JSONFlag
}

var scheduleListVerb = &cli.Verb{
	Name:    "schedule list",
	Summary: "Show what is scheduled",
	Details: `Schedules by name, then the events of push --delay and --at in the order of
time, with the id that thread schedule cancel takes for a name and once for the times.
Columns are name, times, next time, source, type and content; on a terminal aligned and
cut to its width, elsewhere whole and with a tab in between.`,
	Exits:    "0 listed, perhaps none",
	Examples: `thread schedule list --thread ./inbox`,
	Grammar:  func() cli.Command { return new(scheduleListCmd) },
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
	table := terminal.Table{Out: &a.Out, Columns: terminal.TableColumns(a.Out.W), Least: []int{6, 9, 12, 8, 6}}
	table.Header("NAME", "WHEN", "NEXT", "SOURCE", "TYPE", "CONTENT")
	row := func(name, when string, at time.Time, d *event.Draft) error {
		return table.Row(terminal.Printable(name), terminal.Printable(when), event.FormatTime(at), terminal.Printable(d.Source),
			terminal.Printable(typeOf(&event.Event{Type: d.Type, Subtype: d.Subtype})), terminal.Printable(d.Content))
	}
	for i := range schedules {
		s := &schedules[i]
		if c.JSON {
			err = a.Out.JSON(jsonform.NewSchedule(s))
		} else {
			err = row(s.Name, specText(s.Spec), s.Next, &s.Draft)
		}
		if err != nil {
			return err
		}
	}
	for _, d := range delayed {
		if c.JSON {
			err = a.Out.JSON(jsonform.NewDelayed(&d))
		} else {
			err = row(strconv.FormatInt(d.ID, 10), "once", d.At, &d.Draft)
		}
		if err != nil {
			return err
		}
	}
	return table.Flush()
}

// specText returns a stored spec for people: @every 7d, which is stored as 168h0m0s.
func specText(spec string) string {
	text, ok := strings.CutPrefix(spec, "@every ")
	if d, err := time.ParseDuration(text); ok && err == nil && d >= 24*time.Hour && d.String() == text {
		return "@every " + cli.DurationText(d)
	}
	return spec
}

type scheduleCancelCmd struct {
	cli.ThreadFlags
	cli.JSONFlag

	ID cli.Text `arg:"" name:"id" help:"The delayed id, as push printed it."`
}

var scheduleCancelVerb = &cli.Verb{
	Name: "schedule cancel", Args: "<id>",
	Summary:  "Cancel an event of push --delay or --at",
	Details:  `Its time must not have come. thread schedule list shows the ids.`,
	Exits:    "0 cancelled\n1 no delayed event waits with that id",
	Examples: `thread schedule cancel --thread ./inbox 3`,
	Grammar:  func() cli.Command { return new(scheduleCancelCmd) },
}

func (c *scheduleCancelCmd) Run(ctx context.Context, a *cli.App) error {
	t, err := a.Open(c.Thread.Value)
	if err != nil {
		return err
	}
	defer t.Close()
	id, ok := cli.ParseNumber(c.ID.Value)
	if !ok || id == 0 {
		return cli.UsageError("the id "+cli.ShellWord(c.ID.Value)+" is not a number from 1", "see thread schedule list for the ids; a schedule that repeats goes with thread schedule remove --name")
	}
	if err := t.Cancel(ctx, id); errors.Is(err, engine.ErrNoDelayed) {
		return cli.LogicError(fmt.Sprintf("no delayed event waits with the id %d", id), "see thread schedule list --thread "+cli.ShellWord(a.Dir)+"; if its time has come it is an event now")
	} else if err != nil {
		return err
	}
	if c.JSON {
		return a.Out.JSON(struct {
			Delayed int64 `json:"delayed_id"`
		}{id})
	}
	return a.Out.Text(fmt.Sprintf("Cancelled delayed event %d\n", id))
}

type scheduleRemoveCmd struct {
	cli.ThreadFlags
	Name cli.Text `required:"" placeholder:"NAME" help:"The schedule's name."`
	cli.JSONFlag
}

var scheduleRemoveVerb = &cli.Verb{
	Name:     "schedule remove",
	Summary:  "Remove a schedule",
	Details:  `The events that it has pushed stay.`,
	Exits:    "0 removed\n1 there is no such schedule",
	Examples: `thread schedule remove --thread ./inbox --name tick`,
	Grammar:  func() cli.Command { return new(scheduleRemoveCmd) },
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
	return a.Out.Text("Removed schedule '" + terminal.Printable(c.Name.Value) + "'\n")
}
