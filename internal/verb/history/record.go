package history

import (
	"context"
	"encoding/json"
	"fmt"

	"thread/history"
	"thread/internal/cli"
)

// times are the flags of what a run does.
type times struct {
	ID     cli.Text `name:"id" placeholder:"ID" help:"Its id; a new one without it. One that is known is changed, flag by flag."`
	Status cli.Text `placeholder:"STATUS" help:"Its status (default completed)."`
	cli.JSONFlag
}

// field is what a flag sets in a row: a *string to its text, jsonFile and jsonFlag to JSON,
// and number and took to a number.
type field struct {
	to   any
	text cli.Text
}

// The fields that are not text name their flag, for errors.
type (
	jsonFile struct { // the content of a file
		flag string
		to   *json.RawMessage
	}
	jsonFlag struct { // the text itself
		flag string
		to   *json.RawMessage
	}
	number struct { // from 1
		flag string
		to   *int64
	}
	took struct { // milliseconds of a duration
		flag string
		to   *int64
	}
)

// parse returns what sets the field, or the error of its text.
func (f field) parse(a *cli.App) (set func(), err error) {
	switch to := f.to.(type) {
	case *string:
		return func() { *to = f.text.Value }, nil
	case jsonFile:
		v, err := jsonFrom(a, to.flag, f.text)
		return func() { *to.to = v }, err
	case jsonFlag:
		v, err := jsonText(to.flag, f.text)
		return func() { *to.to = v }, err
	case number:
		n, ok := cli.ParseNumber(f.text.Value)
		if !ok || n < 1 {
			return nil, cli.UsageError(fmt.Sprintf("%s %q is not a number from 1", to.flag, f.text.Value), "leave it out for the next one")
		}
		return func() { *to.to = n }, nil
	case took:
		d, err := cli.ParseDuration(to.flag, f.text.Value)
		return func() { *to.to = d.Milliseconds() }, err
	}
	panic("a field of an unknown type")
}

// change fills row with what is stored under the id that the flags give, if
// anything, sets the fields whose flags are given, and stores it.
func change(ctx context.Context, a *cli.App, c *runFlags, t *times, row history.Row, fields ...field) error {
	var sets []func()
	for _, f := range fields {
		if !f.text.Set {
			continue
		}
		set, err := f.parse(a)
		if err != nil {
			return err
		}
		sets = append(sets, set)
	}
	return with(ctx, a, c.Thread, func(h *history.History) error {
		r, err := c.attach(h)
		if err != nil {
			return err
		}
		err = r.Update(ctx, func(tx *history.Tx, run *history.RunRow) error {
			if t.ID.Set {
				if _, err := tx.Get(row, t.ID.Value); err != nil {
					return err
				}
			}
			if s, ok := row.(*history.StepRow); ok && s.AgentName == "" {
				s.AgentName = run.EffectiveAgentName
			}
			for _, set := range sets {
				set()
			}
			if err := history.Belongs(row, r.ID(), t.ID.Value); err != nil {
				return err
			}
			return tx.Put(row)
		})
		if err != nil {
			return err
		}
		return put(a, t.JSON, row, history.IDOf(row))
	})
}

type runStepCmd struct {
	runFlags
	Type   cli.Text `placeholder:"TYPE" help:"What kind of step: model_call, or a word of your own (default step)."`
	Name   cli.Text `placeholder:"NAME" help:"Its name."`
	Seq    cli.Text `placeholder:"N" help:"Its number in the run; the next one without it."`
	Input  cli.Text `placeholder:"FILE" help:"What went in, as JSON; - for stdin. Of a model_call an object with request and runtime."`
	Output cli.Text `placeholder:"FILE" help:"What came out, as JSON. Of a model_call an object with response and runtime."`
	times
}

var runStepVerb = &cli.Verb{
	Name: "run step", Args: "[run]", Summary: "Record a step of a run and print its id",
	Exits:    "0 recorded\n1 there is no such run, or it has ended",
	Examples: `thread run step --thread ./inbox --type model_call --input request.json --output response.json "$R"`,
	Errors:   errorWords, Grammar: func() cli.Command { return new(runStepCmd) },
}

func (c *runStepCmd) Run(ctx context.Context, a *cli.App) error {
	s := history.StepRow{StepType: "step"}
	return change(ctx, a, &c.runFlags, &c.times, &s, field{number{"--seq", &s.Seq}, c.Seq}, field{&s.StepType, c.Type}, field{&s.Name, c.Name}, field{&s.Status, c.Status},
		field{jsonFile{"--input", &s.Input}, c.Input}, field{jsonFile{"--output", &s.Output}, c.Output})
}

type runToolCmd struct {
	runFlags
	Source   cli.Text `placeholder:"KIND" help:"Where the tool comes from: native, action, skill or tool (default tool)."`
	Name     cli.Text `placeholder:"NAME" help:"The tool."`
	Step     cli.Text `placeholder:"STEP" help:"The step that it belongs to."`
	Request  cli.Text `placeholder:"FILE" help:"What it was called with, as JSON; - for stdin."`
	Response cli.Text `placeholder:"FILE" help:"What it answered, as JSON."`
	Took     cli.Text `placeholder:"DURATION" help:"How long it took."`
	times
}

