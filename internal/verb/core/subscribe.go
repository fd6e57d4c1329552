package core

import (
	"context"
	"errors"
	"fmt"
	"time"

	"thread/engine"
	"thread/event"
	"thread/internal/cli"
	"thread/internal/dispatch"
	"thread/internal/duration"
	"thread/internal/terminal"
)

type subscribeCmd struct {
	cli.ThreadFlags
	Consumer cli.Text `short:"c" required:"" placeholder:"CONSUMER" help:"The consumer's name, any text up to 4096 bytes."`
	Handler  cli.Text `placeholder:"CMD" help:"The command, run by sh -c when a matching event is unread. Required without --replace."`
	Filter   cli.Text `placeholder:"WHERE" help:"Only events that match, for example \"type = 'message'\"; without it all."`
	cli.SeriesFlags
	Timeout  cli.Text `placeholder:"DURATION" help:"End the handler after this time, for example 90s or 10m; without it never."`
	Lane     cli.Text `placeholder:"LANE" help:"The lane in which thread serve runs the handler: main, cron, subagent or one of your own (default main)."`
	Warn     cli.Text `name:"warn-after" placeholder:"DURATION" help:"How long the handler, or a delivery of thread consume --parallel, waits for its turn in the lane until thread serve warns (default 2s; 0 warns always)."`
	Pull     bool     `help:"Without a handler: nothing is started, and thread next takes the events."`
	Attempts cli.Text `name:"max-attempts" placeholder:"N" help:"With --pull: how many failures, or leases that ran out, make an event a dead letter (default 5)."`
	Session  cli.Text `hidden:""` // refused in words
	Parallel cli.Text `placeholder:"N" help:"How many deliveries thread consume has out at once in the handler, at most; 0 for one after the other."`
	Key      cli.Text `placeholder:"FIELD" help:"With --parallel: events with the same source, type, subtype or JSON path such as $.chat.id stay in order."`
	Ack      cli.Text `placeholder:"on-success" help:"With on-success, a handler that exits 0 acks what it popped."`
	From     cli.Text `placeholder:"POSITION" help:"Where to begin: beginning, end, or the id of the last event that counts as processed. Without it after what was acked before."`
	Replace  bool     `help:"Change a subscription that exists, in what is given, and keep its position."`
	cli.JSONFlag
	Command []string `arg:"" optional:"" name:"cmd" help:"With -- before it: short for --handler \"thread consume -- CMD ARGS\"."`
}

var subscribeVerb = &cli.Verb{
	Name:    "subscribe",
	Args:    "[-- CMD ARGS...]",
	Summary: "Run a command when events arrive",
	Details: `The handler finds THREAD_DIR, THREAD_CONSUMER and THREAD_LAST_ACKED_ID in its
environment. It should pop until no event is left. It never runs twice at the same time
for one consumer. Progress is the id that it passes to pop; with --ack on-success, a
handler that exits 0 also acks the last event it popped. thread consume does all of this
for a command that handles one event or a batch: -- CMD ARGS is short for that handler.
--replace keeps all settings that are not given, and prints the handler that it removes;
--filter "" removes the filter. --source, --type, --subtype and --filter form one
filter, and are replaced together.`,
	Exits: "0 subscribed, or with --replace changed\n1 the consumer exists, and there is no --replace; a handler for a consumer while a delivery of thread next is in flight",
	Examples: `thread subscribe --thread ./inbox --consumer worker --handler "./work.sh"
thread subscribe --thread ./inbox --consumer chat --handler "agent run admin" --filter "type = 'message' AND source <> 'self'"
thread subscribe --thread ./inbox --consumer worker --handler "thread consume -- ./worker" --from end
thread subscribe --thread ./inbox --consumer worker -- ./worker --quiet
thread subscribe --thread ./inbox --consumer nightly --pull
thread subscribe --thread ./inbox --consumer worker --replace --filter "type = 'order'"`,
	Grammar: func() cli.Command { return new(subscribeCmd) },
}

