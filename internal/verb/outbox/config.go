package outbox

import (
	"context"
	"fmt"
	"strings"
	"time"

	"thread/engine"
	"thread/internal/cli"
	"thread/internal/terminal"
	"thread/outbox"
)

type configCmd struct {
	cli.ThreadFlags
	Rules    cli.Text `placeholder:"FILE" help:"A YAML file that names the event types, who is notified and which agent answers; \"\" for the forum (the default)."`
	Handler  cli.Text `placeholder:"CMD" help:"The shell command that runs the agent; \"\" for none."`
	Timeout  cli.Text `placeholder:"DURATION" help:"How long one run of it may take, 0 for ever (the default)."`
	Mention  cli.Text `name:"mention-triggers" placeholder:"on|off" help:"Run an agent that is mentioned (default on)."`
	Self     cli.Text `name:"self-action" placeholder:"on|off" help:"Let what users do to themselves count (default off)."`
	Feedback cli.Text `name:"feedback-notifies" placeholder:"on|off" help:"Make a notification of each feedback (default off)."`
	Record   cli.Text `name:"record-runs" placeholder:"on|off" help:"Keep each run of the handler in the history (default on); see thread run list."`
	Attempts cli.Text `name:"max-attempts" placeholder:"N" help:"How many failures make a message failed (default 5); for relays that start after this."`
	Backoff  cli.Text `placeholder:"DURATION" help:"The wait after the first failure (default 1s); it doubles."`
	Longest  cli.Text `name:"max-backoff" placeholder:"DURATION" help:"The longest wait (default 5m)."`
	Window   cli.Text `name:"dedupe-window" placeholder:"DURATION" help:"How long a dedupe key counts (default 24h)."`
	cli.JSONFlag
}

var configVerb = &cli.Verb{
	Name:    "outbox config",
	Summary: "Show or change the settings of the outbox",
	Details: `They are kept in the thread. What is not named stays; printed is what then holds.`,
	Exits:   "0 shown or stored",
	Examples: `thread outbox config --thread ./inbox --handler ./agent.sh --timeout 5m
thread outbox config --thread ./inbox --rules orders.yaml`,
	Grammar: func() cli.Command { return new(configCmd) },
}

// change returns the changes that the flags ask for.
func (c *configCmd) change() (changes []func(*outbox.Settings), err error) {
	if c.Handler.Set {
		changes = append(changes, func(s *outbox.Settings) { s.Handler = c.Handler.Value })
	}
	for _, f := range []struct {
		name string
		text cli.Text
		to   func(*outbox.Settings) *bool
	}{
		{"--mention-triggers", c.Mention, func(s *outbox.Settings) *bool { return &s.MentionTriggers }},
		{"--self-action", c.Self, func(s *outbox.Settings) *bool { return &s.SelfAction }},
		{"--feedback-notifies", c.Feedback, func(s *outbox.Settings) *bool { return &s.FeedbackNotifies }},
		{"--record-runs", c.Record, func(s *outbox.Settings) *bool { return &s.RecordRuns }},
	} {
		if !f.text.Set {
			continue
		}
		if f.text.Value != "on" && f.text.Value != "off" {
			return nil, cli.UsageError(fmt.Sprintf("%s is %q", f.name, f.text.Value), "say on or off")
		}
		changes = append(changes, func(s *outbox.Settings) { *f.to(s) = f.text.Value == "on" })
	}
	for _, f := range []struct {
		name string
		text cli.Text
		to   func(*outbox.Settings) *time.Duration
	}{
		{"--timeout", c.Timeout, func(s *outbox.Settings) *time.Duration { return &s.Timeout }},
		{"--backoff", c.Backoff, func(s *outbox.Settings) *time.Duration { return &s.Backoff }},
		{"--max-backoff", c.Longest, func(s *outbox.Settings) *time.Duration { return &s.MaxBackoff }},
		{"--dedupe-window", c.Window, func(s *outbox.Settings) *time.Duration { return &s.DedupeWindow }},
	} {
		if !f.text.Set {
			continue
		}
		d := time.Duration(0)
		if f.name != "--timeout" || f.text.Value != "0" {
			if d, err = cli.ParseDuration(f.name, f.text.Value); err != nil {
				return nil, err
			}
		}
		changes = append(changes, func(s *outbox.Settings) { *f.to(s) = d })
	}
	if c.Attempts.Set {
		n, err := parseCount("--max-attempts", c.Attempts.Value)
		if err != nil {
			return nil, err
		}
		changes = append(changes, func(s *outbox.Settings) { s.MaxAttempts = n })
	}
	return changes, nil
}

func (c *configCmd) Run(ctx context.Context, a *cli.App) error {
	changes, err := c.change()
	if err != nil {
		return err
	}
	var rules *outbox.Rules
	if c.Rules.Value != "" {
		if rules, err = readRules(c.Rules.Value); err != nil {
			return err
		}
	}
	t, err := a.Open(c.Thread.Value)
	if err != nil {
		return err
	}
	defer t.Close()
	var s outbox.Settings
	run := t.View
	if len(changes) > 0 || c.Rules.Set {
		run = t.Update
	}
	err = run(ctx, func(tx *engine.Tx) (err error) {
		if c.Rules.Set {
			if err := outbox.WriteRules(tx, rules); err != nil {
				return err
			}
		}
		if rules, err = outbox.ReadRules(tx); err != nil {
			return err
		}
		if s, err = outbox.ReadSettings(tx); err != nil || len(changes) == 0 {
			return err
		}
		for _, change := range changes {
			change(&s)
		}
		return outbox.WriteSettings(tx, s)
	})
	if err != nil {
		return err
	}
	if c.JSON {
		return printJSON(a, struct {
			Types    []string `json:"types"`
			Handler  string   `json:"handler"`
			Timeout  string   `json:"timeout"`
			Mention  bool     `json:"mention_triggers"`
			Self     bool     `json:"self_action"`
			Feedback bool     `json:"feedback_notifies"`
			Record   bool     `json:"record_runs"`
			Attempts int64    `json:"max_attempts"`
			Backoff  string   `json:"backoff"`
			Longest  string   `json:"max_backoff"`
			Window   string   `json:"dedupe_window"`
		}{rules.Types(), s.Handler, s.Timeout.String(), s.MentionTriggers, s.SelfAction, s.FeedbackNotifies, s.RecordRuns, s.MaxAttempts, s.Backoff.String(), s.MaxBackoff.String(), s.DedupeWindow.String()})
	}
	return a.Out.Text(fmt.Sprintf("types: %s\nhandler: %s\ntimeout: %s\nmention-triggers: %s\nself-action: %s\nfeedback-notifies: %s\nrecord-runs: %s\nmax-attempts: %d\nbackoff: %s\nmax-backoff: %s\ndedupe-window: %s\n",
		terminal.Printable(strings.Join(rules.Types(), ", ")), terminal.Printable(s.Handler), cli.DurationText(s.Timeout), onOff(s.MentionTriggers), onOff(s.SelfAction), onOff(s.FeedbackNotifies), onOff(s.RecordRuns), s.MaxAttempts,
		cli.DurationText(s.Backoff), cli.DurationText(s.MaxBackoff), cli.DurationText(s.DedupeWindow)))
}

func onOff(on bool) string {
	if on {
		return "on"
	}
	return "off"
}
