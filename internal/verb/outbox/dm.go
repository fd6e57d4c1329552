package outbox

import (
	"context"
	"fmt"

	"thread/engine"
	"thread/internal/cli"
	"thread/outbox"
)

type dmCmd struct {
	cli.ThreadFlags
	From    cli.Text `required:"" placeholder:"WHO" help:"Who sends it: user:ID or agent:ID."`
	To      cli.Text `required:"" placeholder:"WHO" help:"Who receives it, whose thread this is: user:ID or agent:ID."`
	Content cli.Text `required:"" placeholder:"TEXT" help:"The message."`
	Format  cli.Text `placeholder:"FORMAT" help:"What the content is: text (the default), markdown or rich-json."`
	cli.JSONFlag
}

var dmVerb = &cli.Verb{
	Name:    "dm",
	Summary: "Send a direct message to a user or an agent",
	Details: `It becomes an event of type dm in the recipient's thread, with the format as
subtype and the sender as source, and starts the handlers that are subscribed to
it. Its conversation_id is the same from both sides. Printed is the event's id.`,
	Exits: "0 stored",
	Examples: `thread dm --thread ./agent-5 --from user:12 --to agent:5 --content "hello"
thread peek --thread ./agent-5 --last-event-id 0 --filter "type = 'dm'"`,
	Grammar: func() cli.Command { return new(dmCmd) },
}

func (c *dmCmd) Run(ctx context.Context, a *cli.App) error {
	from, err := outbox.ParseParty(c.From.Value)
	if err != nil {
		return cli.UsageError(fmt.Sprintf("--from %q is neither user:ID nor agent:ID", c.From.Value), "say for example user:12")
	}
	to, err := outbox.ParseParty(c.To.Value)
	if err != nil {
		return cli.UsageError(fmt.Sprintf("--to %q is neither user:ID nor agent:ID", c.To.Value), "say for example agent:5")
	}
	t, err := a.OpenEvents(c.Thread.Value)
	if err != nil {
		return err
	}
	defer t.Close()
	m := outbox.DirectMessage{From: from, To: to, Format: c.Format.Or("text"), Content: c.Content.Value}
	var id int64
	err = t.Update(ctx, func(tx *engine.Tx) error {
		e, err := outbox.SendDirect(tx, m)
		id = e.ID
		return err
	})
	if err != nil {
		return err
	}
	a.NotStarted("dm: the message is stored", cli.Wake(ctx, t, from.String()))
	if c.JSON {
		warnUnprinted(a, printJSON(a, struct {
			ID           int64  `json:"id"`
			Conversation string `json:"conversation_id"`
		}{id, outbox.Conversation(from, to)}))
		return nil
	}
	warnUnprinted(a, a.Out.Text(fmt.Sprintf("%d\n", id)))
	return nil
}
