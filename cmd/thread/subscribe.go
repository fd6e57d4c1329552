package main

import (
	"context"
	"errors"
	"time"

	"thread/engine"
	"thread/event"
)

type subscribeCmd struct {
	threadFlags
	Consumer text `required:"" placeholder:"ID" help:"The consumer's name, any text up to 4096 bytes."`
	Handler  text `placeholder:"CMD" help:"The command, run by sh -c when a matching event is unread. Required without --replace."`
	Filter   text `placeholder:"WHERE" help:"Only events that match, for example \"type = 'message'\"; without it all."`
	Timeout  text `placeholder:"DURATION" help:"End the handler after this time, for example 90s or 10m; without it never."`
	Lane     text `placeholder:"NAME" help:"The lane in which thread serve runs the handler: main, cron, subagent or one of your own (default main)."`
	Session  text `hidden:""` // refused in words
	Ack      text `placeholder:"on-success" help:"With on-success, a handler that exits 0 acks what it popped."`
	From     text `placeholder:"WHERE" help:"Where to begin: beginning, end, or the id of the last event that counts as processed. Without it after what was acked before."`
	Replace  bool `help:"Change a subscription that exists, in what is given, and keep its position."`
	jsonFlag
}

func subscribeVerb() *verb {
	return &verb{
		name:    "subscribe",
		summary: "Run a command when events arrive",
		details: `The handler finds THREAD_DIR, THREAD_CONSUMER and THREAD_LAST_ACKED_ID in its
environment. It is expected to pop until nothing is left; it never runs twice at
the same time for one consumer. Progress is what it passes to pop, or with --ack
on-success also the last event it popped before it ended with 0. thread consume
does all of this for a command that handles one event or a batch.
--replace keeps what is not given; --filter "" takes the filter away.`,
		examples: `thread subscribe --thread ./inbox --consumer worker --handler "./work.sh"
thread subscribe --thread ./inbox --consumer chat --handler "agent run admin" --filter "type = 'message' AND source <> 'self'"
thread subscribe --thread ./inbox --consumer worker --handler "thread consume -- ./worker" --from end
thread subscribe --thread ./inbox --consumer worker --replace --filter "type = 'order'"`,
		grammar: func() command { return new(subscribeCmd) },
	}
}

func (c *subscribeCmd) run(ctx context.Context, a *app) error {
	// A flag that is missing comes before what the directory is (contract T-18).
	if c.Handler.value == "" && (c.Handler.set || !c.Replace) {
		return usage("--handler is missing or empty", "give the command to run")
	}
	t, err := a.openFor(c.Thread.value, c.Consumer.value)
	if err != nil {
		return err
	}
	defer t.Close()
	change, err := c.change()
	if err != nil {
		return err
	}
	var from *place
	if c.From.set {
		p, err := parsePlace("--from", c.From.value, false)
		if err != nil {
			return err
		}
		from = &p
	}
	s := engine.Subscription{Consumer: c.Consumer.value}
	change(&s)
	err = t.Update(ctx, func(tx *engine.Tx) error {
		err := engine.ErrNoSubscription
		if c.Replace {
			err = tx.Replace(s.Consumer, func(stored *engine.Subscription) {
				change(stored)
				s = *stored
			})
		}
		if errors.Is(err, engine.ErrNoSubscription) && c.Handler.set {
			err = tx.Subscribe(s)
		}
		if err == nil && from != nil {
			_, err = from.seek(tx, s.Consumer)
		}
		return err
	})
	if err != nil {
		return a.aboutConsumer(err, s.Consumer)
	}
	if c.Replace || from != nil {
		a.startHandlers(ctx, t, "subscribe", s.Consumer)
	}
	if !c.JSON {
		return a.out.text("Subscribed consumer '" + printable(s.Consumer) + "'\n")
	}
	b := event.AppendString([]byte(`{"consumer_id":`), s.Consumer)
	b = event.AppendString(append(b, `,"handler_cmd":`...), s.Handler)
	b = appendText(append(b, `,"filter":`...), s.Filter)
	return a.out.text(string(b) + "}\n")
}

// change returns what the flags change of a subscription.
func (c *subscribeCmd) change() (func(*engine.Subscription), error) {
	if c.Session.set {
		return nil, usage("--session is not supported: a consumer is one session, as handlers pop by a single last_acked_id", "subscribe a consumer with a --filter for each conversation, see docs/SERVE.md")
	}
	var timeout time.Duration
	if c.Timeout.set {
		var err error
		if timeout, err = parseDuration("--timeout", c.Timeout.value); err != nil {
			return nil, err
		}
	}
	if c.Ack.set && c.Ack.value != "on-success" {
		return nil, usage("--ack \""+c.Ack.value+"\" is not known", "use --ack on-success, or leave it out")
	}
	return func(s *engine.Subscription) {
		if c.Handler.set {
			s.Handler = c.Handler.value
		}
		if c.Filter.set {
			s.Filter = event.Text(c.Filter.value)
		}
		if c.Timeout.set {
			s.Timeout = timeout
		}
		if c.Ack.set {
			s.AckOnSuccess = true
		}
		if c.Lane.set {
			s.Lane = c.Lane.value
		}
		if s.Where() == "" {
			s.Filter = nil
		}
	}, nil
}

// appendText appends s as a JSON string, or null.
func appendText(b []byte, s *string) []byte {
	if s == nil {
		return append(b, "null"...)
	}
	return event.AppendString(b, *s)
}
