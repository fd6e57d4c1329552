package core

import (
	"context"
	"fmt"

	"thread/engine"
	"thread/internal/cli"
	"thread/internal/terminal"
)

type initCmd struct {
	Path  cli.Text     `arg:"" help:"The directory; it is created with its parents when missing."`
	Lines cli.Text     `placeholder:"on|off" help:"off: keep no events.jsonl, which spares writes; see thread retain --help."`
	Help  cli.HelpFlag `short:"h" help:"Show this help."`
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
	off, err := linesOff(a, c.Lines)
	if err != nil {
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
		if off {
			if err := t.SetLines(ctx, false); err != nil {
				return err
			}
		}
	}
	text := "Initialized thread at " + terminal.Printable(a.Dir) + "\n"
	if off {
		text += linesOffText
	}
	return a.Out.Text(text)
}

// linesOff reads --lines of init and retain.
func linesOff(a *cli.App, flag cli.Text) (off bool, err error) {
	switch {
	case !flag.Set:
	case cli.IsURL(a.Dir):
		return false, cli.UsageError("--lines is for a directory: a thread in PostgreSQL has no events.jsonl", "leave --lines out")
	case flag.Value != "on" && flag.Value != "off":
		return false, cli.UsageError(fmt.Sprintf("--lines %q is neither on nor off", flag.Value), "give --lines on or --lines off")
	}
	return flag.Value == "off", nil
}

// linesOffText is what is lost with the lines.
const linesOffText = "Lines: off; grep finds no new events, and repair cannot take them from events.jsonl\n"
