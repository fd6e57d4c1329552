package verb

import (
	"context"
	"errors"
	"fmt"

	"thread/bridge/config"
	"thread/bridge/trigger"
	"thread/internal/cli"
	"thread/internal/systemd"
)

type publishRunCmd struct {
	cli.ThreadFlags
	configFlag
	DryRun bool `name:"dry-run" help:"Log what would be published, publish nothing and keep the place: shadow mode without progress."`
	logFlags
}

func publishRunVerb() *cli.Verb {
	return &cli.Verb{
		Name:    "publish run",
		Summary: "Publish a thread's events to a queue",
		Details: `Runs until SIGTERM. The consumer of that name is how far it is: its progress moves
once the broker has confirmed, so that nothing is lost while there is no network.`,
		Examples: `thread publish run --thread ./inbox --config out.yaml`,
		Grammar:  func() cli.Command { return new(publishRunCmd) },
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
	if c.DryRun {
		return cli.LogicError("publish run --dry-run is not built", "set shadow: true in the file, with a name of its own")
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
	for _, name := range conf.Unset {
		log.Warn("${" + name + "} is not set: it counts as empty")
	}
	held, err := only(a, "publish", conf.Name)
	if err != nil {
		return err
	}
	defer held.Close()
	ctx, stop := untilTold(ctx)
	defer stop()
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
	err = p.Run(ctx)
	var ce *trigger.ConnectionError
	if errors.As(err, &ce) {
		return cli.LogicError(ce.Error(), "check adapter.connection and that the broker runs")
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
