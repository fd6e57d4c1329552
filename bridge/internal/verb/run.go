package verb

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"time"

	"thread/bridge/config"
	"thread/bridge/trigger"
	"thread/engine"
	"thread/event"
	"thread/internal/cli"
	"thread/internal/dispatch"
	"thread/internal/spans"
	"thread/internal/systemd"
	"thread/internal/verb/tracing"
)

type runCmd struct {
	cli.ThreadFlags
	configFlag
	DryRun      bool     `name:"dry-run" help:"Print the events that would be stored; store and acknowledge nothing."`
	Limit       cli.Text `placeholder:"N" help:"With --dry-run, end after N messages."`
	WaitConnect bool     `name:"wait-connect" help:"Wait for a broker that cannot be reached yet, in place of ending."`
	Listen      cli.Text `placeholder:"ADDRESS" help:"Answer GET /healthz, /status and, unless metrics.enabled is false, /metrics there: unix:PATH or HOST:PORT."`
	tracing.Flag
	logFlags
}

var runVerb = &cli.Verb{
	Name:    "trigger run",
	Summary: "Store the messages of a queue as events",
	Details: `Runs until SIGTERM. Each message becomes one event, in the transaction that stores
where it came from; then the broker is told. With handler: in the file, a consumer
is subscribed that hands the events to it.`,
	Examples: `thread trigger run --thread ./inbox --config orders.yaml
thread trigger run --thread ./inbox --config orders.yaml --dry-run --limit 10`,
	Grammar: func() cli.Command { return new(runCmd) },
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
	held, err := only(ctx, t, "trigger", conf.Name, log)
	if err != nil {
		return err
	}
	defer held.close()
	ctx, end := held.while(ctx)
	defer end()
	sink, err := c.Open(a.Dir)
	if err != nil {
		return err
	}
	defer func() {
		if err := sink.Close(); err != nil {
			log.Warn(err.Error())
		}
	}()
	if conf.Handler != "" {
		if err := subscribe(ctx, t, conf, c.OTLP.Value); err != nil {
			return err
		}
	}
	tr, err := trigger.New(t, src, conf.Config, trigger.Options{Log: log, Trace: traceTo(sink, conf), Tree: held.tree, OnStored: func(source string, subscribed bool) {
		if err := wake(t, source, subscribed); err != nil {
			log.Warn("handlers could not be started", "error", err)
		}
	}, Stuck: func(ctx context.Context, consumer string, id int64) (string, error) {
		return stuck(ctx, t, consumer, id)
	}, Alive: func(ctx context.Context, consumer string) (bool, error) {
		pull, err := pulls(ctx, t, consumer)
		if pull || err != nil {
			return pull, err
		}
		return t.Feeding(consumer)
	}})
	if err != nil {
		return err
	}
	web, about := new(web), aboutTrigger(tr, conf.MetricsEnabled)
	web.own(t.Dir(), "trigger", conf.Name, about, log)
	defer web.close()
	if err := web.at(c.Listen.Value, about); err != nil {
		return cli.LogicError(err.Error(), "give another --listen; nothing was taken")
	}
	ready := func() {
		if err := systemd.Notify("READY=1"); err != nil {
			log.Warn("the service manager cannot be told", "error", err)
		}
		go systemd.FeedWatchdog(ctx, func() { untilAlive(ctx, time.Second, tr.Beat) })
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
		return held.err()
	}
	if !c.WaitConnect {
		ready()
	}
	select {
	case <-ctx.Done():
	case <-tr.Ended():
	}
	stop()
	err = tr.Stop()
	if lost := held.err(); lost != nil {
		return lost
	}
	if errors.Is(err, trigger.ErrNotRunning) {
		return nil
	}
	return err
}

// traceTo returns what passes a span for each stored message to sink: a child of the producer's
// span, and the parent of what becomes of the event. It is nil without a sink.
func traceTo(sink *spans.Sink, conf *config.Trigger) func(*trigger.Message, string) (string, func(int64)) {
	if sink == nil {
		return nil
	}
	return func(m *trigger.Message, traceparent string) (string, func(int64)) {
		parent, ok := spans.Parse(traceparent)
		begun := time.Now()
		key := []string{"message", conf.Adapter, conf.Queue, m.ID, begun.String()}
		if !ok {
			parent = spans.Context{Trace: spans.TraceID(key...)}
		}
		s := spans.Span{Context: parent.Child(spans.ID(key...)), Parent: parent.ID, Name: "process " + conf.Queue, Kind: spans.Consumer, Start: begun,
			Attributes: map[string]any{"messaging.system": conf.Adapter, "messaging.destination.name": conf.Queue, "messaging.operation.type": "process",
				"messaging.operation.name": "store", "messaging.message.id": m.ID, "messaging.consumer.group.name": conf.Group}}
		return s.Traceparent(), func(event int64) {
			s.End = time.Now()
			s.Attributes["thread.event.id"] = event
			sink.Send(s)
		}
	}
}

