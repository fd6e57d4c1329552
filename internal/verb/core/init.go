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

var initVerb = &cli.Verb{
	Name: "init", Args: "<path>",
	Summary: "Make a directory a thread",
	Details: "What is already in the directory stays as it is, also an events.jsonl.",
	Exits:   "0 the directory is a thread now\n1 it is one already, or cannot be written",
	Examples: `thread init ./inbox
thread init ~/threads/build`,
	Grammar: func() cli.Command { return new(initCmd) },
}

// NamesThread is for package cli.
func (c *initCmd) NamesThread() string { return c.Path.Value }

func (c *initCmd) Run(ctx context.Context, a *cli.App) error {
	if err := a.SetDir("<path>", c.Path.Value); err != nil {
		return err
	}
	if cli.IsURL(a.Dir) {
		if err := a.RefuseHistory(); err != nil {
			return err
		}
		if err := a.InitURL(ctx); err != nil {
			return err
		}
	} else if t, err := engine.Init(a.Dir); err != nil {
		return err
	} else {
		defer t.Close()
	}
	return a.Out.Text("Initialized thread at " + cli.Printable(a.Dir) + "\n")
}
