package core

import (
	"context"

	"thread/engine"
	"thread/internal/cli"
	"thread/internal/dispatch"
	"thread/internal/terminal"
)

type pauseCmd struct {
	cli.ThreadFlags
	Consumer cli.Text `short:"c" required:"" placeholder:"CONSUMER" help:"The consumer, as subscribed."`
	cli.JSONFlag
}

type resumeCmd pauseCmd

var pauseVerb = &cli.Verb{
	Name:    "pause",
	Summary: "Stop delivering a consumer's events",
	Details: `No handler is started, and consume ends with exit code 1, until thread resume.
A running handler may finish; one that waits in a lane of thread serve leaves it. pop and ack by hand work as before.`,
	Exits:    "0 paused, or was so",
	Examples: `thread pause --thread ./inbox --consumer worker`,
	Grammar:  func() cli.Command { return new(pauseCmd) },
}

var resumeVerb = &cli.Verb{
	Name:     "resume",
	Summary:  "End a pause and start the handler if there is work",
	Exits:    "0 resumed, or was not paused",
	Examples: `thread resume --thread ./inbox --consumer worker`,
	Grammar:  func() cli.Command { return new(resumeCmd) },
}

func (c *pauseCmd) Run(ctx context.Context, a *cli.App) error {
	return setPaused(ctx, a, c, (*engine.Thread).Pause, true)
}

func (c *resumeCmd) Run(ctx context.Context, a *cli.App) error {
	return setPaused(ctx, a, (*pauseCmd)(c), (*engine.Thread).Resume, false)
}

func setPaused(ctx context.Context, a *cli.App, c *pauseCmd, set func(*engine.Thread, context.Context, string) error, paused bool) error {
	id := c.Consumer.Value
	t, err := a.OpenFor(c.Thread.Value, id)
	if err != nil {
		return err
	}
	defer t.Close()
	if err := set(t, ctx, id); err != nil {
		return err
	}
	word := "Paused"
	if paused {
		dispatch.WakeServer(t)
	} else {
		word = "Resumed"
		startHandlers(ctx, a, t, "resume", id)
	}
	if c.JSON {
		return a.Out.JSON(struct {
			Consumer string `json:"consumer_id"`
			Paused   bool   `json:"paused"`
		}{id, paused})
	}
	return a.Out.Text(word + " consumer '" + terminal.Printable(id) + "'\n")
}

// startHandlers is what follows a change that gives a consumer work. A failure is
// a warning: the change is stored.
func startHandlers(ctx context.Context, a *cli.App, t *engine.Thread, verb, consumer string) {
	a.NotStarted(verb+": done", cli.Wake(ctx, t, consumer))
}
