package main

import (
	"context"

	"thread/engine"
)

type initCmd struct {
	Path text     `arg:"" help:"The directory; it is created with its parents when missing."`
	Help helpFlag `short:"h" help:"Show this help."`
}

func initVerb() *verb {
	return &verb{
		name: "init", args: "<path>",
		summary: "Make a directory a thread",
		details: "What is already in the directory stays as it is, also an events.jsonl.",
		examples: `thread init ./inbox
thread init ~/threads/build`,
		grammar: func() command { return new(initCmd) },
	}
}

func (c *initCmd) run(_ context.Context, a *app) error {
	if err := a.setDir("<path>", c.Path.value); err != nil {
		return err
	}
	t, err := engine.Init(a.dir)
	if err != nil {
		return err
	}
	defer t.Close()
	return a.out.text("Initialized thread at " + printable(a.dir) + "\n")
}
