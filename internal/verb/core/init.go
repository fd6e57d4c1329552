package core

import (
	"context"

	"thread/engine"
	"thread/internal/cli"
)

type initCmd struct {
	Path cli.Text     `arg:"" help:"The directory; it is created with its parents when missing."`
	Help cli.HelpFlag `short:"h" help:"Show this help."`
}

func initVerb() *cli.Verb {
	return &cli.Verb{
		Name: "init", Args: "<path>",
		Summary: "Make a directory a thread",
		Details: "What is already in the directory stays as it is, also an events.jsonl.",
		Examples: `thread init ./inbox
thread init ~/threads/build`,
		Grammar: func() cli.Command { return new(initCmd) },
	}
}

func (c *initCmd) Run(_ context.Context, a *cli.App) error {
	if err := a.SetDir("<path>", c.Path.Value); err != nil {
		return err
	}
	t, err := engine.Init(a.Dir)
	if err != nil {
		return err
	}
	defer t.Close()
	return a.Out.Text("Initialized thread at " + cli.Printable(a.Dir) + "\n")
}
