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
	"thread/internal/spans"
	"thread/internal/systemd"
	"thread/internal/verb/tracing"
)

type publishRunCmd struct {
	cli.ThreadFlags
	configFlag
	DryRun      bool     `name:"dry-run" help:"Print the messages that would be published, from the publisher's place to the last event; publish and store nothing."`
	Limit       cli.Text `placeholder:"N" help:"With --dry-run, print at most N messages."`
	WaitConnect bool     `name:"wait-connect" help:"Wait for a broker that cannot be reached yet, in place of ending."`
	Listen      cli.Text `placeholder:"ADDRESS" help:"Answer GET /healthz, /status and /metrics there: unix:PATH or HOST:PORT."`
	tracing.Flag
	logFlags
}

var publishRunVerb = &cli.Verb{
	Name:    "publish run",
	Summary: "Publish a thread's events to a queue",
	Details: `Runs until SIGTERM. For each rule of the file, the consumer of its name is how far
it is: its progress moves once the broker has confirmed, so that nothing is lost while
there is no network.`,
	Examples: `thread publish run --thread ./inbox --config out.yaml
thread publish run --thread ./inbox --config out.yaml --dry-run --limit 10`,
	Grammar: func() cli.Command { return new(publishRunCmd) },
}

func (c *configFlag) loadPublish() ([]*config.Publish, error) {
	if c.Config.Value == "" {
		return nil, cli.UsageError("--config is empty", "name a YAML file")
	}
	list, err := config.LoadPublish(c.Config.Value)
	return list, aboutConfig(err)
}

func (c *publishRunCmd) Run(ctx context.Context, a *cli.App) error {
	rules, err := c.loadPublish()
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
	for _, name := range rules[0].Unset {
		log.Warn("${" + name + "} is not set: it counts as empty")
	}
	ctx, stop := untilTold(ctx)
	defer stop()
	if c.DryRun {
		for _, rule := range rules {
			if err := previewPublish(ctx, a, t, rule, limit); err != nil {
				return err
			}
		}
		return nil
	}
	traces, err := c.Open("")
	if err != nil {
		return err
	}
	defer func() {
		if err := traces.Close(); err != nil {
			log.Warn(err.Error())
		}
	}()
	var list []*trigger.Publisher
	holds := map[*trigger.Publisher]*holding{}
	var beats []func() time.Time
	web := new(web)
	defer web.close()
	for _, rule := range rules {
		if len(rules) > 1 && t.URL() != "" { // each has a turn, and a handle has one
			if t, err = a.Open(c.Thread.Value); err != nil {
				return err
			}
			defer t.Close()
		}
		p, held, end, err := c.publisher(ctx, t, rule, log)
		if err != nil {
			return err
		}
		defer end()
		p.Trace = traceFrom(traces, a.Dir, rule)
		holds[p] = held
		list, beats = append(list, p), append(beats, p.Beat)
		web.own(t.Dir(), "publish", rule.Name, aboutPublisher(p), log)
	}
	if err := web.at(c.Listen.Value, aboutPublishers(list)); err != nil {
		return cli.LogicError(err.Error(), "give another --listen; nothing was published")
	}
	if err := systemd.Notify("READY=1"); err != nil {
		log.Warn("the service manager cannot be told", "error", err)
	}
	go systemd.FeedWatchdog(ctx, func() { untilAlive(ctx, time.Second, beats...) })
	return aboutConnect(runAll(ctx, list, func(ctx context.Context, p *trigger.Publisher) error {
		ctx, end := holds[p].while(ctx)
		defer end()
		err := waitConnect(ctx, c.WaitConnect, log, func() error { return p.Run(ctx) })
		if lost := holds[p].err(); lost != nil {
			return lost
		}
		return err
	}), true)
}

// runAll runs publishers side by side until all have ended. The first error ends the
// others.
func runAll(ctx context.Context, list []*trigger.Publisher, run func(context.Context, *trigger.Publisher) error) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	ended := make(chan error, len(list))
	for _, p := range list {
		go func() { ended <- run(ctx, p) }()
	}
	var first error
	for range list {
		if err := <-ended; err != nil && first == nil {
			first = err
			stop()
		}
	}
	return first
}

