package verb

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"io"
	"log/slog"
	"strings"

	"thread/bridge/adapter"
	"thread/bridge/trigger"
	"thread/internal/cli"
)

type sendCmd struct {
	cli.ThreadFlags
	configFlag
	Body    cli.Text `placeholder:"TEXT" help:"The body; by default what is on stdin."`
	ID      cli.Text `name:"id" placeholder:"ID" help:"The message id (header x-message-id); by default a new one."`
	Key     cli.Text `placeholder:"KEY" help:"The key of the message."`
	Headers []string `name:"header" placeholder:"NAME=VALUE" sep:"none" help:"A header; may be given more than once."`
	cli.JSONFlag
}

var sendVerb = &cli.Verb{
	Name:    "trigger send",
	Summary: "Send one message to the queue of a trigger",
	Details: `With adapter mock the message is stored in this process, and the row of the ledger
is printed; with any other it is published to the queue, and its id is printed.`,
	Examples: `thread trigger send --thread ./inbox --config mock.yaml --body '{"order":7}' --header x-event-name=order`,
	Grammar:  func() cli.Command { return new(sendCmd) },
}

func (c *sendCmd) sent(a *cli.App, id string) error {
	if c.JSON {
		return printJSON(a, map[string]string{"message_id": id})
	}
	return a.Out.Text(id + "\n")
}

func (c *sendCmd) Run(ctx context.Context, a *cli.App) error {
	conf, err := c.load()
	if err != nil {
		return err
	}
	m := trigger.Message{ID: c.ID.Value, Key: c.Key.Value, Headers: map[string]string{}}
	for _, h := range c.Headers {
		name, value, ok := strings.Cut(h, "=")
		if !ok || name == "" {
			return cli.UsageError("--header "+h+" is not NAME=VALUE", "give for example --header x-event-name=order")
		}
		m.Headers[name] = value
	}
	if m.ID == "" {
		b := make([]byte, 8)
		rand.Read(b)
		m.ID = hex.EncodeToString(b)
	}
	m.Headers[trigger.HeaderMessageID] = m.ID
	m.Body = []byte(c.Body.Value)
	if !c.Body.Set {
		if m.Body, err = io.ReadAll(a.Stdin); err != nil {
			return err
		}
	}
	t, err := a.Open(c.Thread.Value)
	if err != nil {
		return err
	}
	defer t.Close()
	ctx, stop := untilTold(ctx)
	defer stop()
	if dir := conf.Settings().Text("dir"); conf.Adapter == "mock" && dir != "" {
		if err := adapter.Spool(dir, &m, nil); err != nil {
			return err
		}
		return c.sent(a, m.ID)
	}
	if conf.Adapter != "mock" {
		if conf.Spec.Sink == nil {
			return cli.LogicError("adapter "+conf.Adapter+" cannot send yet", "send with the broker's own tools")
		}
		sink, err := conf.Spec.Sink(conf.Settings())
		if err != nil {
			return err
		}
		defer sink.Close()
		sender, ok := sink.(trigger.Sender)
		if !ok {
			return cli.LogicError("adapter "+conf.Adapter+" cannot send yet", "send with the broker's own tools")
		}
		if _, err := sender.Send(ctx, m); err != nil {
			return aboutConnect(&trigger.ConnectionError{Queue: conf.Queue, Err: err}, false)
		}
		return c.sent(a, m.ID)
	}
	held, err := only(ctx, t, "trigger", conf.Name, slog.New(slog.DiscardHandler))
	if err != nil {
		return err
	}
	defer held.close()
	if conf.Handler != "" {
		if err := subscribe(ctx, t, conf, ""); err != nil {
			return err
		}
	}
	row, err := trigger.SendMock(ctx, t, conf.Config, m, func(source string, subscribed bool) {
		a.NotStarted("the event is stored", wake(t, source, subscribed))
	})
	if err != nil {
		if errors.Is(err, context.Canceled) {
			return cli.LogicError("the message is stored, and its handler had not ended yet", "see thread trigger ledger")
		}
		return err
	}
	return printJSON(a, row)
}
