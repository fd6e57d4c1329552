package history

import (
	"context"
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

// change fills row with what is stored under the id that the flags give, if
// anything, lets edit change it, and stores it.
func change(ctx context.Context, a *cli.App, c *runFlags, t *times, row history.Row, edit func(run *history.RunRow)) error {
	return with(ctx, a, c.Thread, func(h *history.History) error {
		r, err := c.attach(h)
		if err != nil {
			return err
		}
		id := ""
		err = r.Update(ctx, func(tx *history.Tx, run *history.RunRow) error {
			if t.ID.Set {
				if _, err := tx.Get(row, t.ID.Value); err != nil {
					return err
				}
			}
			edit(run)
			if err := history.Belongs(row, r.ID(), t.ID.Value); err != nil {
				return err
			}
			if err := tx.Put(row); err != nil {
				return err
			}
			id = history.IDOf(row)
			return nil
		})
		if err != nil {
			return err
		}
		return put(a, t.JSON, row, id)
	})
}

func set(v *string, t cli.Text) {
	if t.Set {
		*v = t.Value
	}
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

func runStepVerb() *cli.Verb {
	return &cli.Verb{
		Name: "run step", Args: "[run]", Summary: "Record a step of a run and print its id",
		Exits:    "0 recorded\n1 there is no such run, or it has ended",
		Examples: `thread run step --thread ./inbox --type model_call --input request.json --output response.json "$R"`,
		Errors:   errorWords, Grammar: func() cli.Command { return new(runStepCmd) },
	}
}

func (c *runStepCmd) Run(ctx context.Context, a *cli.App) error {
	seq := int64(0)
	if c.Seq.Set {
		n, ok := cli.ParseNumber(c.Seq.Value)
		if !ok || n < 1 {
			return cli.UsageError(fmt.Sprintf("--seq %q is not a number from 1", c.Seq.Value), "leave it out for the next one")
		}
		seq = n
	}
	input, err := jsonFrom(a, "--input", c.Input)
	if err != nil {
		return err
	}
	output, err := jsonFrom(a, "--output", c.Output)
	if err != nil {
		return err
	}
	s := history.StepRow{StepType: "step"}
	return change(ctx, a, &c.runFlags, &c.times, &s, func(run *history.RunRow) {
		if s.AgentName == "" {
			s.AgentName = run.EffectiveAgentName
		}
		set(&s.StepType, c.Type)
		set(&s.Name, c.Name)
		set(&s.Status, c.Status)
		if seq > 0 {
			s.Seq = seq
		}
		if c.Input.Set {
			s.Input = input
		}
		if c.Output.Set {
			s.Output = output
		}
	})
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

func runToolVerb() *cli.Verb {
	return &cli.Verb{
		Name: "run tool", Args: "[run]", Summary: "Record a call of a tool and print its id",
		Exits:    "0 recorded\n1 there is no such run, or it has ended",
		Examples: `thread run tool --thread ./inbox --name shell --source native --request call.json --took 120ms "$R"`,
		Errors:   errorWords, Grammar: func() cli.Command { return new(runToolCmd) },
	}
}

func (c *runToolCmd) Run(ctx context.Context, a *cli.App) error {
	request, err := jsonFrom(a, "--request", c.Request)
	if err != nil {
		return err
	}
	response, err := jsonFrom(a, "--response", c.Response)
	if err != nil {
		return err
	}
	var took int64
	if c.Took.Set {
		d, err := cli.ParseDuration("--took", c.Took.Value)
		if err != nil {
			return err
		}
		took = d.Milliseconds()
	}
	var t history.ToolCallRow
	return change(ctx, a, &c.runFlags, &c.times, &t, func(*history.RunRow) {
		set(&t.SourceType, c.Source)
		set(&t.ToolName, c.Name)
		set(&t.StepID, c.Step)
		set(&t.Status, c.Status)
		if c.Request.Set {
			t.Request = request
		}
		if c.Response.Set {
			t.Response = response
		}
		if c.Took.Set {
			t.DurationMS = took
		}
	})
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

func runHookVerb() *cli.Verb {
	return &cli.Verb{
		Name: "run hook", Args: "[run]", Summary: "Record a run of a hook and print its id",
		Exits:    "0 recorded\n1 there is no such run, or it has ended",
		Examples: `thread run hook --thread ./inbox --name redact --event before_model_call --patch patch.json "$R"`,
		Errors:   errorWords, Grammar: func() cli.Command { return new(runHookCmd) },
	}
}

func (c *runHookCmd) Run(ctx context.Context, a *cli.App) error {
	capabilities, err := jsonText("--capabilities", c.Capabilities)
	if err != nil {
		return err
	}
	patch, err := jsonFrom(a, "--patch", c.Patch)
	if err != nil {
		return err
	}
	var r history.HookRunRow
	return change(ctx, a, &c.runFlags, &c.times, &r, func(*history.RunRow) {
		set(&r.HookName, c.Name)
		set(&r.EventName, c.Event)
		set(&r.ErrorMessage, c.Error)
		set(&r.Status, c.Status)
		if c.Capabilities.Set {
			r.Capabilities = capabilities
		}
		if c.Patch.Set {
			r.Patch = patch
		}
	})
}

type runActionCmd struct {
	runFlags
	Name   cli.Text `placeholder:"NAME" help:"The action."`
	Caller cli.Text `placeholder:"KIND" help:"Who called it."`
	Input  cli.Text `placeholder:"FILE" help:"What went in, as JSON; - for stdin."`
	Output cli.Text `placeholder:"FILE" help:"What came out, as JSON."`
	times
}

func runActionVerb() *cli.Verb {
	return &cli.Verb{
		Name: "run action", Args: "[run]", Summary: "Record a run of an action and print its id",
		Exits:    "0 recorded\n1 there is no such run, or it has ended",
		Examples: `thread run action --thread ./inbox --name deploy --caller user --input in.json "$R"`,
		Errors:   errorWords, Grammar: func() cli.Command { return new(runActionCmd) },
	}
}

func (c *runActionCmd) Run(ctx context.Context, a *cli.App) error {
	input, err := jsonFrom(a, "--input", c.Input)
	if err != nil {
		return err
	}
	output, err := jsonFrom(a, "--output", c.Output)
	if err != nil {
		return err
	}
	var r history.ActionRunRow
	return change(ctx, a, &c.runFlags, &c.times, &r, func(*history.RunRow) {
		set(&r.ActionName, c.Name)
		set(&r.CallerType, c.Caller)
		set(&r.Status, c.Status)
		if c.Input.Set {
			r.Input = input
		}
		if c.Output.Set {
			r.Output = output
		}
	})
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

func runArtifactVerb() *cli.Verb {
	return &cli.Verb{
		Name: "run artifact", Args: "[run]", Summary: "Record what a run has made and print its id",
		Exits:    "0 recorded\n1 there is no such run, or it has ended",
		Examples: `thread run artifact --thread ./inbox --type file --path report.md "$R"`,
		Errors:   errorWords, Grammar: func() cli.Command { return new(runArtifactCmd) },
	}
}

func (c *runArtifactCmd) Run(ctx context.Context, a *cli.App) error {
	metadata, err := jsonText("--metadata", c.Metadata)
	if err != nil {
		return err
	}
	var r history.ArtifactRow
	t := times{ID: c.ID, JSONFlag: c.JSONFlag}
	return change(ctx, a, &c.runFlags, &t, &r, func(*history.RunRow) {
		set(&r.Type, c.Type)
		set(&r.Path, c.Path)
		set(&r.ContentRef, c.Content)
		if c.Metadata.Set {
			r.Metadata = metadata
		}
	})
}