// publisher makes the publisher of a rule; end gives back what it holds.
func (c *publishRunCmd) publisher(ctx context.Context, t *engine.Thread, rule *config.Publish, log *slog.Logger) (p *trigger.Publisher, held *holding, end func(), err error) {
	own, err := only(ctx, t, "publish", rule.Name, log)
	if err != nil {
		return nil, nil, nil, err
	}
	defer func() {
		if err != nil {
			own.close()
		}
	}()
	settings := rule.Settings()
	settings.Log = log
	if settings.Group, err = trigger.Identity(ctx, t); err != nil {
		return nil, nil, nil, err
	}
	settings.Instance = "thread-" + settings.Group
	settings.Group = settings.Instance + "-" + rule.Name
	sink, err := rule.Spec.Sink(settings)
	if err != nil {
		return nil, nil, nil, cli.UsageError(trigger.Redact(err.Error()), "correct adapter.connection in "+c.Config.Value)
	}
	p, err = trigger.NewPublisher(ctx, t, sink, rule.PublishConfig, log)
	if err != nil {
		sink.Close()
		if errors.Is(err, trigger.ErrForeignConsumer) {
			err = cli.LogicError(err.Error(), "give the publisher another name: in "+c.Config.Value+"; nothing was changed")
		}
		return nil, nil, nil, err
	}
	return p, own, func() { sink.Close(); own.close() }, nil
}

// traceFrom returns what passes a span for each published event to sink: a child of its push.
// It is nil without a sink.
func traceFrom(sink *spans.Sink, thread string, rule *config.Publish) func(*event.Event) (string, func()) {
	if sink == nil {
		return nil
	}
	return func(e *event.Event) (string, func()) {
		push, id := spans.Pushed(thread, e), strconv.FormatInt(e.ID, 10)
		s := spans.Span{Name: "send " + rule.Queue, Kind: spans.Producer, Parent: push.ID, Start: time.Now(), Attributes: map[string]any{"messaging.system": rule.Adapter,
			"messaging.destination.name": rule.Queue, "messaging.operation.type": "send", "messaging.operation.name": "publish", "messaging.message.id": id}}
		s.Context = push.Child(spans.ID("publish", thread, rule.Name, id, s.Start.String()))
		return s.Traceparent(), func() {
			s.End = time.Now()
			sink.Send(push, s)
		}
	}
}

// previewed is a message as --dry-run prints it.
type previewed struct {
	Event   int64             `json:"event"`
	ID      string            `json:"message_id"`
	Queue   string            `json:"queue_name"`
	Key     string            `json:"key"`
	Headers map[string]string `json:"headers"`
	Body    string            `json:"body"`
}

func previewPublish(ctx context.Context, a *cli.App, t *engine.Thread, conf *config.Publish, limit int) error {
	err := trigger.PreviewPublish(ctx, t, conf.PublishConfig, limit, func(m trigger.Outgoing) error {
		return printJSON(a, previewed{m.Event, m.ID, m.Queue, m.Key, m.Headers, string(m.Body)})
	}, func(id int64, err error) { a.Warn("event %d cannot be published: %v", id, err) })
	if ctx.Err() != nil {
		return nil
	}
	return err
}

type publishValidateCmd struct {
	configFlag
	Help cli.HelpFlag `short:"h" help:"Show this help."`
	cli.JSONFlag
}

var publishValidateVerb = &cli.Verb{
	Name:     "publish validate",
	Summary:  "Check the file of a publisher",
	Examples: `thread publish validate --config out.yaml`,
	Grammar:  func() cli.Command { return new(publishValidateCmd) },
}

func (c *publishValidateCmd) Run(_ context.Context, a *cli.App) error {
	rules, err := c.loadPublish()
	if err != nil {
		return err
	}
	for _, name := range rules[0].Unset {
		a.Warn("${%s} is not set: it counts as empty", name)
	}
	for _, p := range rules {
		if c.JSON {
			err = printJSON(a, map[string]any{"valid": true, "name": p.Name, "queue_name": p.Queue, "adapter": p.Adapter, "promise": p.Spec.OutCaps.Promise})
		} else {
			err = a.Out.Text(fmt.Sprintf("%s is valid: %s to %s %s, %s\n", c.Config.Value, p.Name, p.Adapter, p.Queue, p.Spec.OutCaps.Promise))
		}
		if err != nil {
			return err
		}
	}
	return nil
}
