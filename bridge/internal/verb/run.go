package verb

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"thread/bridge/config"
	"thread/bridge/trigger"
	"thread/engine"
	"thread/event"
	"thread/internal/cli"
	"thread/internal/systemd"
)

type runCmd struct {
	cli.ThreadFlags
	configFlag
	DryRun      bool     `name:"dry-run" help:"Print the events that would be stored; store and acknowledge nothing."`
	Limit       cli.Text `placeholder:"N" help:"With --dry-run, end after N messages."`
	WaitConnect bool     `name:"wait-connect" help:"Wait for a broker that cannot be reached yet, in place of ending."`
	Listen      cli.Text `placeholder:"ADDRESS" help:"Answer GET /healthz, /status and /metrics there: unix:PATH or HOST:PORT."`
	logFlags
}

func runVerb() *cli.Verb {
	return &cli.Verb{
		Name:    "trigger run",
		Summary: "Store the messages of a queue as events",
		Details: `Runs until SIGTERM. Each message becomes one event, in the transaction that stores
where it came from; then the broker is told. With handler: in the file, a consumer
is subscribed that hands the events to it.`,
		Examples: `thread trigger run --thread ./inbox --config orders.yaml
thread trigger run --thread ./inbox --config orders.yaml --dry-run --limit 10`,
		Grammar: func() cli.Command { return new(runCmd) },
	}
}

func (c *runCmd) Run(ctx context.Context, a *cli.App) error {
	conf, err := c.load()
	if err != nil {
		return err
	}
	limit := 0
	if c.Limit.Set {
		if limit, err = strconv.Atoi(c.Limit.Value); err != nil || limit < 1 || !c.DryRun {
			return cli.UsageError("--limit "+c.Limit.Value+" is not for this", "give a whole number from 1, with --dry-run")
		}
	}
	log, err := c.logger(a)
	if err != nil {
		return err
	}
	t, err := a.Open(c.Thread.Value)
	if err != nil {
		return err
	}
	defer t.Close()
	for _, w := range conf.Warnings() {
		log.Warn(w)
	}
	ctx, stop := untilTold(ctx)
	defer stop()
	settings := conf.Settings()
	settings.Log = log
	if !c.DryRun {
		id, err := trigger.Identity(ctx, t)
		if err != nil {
			return err
		}
		settings.Instance = "thread-" + id
	}
	src, err := conf.Spec.Source(settings)
	if err != nil {
		return cli.UsageError(trigger.Redact(err.Error()), "correct adapter.connection in "+c.Config.Value)
	}
	if c.DryRun {
		return dryRun(ctx, a, t, conf, src, limit)
	}
	held, err := only(a, "trigger", conf.Name)
	if err != nil {
		return err
	}
	defer held.Close()
	if conf.Handler != "" {
		if err := subscribe(ctx, t, conf); err != nil {
			return err
		}
	}
	tr, err := trigger.New(t, src, conf.Config, trigger.Options{Log: log, OnStored: func(source string, subscribed bool) {
		if err := wake(t, source, subscribed); err != nil {
			log.Warn("handlers could not be started", "error", err)
		}
	}})
	if err != nil {
		return err
	}
	if err := c.start(ctx, tr); err != nil {
		return aboutConnect(err)
	}
	web, err := listen(a.Dir, conf.Name, c.Listen.Value, tr)
	if err != nil {
		return errors.Join(cli.LogicError(err.Error(), "give another --listen"), tr.Stop())
	}
	defer web.close()
	if err := systemd.Notify("READY=1"); err != nil {
		log.Warn("the service manager cannot be told", "error", err)
	}
	go systemd.FeedWatchdog(ctx, func() { tr.Health(ctx) })
	select {
	case <-ctx.Done():
	case <-tr.Ended():
	}
	stop()
	if err := tr.Stop(); err != nil && !errors.Is(err, trigger.ErrNotRunning) {
		return err
	}
	return nil
}

// start connects, again and again where that is asked for.
func (c *runCmd) start(ctx context.Context, tr *trigger.Trigger) error {
	wait := time.Second
	for {
		err := tr.Start(ctx)
		var ce *trigger.ConnectionError
		if err == nil || !c.WaitConnect || !errors.As(err, &ce) {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(wait):
		}
		wait = min(2*wait, 30*time.Second)
	}
}

