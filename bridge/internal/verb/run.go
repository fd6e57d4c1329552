package verb

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
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
	limit, err := limitOf(c.Limit, c.DryRun)
	if err != nil {
		return err
	}
	log, err := c.logger(a)
	if err != nil {
		return err
	}
	t, err := a.Open(c.Thread.Value, engine.WithKeepOpen())
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
	ready := func() {
		if err := systemd.Notify("READY=1"); err != nil {
			log.Warn("the service manager cannot be told", "error", err)
		}
		go systemd.FeedWatchdog(ctx, func() { tr.Health(ctx) })
	}
	if c.WaitConnect {
		ready() // a broker may be away for days, a service manager waits for minutes
	}
	if err := waitConnect(ctx, c.WaitConnect, log, func() error { return tr.Start(ctx) }); err != nil {
		return aboutConnect(err, true)
	}
	if ctx.Err() != nil {
		if err := tr.Stop(); !errors.Is(err, trigger.ErrNotRunning) {
			return err
		}
		return nil
	}
	web, err := listen(a.Dir, conf.Name, c.Listen.Value, tr)
	if err != nil {
		return errors.Join(cli.LogicError(err.Error(), "give another --listen"), tr.Stop())
	}
	defer web.close()
	if !c.WaitConnect {
		ready()
	}
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

// limitOf reads --limit, which is for --dry-run; 0 when it is not given.
func limitOf(limit cli.Text, dryRun bool) (int, error) {
	if !limit.Set {
		return 0, nil
	}
	n, err := strconv.Atoi(limit.Value)
	if err != nil || n < 1 || !dryRun {
		return 0, cli.UsageError("--limit "+limit.Value+" is not for this", "give a whole number from 1, with --dry-run")
	}
	return n, nil
}

// waitConnect calls fn again, with growing waits, while it cannot connect and that
// is asked for. It returns nil when ctx ends meanwhile.
func waitConnect(ctx context.Context, asked bool, log *slog.Logger, fn func() error) error {
	wait := time.Second
	for {
		err := fn()
		var ce *trigger.ConnectionError
		if err == nil || !asked || !errors.As(err, &ce) {
			return err
		}
		log.Warn("not connected, tried again", "error", err, "wait", wait)
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(wait):
		}
		wait = min(2*wait, 30*time.Second)
	}
}

// subscribe makes the consumer that runs the handler, or gives it the handler of the
// file.
func subscribe(ctx context.Context, t *engine.Thread, c *config.Trigger) error {
	words := []string{"thread", "consume", "--content-only", "--max-attempts", strconv.Itoa(c.MaxRetries + 1),
		"--backoff", c.Delay(1).String(), "--backoff-factor", strconv.FormatFloat(c.Multiplier, 'g', -1, 64)}
	if n, key := c.Parallel(); n > 1 {
		if words = append(words, "--parallel", strconv.Itoa(n)); key != "" {
			words = append(words, "--key", key)
		}
	}
	handler := shellCommand(append(words, "--", "sh", "-c", c.Handler)...)
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
		return aboutConnect(&trigger.ConnectionError{Queue: conf.Queue, Err: err}, false)
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
	warnings := conf.Warnings()
	if c.Connect {
		found, err := tryConnect(ctx, conf)
		if err != nil {
			return err
		}
		warnings = append(warnings, found...)
	}
	if c.JSON {
		return printJSON(a, map[string]any{"valid": true, "connected": c.Connect, "warnings": append([]string{}, warnings...), "config": trigger.RedactValue(conf.Shown())})
	}
	for _, w := range warnings {
		a.Warn("%s", w)
	}
	return a.Out.Text(fmt.Sprintf("%s is valid: %s %s, group %s, settle %s, %s (%s)\n", c.Config.Value, conf.Adapter, conf.Queue, conf.Group,
		conf.Settle, conf.Spec.Caps.Promise, conf.Promise()))
}

// tryConnect connects and leaves again, and returns what the source warns of.
// Nothing is taken.
func tryConnect(ctx context.Context, conf *config.Trigger) (warnings []string, err error) {
	src, err := conf.Spec.Source(conf.Settings())
	if err == nil {
		err = src.Connect(ctx, trigger.NoState)
	}
	if err != nil {
		return nil, aboutConnect(&trigger.ConnectionError{Queue: conf.Queue, Err: err}, false)
	}
	defer src.Close()
	if h := src.Health(ctx); !h.OK {
		return nil, cli.LogicError("queue "+conf.Queue+" is not healthy: "+trigger.Redact(h.Detail), "check the broker")
	}
	if w, ok := src.(trigger.Warner); ok {
		warnings = w.Warnings(ctx)
	}
	return warnings, nil
}