func (c *subscribeCmd) Run(ctx context.Context, a *cli.App) error {
	if err := c.consumed(); err != nil {
		return err
	}
	// A flag that is missing comes before what the directory is (T-18).
	if err := c.checkHandler(); err != nil {
		return err
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
	dropped := "" // the handler that --replace takes away
	err = t.Update(ctx, func(tx *engine.Tx) error {
		err := engine.ErrNoSubscription
		if c.Replace {
			err = tx.Replace(s.Consumer, func(stored *engine.Subscription) {
				before := *stored
				change(stored)
				s = *stored
				if dropped = ""; !before.Pull && before.Handler != s.Handler {
					dropped = before.Handler
				}
			})
		}
		if errors.Is(err, engine.ErrNoSubscription) && (c.Handler.Set || c.Pull) {
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
	if dropped != "" {
		a.Warn("consumer '%s' had the handler %s, which is not run any more", s.Consumer, dropped)
	}
	startHandlers(ctx, a, t, "subscribe", s.Consumer)
	if t.URL() != "" && !s.Pull {
		a.Warn("no push starts the handler of a thread in PostgreSQL: run thread serve --thread URL on the hosts that are to, or thread consume --consumer %s --follow -- CMD", cli.ShellWord(s.Consumer))
	}
	if !c.JSON {
		return a.Out.Text("Subscribed consumer '" + terminal.Printable(s.Consumer) + "'\n")
	}
	return a.Out.JSON(struct {
		Consumer string  `json:"consumer_id"`
		Handler  string  `json:"handler_cmd"`
		Filter   *string `json:"filter"`
	}{s.Consumer, s.Handler, s.Filter})
}

// consumed makes a handler of a command behind --.
func (c *subscribeCmd) consumed() error {
	switch {
	case len(c.Command) == 0:
		return nil
	case c.Command[0] == "":
		return cli.UsageError("the command behind -- is empty", "name a program, for example thread subscribe --consumer worker -- ./worker")
	case c.Handler.Set || c.Pull || c.Ack.Set:
		return cli.UsageError("a command behind -- goes without --handler, --pull and --ack", "give one of them: thread consume acks what CMD has processed")
	}
	if err := cli.CheckStoredCommand(c.Command); err != nil {
		return err
	}
	c.Handler = cli.Text{Value: "thread consume --", Set: true}
	for _, word := range c.Command {
		c.Handler.Value += " " + cli.ShellWord(word)
	}
	return nil
}

// checkHandler says what is wrong with the flags about who gets the events.
func (c *subscribeCmd) checkHandler() error {
	switch {
	case c.Pull && c.Handler.Set:
		return cli.UsageError("--pull and --handler exclude each other", "give one of them")
	case c.Pull && (c.Timeout.Set || c.Ack.Set || c.Lane.Set || c.Warn.Set || c.Parallel.Set || c.Key.Set):
		return cli.UsageError("--pull goes without --timeout, --ack, --lane, --warn-after, --parallel and --key", "leave them out: they are about a handler")
	case c.Attempts.Set && !c.Pull:
		return cli.UsageError("--max-attempts needs --pull", "in a handler, give it to thread consume")
	case c.Handler.Value == "" && !c.Pull && (c.Handler.Set || !c.Replace):
		return cli.UsageError("--handler is missing or empty", "give the command to run")
	}
	return nil
}

// change returns what the flags change of a subscription.
func (c *subscribeCmd) change() (func(*engine.Subscription), error) {
	if c.Session.Set {
		return nil, cli.UsageError("--session is not known: what belongs to one conversation is told by a key", "add --parallel N --key source, or --key '$.chat.id' for a member of the content, and thread consume as the handler, see docs/reference/consume.md")
	}
	var timeout time.Duration
	if c.Timeout.Set {
		var err error
		if timeout, err = cli.ParseDuration("--timeout", c.Timeout.Value); err != nil {
			return nil, err
		}
	}
	var warn *time.Duration // nil: the default
	if c.Warn.Value != "" {
		d, err := duration.Parse(c.Warn.Value)
		if err != nil {
			return nil, cli.UsageError(fmt.Sprintf("--warn-after %q is not a duration", c.Warn.Value), "give for example 500ms, 90s or 0")
		}
		warn = &d
	}
	if c.Ack.Set && c.Ack.Value != "on-success" {
		return nil, cli.UsageError("--ack \""+c.Ack.Value+"\" is not known", "use --ack on-success, or leave it out")
	}
	where, err := c.Where(c.Filter.Value)
	if err != nil {
		return nil, err
	}
	parallel, err := parseParallel(c.Parallel)
	if err != nil {
		return nil, err
	}
	if err := checkKey(c.Key.Value); err != nil {
		return nil, err
	}
	var attempts int64
	if c.Attempts.Set {
		if attempts, err = parseCount("--max-attempts", c.Attempts.Value); err != nil {
			return nil, err
		}
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
		if c.Pull && !s.Pull {
			*s = engine.Subscription{Consumer: s.Consumer, Filter: s.Filter, Paused: s.Paused, Pull: true, Handler: engine.PullHandler}
		}
		if c.Attempts.Set {
			s.MaxAttempts = attempts
		}
		if c.Handler.Set {
			s.Handler, s.Pull, s.MaxAttempts = c.Handler.Value, false, 0
		}
		if c.Filter.Set || c.Given() {
			s.Filter = event.Text(where)
		}
		if c.Timeout.Set {
			s.Timeout = timeout
		}
		if c.Warn.Set {
			s.WarnAfter = warn
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

type unsubscribeCmd struct {
	cli.ThreadFlags
	Consumer cli.Text `short:"c" required:"" placeholder:"CONSUMER" help:"The consumer, as subscribed."`
}

var unsubscribeVerb = &cli.Verb{
	Name:     "unsubscribe",
	Summary:  "Remove a subscription",
	Details:  "The consumer's progress is kept: when it subscribes again, it continues.",
	Exits:    "0 removed; the progress stays",
	Examples: `thread unsubscribe --thread ./inbox --consumer worker`,
	Grammar:  func() cli.Command { return new(unsubscribeCmd) },
}

func (c *unsubscribeCmd) Run(ctx context.Context, a *cli.App) error {
	t, err := a.OpenFor(c.Thread.Value, c.Consumer.Value)
	if err != nil {
		return err
	}
	defer t.Close()
	if err := t.Unsubscribe(ctx, c.Consumer.Value); err != nil {
		return err
	}
	dispatch.WakeServer(t)
	return a.Out.Text("Unsubscribed consumer '" + terminal.Printable(c.Consumer.Value) + "'\n")
}
