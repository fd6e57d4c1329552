package main

import (
	"context"

	"thread/engine"
	"thread/event"
)

type pauseCmd struct {
	threadFlags
	Consumer text `required:"" placeholder:"ID" help:"The consumer, as subscribed."`
	jsonFlag
}

type resumeCmd pauseCmd

func pauseVerb() *verb {
	return &verb{
		name:    "pause",
		summary: "Stop giving a consumer's events out",
		details: `No handler is started, and consume ends with exit code 1, until thread resume.
A handler that runs may finish. pop and ack by hand work as ever.`,
		examples: `thread pause --thread ./inbox --consumer worker`,
		grammar:  func() command { return new(pauseCmd) },
	}
}

func resumeVerb() *verb {
	return &verb{
		name:     "resume",
		summary:  "End a pause and start the handler if there is work",
		examples: `thread resume --thread ./inbox --consumer worker`,
		grammar:  func() command { return new(resumeCmd) },
	}
}

func (c *pauseCmd) run(ctx context.Context, a *app) error {
	return a.setPaused(ctx, c, (*engine.Thread).Pause, true)
}

func (c *resumeCmd) run(ctx context.Context, a *app) error {
	return a.setPaused(ctx, (*pauseCmd)(c), (*engine.Thread).Resume, false)
}

func (a *app) setPaused(ctx context.Context, c *pauseCmd, set func(*engine.Thread, context.Context, string) error, paused bool) error {
	id := c.Consumer.value
	t, err := a.openFor(c.Thread.value, id)
	if err != nil {
		return err
	}
	defer t.Close()
	if err := set(t, ctx, id); err != nil {
		return a.aboutConsumer(err, id)
	}
	word, json := "Paused", `,"paused":true}`
	if !paused {
		word, json = "Resumed", `,"paused":false}`
		a.startHandlers(ctx, t, "resume", id)
	}
	if c.JSON {
		return a.out.text(`{"consumer_id":` + jsonText(id) + json + "\n")
	}
	return a.out.text(word + " consumer '" + printable(id) + "'\n")
}

// startHandlers is what follows a change that gives a consumer work. A failure is
// a warning: the change is stored.
func (a *app) startHandlers(ctx context.Context, t *engine.Thread, verb, consumer string) {
	if err := wake(ctx, t, consumer); err != nil {
		a.logWarning("%s: done, but no handler could be started: %v; run thread dispatch --thread %s", verb, err, a.dir)
	}
}

func jsonText(s string) string { return string(event.AppendString(nil, s)) }