// stuck says why no process works on an event of a consumer, "" when one does or will.
// A consumer without a handler waits for its worker without a process.
func stuck(ctx context.Context, t *engine.Thread, consumer string, id int64) (string, error) {
	pull, err := pulls(ctx, t, consumer)
	if pull || err != nil {
		return "", err
	}
	a, err := dispatch.Why(ctx, t, consumer, id)
	switch a.Place {
	case dispatch.PlaceRunning, dispatch.PlaceRetrying, dispatch.PlaceAcked, dispatch.PlaceUnmatched, dispatch.PlaceNowhere:
		return "", err
	}
	return a.Text, err
}

// pulls reports whether a consumer has no handler: its worker takes deliveries with a
// lease.
func pulls(ctx context.Context, t *engine.Thread, consumer string) (bool, error) {
	info, err := t.Info(ctx)
	if err != nil {
		return false, err
	}
	for i := range info.Subscriptions {
		if s := &info.Subscriptions[i]; s.Consumer == consumer {
			return s.Pull, nil
		}
	}
	return false, nil
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

// subscribe subscribes the consumer that runs the handler, or gives the trigger's own
// consumer the handler of the file. otlp is the endpoint of traces, "" for none.
func subscribe(ctx context.Context, t *engine.Thread, c *config.Trigger, otlp string) error {
	words := []string{"thread", "consume", "--content-only", "--max-attempts", strconv.Itoa(c.MaxRetries + 1),
		"--backoff", c.Delay(1).String(), "--backoff-factor", strconv.FormatFloat(c.Multiplier, 'g', -1, 64)}
	if n, key := c.Parallel(); n > 1 {
		if words = append(words, "--parallel", strconv.Itoa(n)); key != "" {
			words = append(words, "--key", key)
		}
	}
	if otlp != "" {
		words = append(words, "--otlp", otlp)
	}
	handler := shellCommand(append(words, "--", "sh", "-c", c.Handler)...)
	s := engine.Subscription{Consumer: c.Consumer, Handler: handler}
	if c.Map["source"] == "" {
		s.Filter = event.Text("source = '" + strings.ReplaceAll(c.Adapter+":"+c.Queue, "'", "''") + "'")
	}
	err := trigger.SubscribeHandler(ctx, t, c.Name, s)
	if errors.Is(err, trigger.ErrForeignConsumer) {
		return cli.LogicError(err.Error(), "name another one with consumer: in the file, or leave out handler: and keep what it runs; nothing was changed")
	}
	return err
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

var validateVerb = &cli.Verb{
	Name:    "trigger validate",
	Summary: "Check the file of a trigger",
	Details: `Prints what the file says, with *** for credentials. Everything that is wrong is
reported at once, each with its line.`,
	Examples: `thread trigger validate --config orders.yaml --connect`,
	Grammar:  func() cli.Command { return new(validateCmd) },
}

func (c *validateCmd) Run(ctx context.Context, a *cli.App) error {
	conf, err := c.load()
	if err != nil {
		return err
	}
	if err = aboutConfig(conf.CheckGovernance()); err != nil {
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
	if err != nil {
		return nil, aboutConnect(&trigger.ConnectionError{Queue: conf.Queue, Err: err}, false)
	}
	if err = src.Connect(ctx, trigger.NoState); err != nil {
		return nil, aboutConnect(&trigger.ConnectionError{Queue: conf.Queue, Err: err}, false)
	}
	defer src.Close()
	if h := src.Health(ctx); !h.OK {
		return nil, cli.LogicError("queue "+conf.Queue+" is not healthy: "+trigger.Redact(h.Detail), "check the broker")
	}
	if w, ok := src.(trigger.Warner); ok {
		warnings = w.Warnings(ctx)
	}
	p, ok := src.(trigger.Prober)
	if !ok {
		return warnings, nil
	}
	warning, err := p.ProbeDLQ(ctx)
	if err != nil {
		return nil, cli.LogicError("the dead letter queue takes no messages: "+trigger.Redact(err.Error()), "make it, or name another one with dlq_name; messages that cannot be parsed go there whatever the policy")
	}
	if warning != "" {
		warnings = append(warnings, warning)
	}
	return warnings, nil
}
