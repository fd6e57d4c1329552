package core

import (
	"context"
	"errors"
	"time"

	"thread/engine"
	"thread/event"
	"thread/internal/cli"
)

type subscribeCmd struct {
	cli.ThreadFlags
	Consumer cli.Text `required:"" placeholder:"ID" help:"The consumer's name, any text up to 4096 bytes."`
	Handler  cli.Text `placeholder:"CMD" help:"The command, run by sh -c when a matching event is unread. Required without --replace."`
	Filter   cli.Text `placeholder:"WHERE" help:"Only events that match, for example \"type = 'message'\"; without it all."`
	Timeout  cli.Text `placeholder:"DURATION" help:"End the handler after this time, for example 90s or 10m; without it never."`
	Lane     cli.Text `placeholder:"NAME" help:"The lane in which thread serve runs the handler: main, cron, subagent or one of your own (default main)."`
	Session  cli.Text `hidden:""` // refused in words
	Parallel cli.Text `placeholder:"N" help:"How many deliveries thread consume has out at once in the handler, at most; 0 for one after the other."`
	Key      cli.Text `placeholder:"KEY" help:"With --parallel: events with the same source, type, subtype or JSON path such as $.chat.id stay in order."`
	Ack      cli.Text `placeholder:"on-success" help:"With on-success, a handler that exits 0 acks what it popped."`
	From     cli.Text `placeholder:"WHERE" help:"Where to begin: beginning, end, or the id of the last event that counts as processed. Without it after what was acked before."`
	Replace  bool     `help:"Change a subscription that exists, in what is given, and keep its position."`
	cli.JSONFlag
}

func subscribeVerb() *cli.Verb {
	return &cli.Verb{
		Name:    "subscribe",
		Summary: "Run a command when events arrive",
		Details: `The handler finds THREAD_DIR, THREAD_CONSUMER and THREAD_LAST_ACKED_ID in its
environment. It is expected to pop until nothing is left; it never runs twice at
the same time for one consumer. Progress is what it passes to pop, or with --ack
on-success also the last event it popped before it ended with 0. thread consume
does all of this for a command that handles one event or a batch.
--replace keeps what is not given; --filter "" takes the filter away.`,
		Examples: `thread subscribe --thread ./inbox --consumer worker --handler "./work.sh"
thread subscribe --thread ./inbox --consumer chat --handler "agent run admin" --filter "type = 'message' AND source <> 'self'"
thread subscribe --thread ./inbox --consumer worker --handler "thread consume -- ./worker" --from end
thread subscribe --thread ./inbox --consumer worker --replace --filter "type = 'order'"`,
		Grammar: func() cli.Command { return new(subscribeCmd) },
	}
}

func (c *subscribeCmd) Run(ctx context.Context, a *cli.App) error {
	// A flag that is missing comes before what the directory is (T-18).
	if c.Handler.Value == "" && (c.Handler.Set || !c.Replace) {
		return cli.UsageError("--handler is missing or empty", "give the command to run")
	}
	t, err := a.OpenFor(c.Thread.Value, c.Consumer.Value)
	if err != nil {
		return err
	}
	defer t.Close()
	change, err := c.change()
	if err != nil {
		return err
	}
	var from *place
	if c.From.Set {
		p, err := parsePlace("--from", c.From.Value, false)
		if err != nil {
			return err
		}
		from = &p
	}
	s := engine.Subscription{Consumer: c.Consumer.Value}
	change(&s)
	err = t.Update(ctx, func(tx *engine.Tx) error {
		err := engine.ErrNoSubscription
		if c.Replace {
			err = tx.Replace(s.Consumer, func(stored *engine.Subscription) {
				change(stored)
				s = *stored
			})
		}
		if errors.Is(err, engine.ErrNoSubscription) && c.Handler.Set {
			err = tx.Subscribe(s)
		}
		if err == nil && from != nil {
			_, err = from.seek(tx, s.Consumer)
		}
		return err
	})
	if err != nil {
		return err
	}
	startHandlers(ctx, a, t, "subscribe", s.Consumer)
	if !c.JSON {
		return a.Out.Text("Subscribed consumer '" + cli.Printable(s.Consumer) + "'\n")
	}
	return a.Out.JSON(struct {
		Consumer string  `json:"consumer_id"`
		Handler  string  `json:"handler_cmd"`
		Filter   *string `json:"filter"`
	}{s.Consumer, s.Handler, s.Filter})
}

// change returns what the flags change of a subscription.
func (c *subscribeCmd) change() (func(*engine.Subscription), error) {
	if c.Session.Set {
		return nil, cli.UsageError("--session is not supported: a consumer is one session, as handlers pop by a single last_acked_id", "subscribe a consumer with a --filter for each conversation, see docs/SERVE.md")
	}
	var timeout time.Duration
	if c.Timeout.Set {
		var err error
		if timeout, err = cli.ParseDuration("--timeout", c.Timeout.Value); err != nil {
			return nil, err
		}
	}
	if c.Ack.Set && c.Ack.Value != "on-success" {
		return nil, cli.UsageError("--ack \""+c.Ack.Value+"\" is not known", "use --ack on-success, or leave it out")
	}
	parallel, err := parseParallel(c.Parallel)
	if err != nil {
		return nil, err
	}
	if err := checkKey(c.Key.Value); err != nil {
		return nil, err
	}
	if c.Key.Value != "" && !c.Parallel.Set && !c.Replace {
		return nil, cli.UsageError("--key needs --parallel", "add --parallel N")
	}
	return func(s *engine.Subscription) {
		if c.Parallel.Set {
			s.Parallel = parallel
		}
		if c.Key.Set {
			s.Key = c.Key.Value
		}
		if c.Handler.Set {
			s.Handler = c.Handler.Value
		}
		if c.Filter.Set {
			s.Filter = event.Text(c.Filter.Value)
		}
		if c.Timeout.Set {
			s.Timeout = timeout
		}
		if c.Ack.Set {
			s.AckOnSuccess = true
		}
		if c.Lane.Set {
			s.Lane = c.Lane.Value
		}
		if s.Where() == "" {
			s.Filter = nil
		}
	}, nil
}