// subscribe makes the consumer that runs the handler, or gives it the handler of the
// file.
func subscribe(ctx context.Context, t *engine.Thread, c *config.Trigger) error {
	handler := shellCommand("thread", "consume", "--content-only", "--max-attempts", strconv.Itoa(c.MaxRetries+1),
		"--backoff", c.Delay(1).String(), "--backoff-factor", strconv.FormatFloat(c.Multiplier, 'g', -1, 64), "--", "sh", "-c", c.Handler)
	return t.Update(ctx, func(tx *engine.Tx) error {
		err := tx.Replace(c.Consumer, func(s *engine.Subscription) { s.Handler = handler })
		if errors.Is(err, engine.ErrNoSubscription) {
			where := event.Text("source = '" + c.Adapter + ":" + c.Queue + "'")
			if c.Map["source"] != "" {
				where = nil
			}
			err = tx.Subscribe(engine.Subscription{Consumer: c.Consumer, Handler: handler, Filter: where})
		}
		return err
	})
}

// dryRun prints events as they would be stored, with id 0.
func dryRun(ctx context.Context, a *cli.App, t *engine.Thread, conf *config.Trigger, src trigger.Source, limit int) error {
	defer src.Close()
	if err := src.Connect(ctx, trigger.ReadOnly(trigger.StateOf(t, &conf.Config))); err != nil {
		return aboutConnect(&trigger.ConnectionError{Queue: conf.Queue, Err: err})
	}
	most := conf.MaxBatch
	for n := 0; limit == 0 || n < limit; {
		if limit > 0 {
			most = min(most, limit-n)
		}
		ms, err := src.Consume(ctx, most)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return cli.LogicError(trigger.Redact(err.Error()), "check the broker and retry")
		}
		for i := range ms {
			e, why := trigger.Preview(&conf.Config, &ms[i], time.Now())
			if why != nil {
				a.Warn("message %s goes to the dead letter queue: %v", ms[i].ID, why)
				continue
			}
			if err := a.Out.Event(e); err != nil {
				return err
			}
		}
		n += len(ms)
		if err := a.Out.Flush(); err != nil {
			return err
		}
	}
	return nil
}

type validateCmd struct {
	configFlag
	Connect bool         `help:"Connect to the broker, too."`
	Help    cli.HelpFlag `short:"h" help:"Show this help."`
	cli.JSONFlag
}

func validateVerb() *cli.Verb {
	return &cli.Verb{
		Name:    "trigger validate",
		Summary: "Check the file of a trigger",
		Details: `Prints what the file says, with *** for credentials. Everything that is wrong is
reported at once, each with its line.`,
		Examples: `thread trigger validate --config orders.yaml --connect`,
		Grammar:  func() cli.Command { return new(validateCmd) },
	}
}

func (c *validateCmd) Run(ctx context.Context, a *cli.App) error {
	conf, err := c.load()
	if err != nil {
		return err
	}
	if c.Connect {
		if err := tryConnect(ctx, conf); err != nil {
			return err
		}
	}
	warnings := conf.Warnings()
	if c.JSON {
		return printJSON(a, map[string]any{"valid": true, "connected": c.Connect, "warnings": append([]string{}, warnings...), "config": trigger.RedactValue(conf.Shown())})
	}
	for _, w := range warnings {
		a.Warn("%s", w)
	}
	return a.Out.Text(fmt.Sprintf("%s is valid: %s %s, group %s, settle %s, %s (%s)\n", c.Config.Value, conf.Adapter, conf.Queue, conf.Group,
		conf.Settle, conf.Spec.Caps.Promise, conf.Promise()))
}

// tryConnect connects and leaves again. Nothing is taken.
func tryConnect(ctx context.Context, conf *config.Trigger) error {
	src, err := conf.Spec.Source(conf.Settings())
	if err == nil {
		err = src.Connect(ctx, trigger.NoState)
	}
	if err != nil {
		return aboutConnect(&trigger.ConnectionError{Queue: conf.Queue, Err: err})
	}
	defer src.Close()
	if h := src.Health(ctx); !h.OK {
		return cli.LogicError("queue "+conf.Queue+" is not healthy: "+trigger.Redact(h.Detail), "check the broker")
	}
	return nil
}
