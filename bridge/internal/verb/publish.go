package verb

import (
	"context"
	"fmt"

	"thread/bridge/config"
	"thread/bridge/trigger"
	"thread/engine"
	"thread/internal/cli"
	"thread/internal/systemd"
)

type publishRunCmd struct {
	cli.ThreadFlags
	configFlag
	DryRun      bool     `name:"dry-run" help:"Print the messages that would be published, from the publisher's place to the last event; publish and store nothing."`
	Limit       cli.Text `placeholder:"N" help:"With --dry-run, print at most N messages."`
	WaitConnect bool     `name:"wait-connect" help:"Wait for a broker that cannot be reached yet, in place of ending."`
	logFlags
}

func publishRunVerb() *cli.Verb {
	return &cli.Verb{
		Name:    "publish run",
		Summary: "Publish a thread's events to a queue",
		Details: `Runs until SIGTERM. The consumer of that name is how far it is: its progress moves
once the broker has confirmed, so that nothing is lost while there is no network.`,
		Examples: `thread publish run --thread ./inbox --config out.yaml
thread publish run --thread ./inbox --config out.yaml --dry-run --limit 10`,
		Grammar: func() cli.Command { return new(publishRunCmd) },
	}
}

func (c *configFlag) loadPublish() (*config.Publish, error) {
	p, err := config.LoadPublish(c.Config.Value)
	return p, aboutConfig(err)
}

func (c *publishRunCmd) Run(ctx context.Context, a *cli.App) error {
	conf, err := c.loadPublish()
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
	for _, name := range conf.Unset {
		log.Warn("${" + name + "} is not set: it counts as empty")
	}
	ctx, stop := untilTold(ctx)
	defer stop()
	if c.DryRun {
		return previewPublish(ctx, a, t, conf, limit)
	}
	held, err := only(a, "publish", conf.Name)
	if err != nil {
		return err
	}
	defer held.Close()
	settings := conf.Settings()
	settings.Log = log
	if settings.Group, err = trigger.Identity(ctx, t); err != nil {
		return err
	}
	settings.Instance = "thread-" + settings.Group
	settings.Group = settings.Instance + "-" + conf.Name
	sink, err := conf.Spec.Sink(settings)
	if err != nil {
		return cli.UsageError(trigger.Redact(err.Error()), "correct adapter.connection in "+c.Config.Value)
	}
	defer sink.Close()
	p, err := trigger.NewPublisher(ctx, t, sink, conf.PublishConfig, log)
	if err != nil {
		return err
	}
	if err := systemd.Notify("READY=1"); err != nil {
		log.Warn("the service manager cannot be told", "error", err)
	}
	go systemd.FeedWatchdog(ctx, func() {})
	return aboutConnect(waitConnect(ctx, c.WaitConnect, log, func() error { return p.Run(ctx) }), true)
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

func publishValidateVerb() *cli.Verb {
	return &cli.Verb{
		Name:     "publish validate",
		Summary:  "Check the file of a publisher",
		Examples: `thread publish validate --config out.yaml`,
		Grammar:  func() cli.Command { return new(publishValidateCmd) },
	}
}

func (c *publishValidateCmd) Run(_ context.Context, a *cli.App) error {
	p, err := c.loadPublish()
	if err != nil {
		return err
	}
	for _, name := range p.Unset {
		a.Warn("${%s} is not set: it counts as empty", name)
	}
	if c.JSON {
		return printJSON(a, map[string]any{"valid": true, "name": p.Name, "queue_name": p.Queue, "adapter": p.Adapter, "promise": p.Spec.OutCaps.Promise})
	}
	return a.Out.Text(fmt.Sprintf("%s is valid: %s to %s %s, %s\n", c.Config.Value, p.Name, p.Adapter, p.Queue, p.Spec.OutCaps.Promise))
}