var runToolVerb = &cli.Verb{
	Name: "run tool", Args: "[run]", Summary: "Record a call of a tool and print its id",
	Exits:    "0 recorded\n1 there is no such run, or it has ended",
	Examples: `thread run tool --thread ./inbox --name shell --source native --request call.json --took 120ms "$R"`,
	Errors:   errorWords, Grammar: func() cli.Command { return new(runToolCmd) },
}

func (c *runToolCmd) Run(ctx context.Context, a *cli.App) error {
	var t history.ToolCallRow
	return change(ctx, a, &c.runFlags, &c.times, &t, field{&t.SourceType, c.Source}, field{&t.ToolName, c.Name}, field{&t.StepID, c.Step}, field{&t.Status, c.Status},
		field{jsonFile{"--request", &t.Request}, c.Request}, field{jsonFile{"--response", &t.Response}, c.Response}, field{took{"--took", &t.DurationMS}, c.Took})
}

type runHookCmd struct {
	runFlags
	Name         cli.Text `placeholder:"NAME" help:"The hook."`
	Event        cli.Text `placeholder:"NAME" help:"The event that it was run for."`
	Capabilities cli.Text `placeholder:"JSON" help:"What it may do."`
	Patch        cli.Text `placeholder:"FILE" help:"What it changed, as JSON; - for stdin."`
	Error        cli.Text `placeholder:"TEXT" help:"What went wrong."`
	times
}

var runHookVerb = &cli.Verb{
	Name: "run hook", Args: "[run]", Summary: "Record a run of a hook and print its id",
	Exits:    "0 recorded\n1 there is no such run, or it has ended",
	Examples: `thread run hook --thread ./inbox --name redact --event before_model_call --patch patch.json "$R"`,
	Errors:   errorWords, Grammar: func() cli.Command { return new(runHookCmd) },
}

func (c *runHookCmd) Run(ctx context.Context, a *cli.App) error {
	var r history.HookRunRow
	return change(ctx, a, &c.runFlags, &c.times, &r, field{&r.HookName, c.Name}, field{&r.EventName, c.Event}, field{&r.ErrorMessage, c.Error}, field{&r.Status, c.Status},
		field{jsonFlag{"--capabilities", &r.Capabilities}, c.Capabilities}, field{jsonFile{"--patch", &r.Patch}, c.Patch})
}

type runActionCmd struct {
	runFlags
	Name   cli.Text `placeholder:"NAME" help:"The action."`
	Caller cli.Text `placeholder:"KIND" help:"Who called it."`
	Input  cli.Text `placeholder:"FILE" help:"What went in, as JSON; - for stdin."`
	Output cli.Text `placeholder:"FILE" help:"What came out, as JSON."`
	times
}

var runActionVerb = &cli.Verb{
	Name: "run action", Args: "[run]", Summary: "Record a run of an action and print its id",
	Exits:    "0 recorded\n1 there is no such run, or it has ended",
	Examples: `thread run action --thread ./inbox --name deploy --caller user --input in.json "$R"`,
	Errors:   errorWords, Grammar: func() cli.Command { return new(runActionCmd) },
}

func (c *runActionCmd) Run(ctx context.Context, a *cli.App) error {
	var r history.ActionRunRow
	return change(ctx, a, &c.runFlags, &c.times, &r, field{&r.ActionName, c.Name}, field{&r.CallerType, c.Caller}, field{&r.Status, c.Status},
		field{jsonFile{"--input", &r.Input}, c.Input}, field{jsonFile{"--output", &r.Output}, c.Output})
}

type runArtifactCmd struct {
	runFlags
	ID       cli.Text `name:"id" placeholder:"ID" help:"Its id; a new one without it."`
	Type     cli.Text `placeholder:"TYPE" help:"What it is, as file or diff."`
	Path     cli.Text `placeholder:"PATH" help:"Where it is."`
	Content  cli.Text `name:"content-ref" placeholder:"REF" help:"Where its content is kept."`
	Metadata cli.Text `placeholder:"JSON" help:"More about it."`
	cli.JSONFlag
}

var runArtifactVerb = &cli.Verb{
	Name: "run artifact", Args: "[run]", Summary: "Record what a run has made and print its id",
	Exits:    "0 recorded\n1 there is no such run, or it has ended",
	Examples: `thread run artifact --thread ./inbox --type file --path report.md "$R"`,
	Errors:   errorWords, Grammar: func() cli.Command { return new(runArtifactCmd) },
}

func (c *runArtifactCmd) Run(ctx context.Context, a *cli.App) error {
	var r history.ArtifactRow
	return change(ctx, a, &c.runFlags, &times{ID: c.ID, JSONFlag: c.JSONFlag}, &r, field{&r.Type, c.Type}, field{&r.Path, c.Path}, field{&r.ContentRef, c.Content},
		field{jsonFlag{"--metadata", &r.Metadata}, c.Metadata})
}
