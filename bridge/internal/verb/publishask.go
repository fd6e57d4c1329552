package verb

import (
	"context"
	"errors"
	"fmt"

	"thread/bridge/trigger"
	"thread/engine"
	"thread/internal/cli"
	"thread/internal/terminal"
)

// publishFlags are embedded by the verbs about the publishers of a thread.
type publishFlags struct {
	cli.ThreadFlags
	Config cli.Text `placeholder:"FILE" help:"The YAML file of the publishers, in place of --name."`
	Name   cli.Text `placeholder:"NAME" help:"The name of a publisher."`
	cli.JSONFlag
}

type publishStatusCmd struct{ publishFlags }

type publishHealthCmd struct{ publishFlags }

var publishStatusVerb = &cli.Verb{
	Name:     "publish status",
	Summary:  "Show how publishers are, whether they run or not",
	Examples: `thread publish status --thread ./inbox --config out.yaml --json`,
	Grammar:  func() cli.Command { return new(publishStatusCmd) },
}

var publishHealthVerb = &cli.Verb{
	Name:     "publish health",
	Summary:  "Exit with 0 when publishers run and reach their broker",
	Examples: `thread publish health --thread ./inbox --name out`,
	Grammar:  func() cli.Command { return new(publishHealthCmd) },
}

func (f *publishFlags) names() ([]string, error) {
	n := nameFlags{Name: f.Name}
	if n.Config.Set = f.Config.Set; n.Name.Set || !f.Config.Set {
		name, err := n.name()
		return []string{name}, err
	}
	rules, err := (&configFlag{Config: f.Config}).loadPublish()
	var names []string
	for _, r := range rules {
		names = append(names, r.Name)
	}
	return names, err
}

// status returns how publishers are; of one that does not run what is stored.
func (f *publishFlags) status(ctx context.Context, a *cli.App) (list []trigger.PublishStatus, err error) {
	names, err := f.names()
	if err != nil {
		return nil, err
	}
	t, err := a.Open(f.Thread.Value)
	if err != nil {
		return nil, err
	}
	defer t.Close()
	for _, name := range names {
		s, err := ask[trigger.PublishStatus](ctx, t.Dir(), "publish", name)
		if errors.Is(err, errNotRunning) {
			detail := "not running"
			s = trigger.PublishStatus{Status: "unhealthy", Name: name, Detail: &detail}
			err = t.View(ctx, func(tx *engine.Tx) error {
				at, _, err := tx.Progress(name)
				s.Position = at.From()
				return err
			})
		}
		if err != nil {
			return nil, err
		}
		list = append(list, s)
	}
	return list, nil
}

func (f *publishFlags) show(a *cli.App, list []trigger.PublishStatus) error {
	for _, s := range list {
		var err error
		if f.JSON {
			err = printJSON(a, s)
		} else {
			detail := ""
			if s.Detail != nil {
				detail = " (" + *s.Detail + ")"
			}
			err = a.Out.Text(terminal.Printable(fmt.Sprintf("%s: %s%s, running %t, published %d, position %d", s.Name, s.Status, detail, s.Running, s.Published, s.Position)) + "\n")
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (c *publishStatusCmd) Run(ctx context.Context, a *cli.App) error {
	list, err := c.status(ctx, a)
	if err != nil {
		return err
	}
	return c.show(a, list)
}

func (c *publishHealthCmd) Run(ctx context.Context, a *cli.App) error {
	list, err := c.status(ctx, a)
	if err != nil {
		return err
	}
	for _, s := range list {
		if s.Status == healthy {
			continue
		}
		detail := ""
		if s.Detail != nil {
			detail = ": " + *s.Detail
		}
		return cli.LogicError("publisher "+s.Name+" is unhealthy"+detail, "see thread publish status and the log of the process that runs it")
	}
	return c.show(a, list)
}
