package history

import (
	"context"

	"thread/history"
	"thread/internal/cli"
)

type runToolsCmd struct {
	cli.ThreadFlags
	RunID  cli.Text `name:"run" placeholder:"RUN" help:"Only this run's, oldest first."`
	Name   cli.Text `placeholder:"NAME" help:"Only calls of this tool."`
	Source cli.Text `placeholder:"KIND" help:"Only native, action, skill or tool."`
	Status cli.Text `placeholder:"STATUS" help:"Only those with this status."`
	Oldest bool     `help:"Oldest first."`
	Limit  cli.Text `placeholder:"N" help:"At most N."`
	cli.JSONFlag
}

var runToolsVerb = &cli.Verb{
	Name: "run tools", Summary: "List calls of tools, newest first",
	Exits:    "0 listed, perhaps none",
	Examples: `thread run tools --thread ./inbox --name shell --source native --limit 10`,
	Errors:   errorWords, Grammar: func() cli.Command { return new(runToolsCmd) },
}

func (c *runToolsCmd) Run(ctx context.Context, a *cli.App) error {
	limit, err := limitOf(c.Limit)
	if err != nil {
		return err
	}
	q := history.Query{Run: c.RunID.Value, Tool: c.Name.Value, Source: c.Source.Value, Status: c.Status.Value, Oldest: c.Oldest, Limit: limit}
	return with(ctx, a, c.Thread, func(h *history.History) error {
		for t, err := range h.ToolCalls(ctx, q) {
			if err == nil {
				err = put(a, c.JSON, &t, line(t.ID, toolLine(&t), labelled("run", t.RunID)))
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
}
