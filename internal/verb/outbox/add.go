package outbox

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"thread/engine"
	"thread/internal/cli"
	"thread/outbox"
)

type addCmd struct {
	cli.ThreadFlags
	Type    cli.Text `placeholder:"TYPE" help:"The event type of a message that names none."`
	Message cli.Text `required:"" placeholder:"FILE" help:"The message, a JSON object in this file, - for stdin; or the object itself."`
	Delay   cli.Text `placeholder:"DURATION" help:"Hand it on after this time at the earliest, for example 10m."`
	At      cli.Text `name:"available-at" placeholder:"TIME" help:"Hand it on at this time at the earliest: 18:00, tomorrow 09:00, 2026-01-31T09:00:00Z. Without a zone it is local time."`
	cli.JSONFlag
}

var addVerb = &cli.Verb{
	Name:    "outbox add",
	Summary: "Store a message in the outbox",
	Details: `Exit code 0 means that the message survives a loss of power and will be handed on
at least once. Printed is its event_id; the event_id of the first one, and the word
duplicate, when its event_id was ever stored or its dedupe key within the window.
Then a relay is started, as after any push. See docs/reference/outbox.md.`,
	Exits: "0 stored, and survives a loss of power, or was stored before",
	Examples: `thread outbox add --thread ./inbox --message reply.json
echo "$message" | thread outbox add --thread ./inbox --message - --json
thread outbox add --thread ./inbox --type thread.created --message '{"thread_id":101}'`,
	Grammar: func() cli.Command { return new(addCmd) },
}

func (c *addCmd) Run(ctx context.Context, a *cli.App) error {
	t, err := a.OpenEvents(c.Thread.Value)
	if err != nil {
		return err
	}
	defer t.Close()
	m, err := c.message(a)
	if err != nil {
		return err
	}
	m.Trace(os.Getenv(envTrace), os.Getenv(envRequest))
	var in outbox.Inserted
	err = t.Update(ctx, func(tx *engine.Tx) (err error) {
		in, err = outbox.Insert(tx, m)
		return err
	})
	if err != nil {
		return err
	}
	if !in.Duplicate {
		a.NotStarted("outbox add: the message is stored", cli.Wake(ctx, t, outbox.Source))
	}
	if c.JSON {
		warnUnprinted(a, printJSON(a, in))
		return nil
	}
	if in.Duplicate {
		warnUnprinted(a, a.Out.Text(in.EventID+"\tduplicate\n"))
		return nil
	}
	warnUnprinted(a, a.Out.Text(in.EventID+"\n"))
	return nil
}

// The trace context of a command, as thread run exec sets it.
const (
	envTrace   = "TRACEPARENT"
	envRequest = "THREAD_REQUEST_ID"
)

// message reads the message and when it is available.
func (c *addCmd) message(a *cli.App) (m outbox.Message, err error) {
	var text []byte
	switch from := c.Message.Value; {
	case from == "":
		return m, cli.UsageError("--message is empty", "name a file, or - for stdin")
	case strings.HasPrefix(strings.TrimSpace(from), "{"):
		text = []byte(from)
	case from == "-":
		text, err = io.ReadAll(io.LimitReader(a.Stdin, outbox.MaxMessageBytes+1))
	default:
		var f *os.File
		if f, err = os.Open(from); err == nil {
			defer f.Close()
			text, err = io.ReadAll(io.LimitReader(f, outbox.MaxMessageBytes+1))
		}
	}
	if err != nil {
		return m, cli.UsageError("--message cannot be read: "+err.Error(), "name a file with a JSON object, or - for stdin")
	}
	if m, err = outbox.ReadMessage(text); err != nil {
		return m, err
	}
	switch {
	case c.Type.Set && m.EventType != "" && m.EventType != c.Type.Value:
		return m, cli.UsageError(fmt.Sprintf("--type is %q, and the message has the event_type %q", c.Type.Value, m.EventType), "leave one of them out")
	case c.Type.Set:
		m.EventType = c.Type.Value
	}
	switch {
	case c.Delay.Set && c.At.Set:
		return m, cli.UsageError("--delay and --available-at exclude each other", "give one of them")
	case c.Delay.Set:
		delay, err := cli.ParseDuration("--delay", c.Delay.Value)
		if err != nil {
			return m, err
		}
		m.AvailableAt = time.Now().Add(delay)
	case c.At.Set:
		if m.AvailableAt, err = cli.ParseTime("--available-at", c.At.Value, time.Now(), cli.Future); err != nil {
			return m, err
		}
	}
	return m, nil
}
