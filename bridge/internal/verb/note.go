package verb

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"

	"thread/bridge/trigger"
	"thread/internal/cli"
)

type noteCmd struct {
	cli.ThreadFlags
	Name       cli.Text `required:"" placeholder:"NAME" help:"The name of the trigger."`
	EventID    cli.Text `name:"event-id" placeholder:"ID" help:"The event; by default THREAD_EVENT_ID."`
	ModelCalls cli.Text `name:"model-calls" required:"" placeholder:"N" help:"Calls of models since the latest note."`
}

var noteVerb = &cli.Verb{
	Name:    "trigger note",
	Summary: "Report from a handler how often it called a model",
	Details: `The numbers are added up in the ledger's row of the message, whose event a handler
works on, and in the metric queue_model_calls_total.`,
	Examples: `thread trigger note --name orders --model-calls 3`,
	Grammar:  func() cli.Command { return new(noteCmd) },
}

func (c *noteCmd) Run(ctx context.Context, a *cli.App) error {
	calls, err := strconv.ParseInt(c.ModelCalls.Value, 10, 64)
	if err != nil || calls < 0 || calls > 1e9 {
		return cli.UsageError("--model-calls "+c.ModelCalls.Value+" is not a number of calls", "give a whole number from 0 to 1000000000")
	}
	text := c.EventID.Or(os.Getenv("THREAD_EVENT_ID"))
	id, err := strconv.ParseInt(text, 10, 64)
	if err != nil || id < 1 {
		return cli.UsageError(fmt.Sprintf("%q is not the id of an event", text), "give --event-id, or call it from a handler, which has THREAD_EVENT_ID")
	}
	t, err := a.Open(c.Thread.Value)
	if err != nil {
		return err
	}
	defer t.Close()
	err = trigger.NoteModelCalls(ctx, t, c.Name.Value, id, calls)
	if errors.Is(err, trigger.ErrNotHandled) {
		return cli.LogicError(err.Error(), "call it while a handler of that trigger works on the event; it needs settle: handled and the ledger")
	}
	return err
}
