package outbox

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"thread/engine"
	"thread/history"
	"thread/internal/cli"
	"thread/internal/dispatch"
	"thread/internal/terminal"
	"thread/jsonlog"
	"thread/outbox"
)

type relayCmd struct {
	cli.ThreadFlags
	Once bool `help:"End when nothing is due."`
	cli.JSONFlag
	Command []string `arg:"" optional:"" name:"cmd" help:"The agent's handler and its arguments, in place of the one that is set."`
}

var relayVerb = &cli.Verb{
	Name:    "outbox relay",
	Args:    "[-- CMD ARGS...]",
	Summary: "Hand the messages of the outbox on",
	Details: `Messages become notifications, and those for agents run the handler: CMD, or the
one of thread outbox config --handler. It reads the message as one line of JSON on
stdin and prints a receipt as its last line of JSON. Without --once the relay stays.
Two relays never work at once: this one waits for the other, with --once until
nothing is due. See docs/reference/outbox.md.`,
	Exits: "0 nothing is due; with --once: one delivery is settled\n1 CMD cannot be started",
	Examples: `thread outbox relay --thread ./inbox --once
thread outbox relay --thread ./inbox -- ./agent --model small`,
	Grammar: func() cli.Command { return new(relayCmd) },
	Errors: func(*cli.App) []cli.Rule {
		return []cli.Rule{
			{Is: history.ErrOwner, Code: 1, Fix: "run it as that account, or as root"},
			{Is: outbox.ErrCommand, Code: 1, Fix: "name a program that is on PATH, or its path; the message stays pending"},
		}
	},
}

func (c *relayCmd) Run(ctx context.Context, a *cli.App) error {
	t, err := c.open(a)
	if err != nil {
		return err
	}
	defer t.Close()
	// Before the turn: who has no subscription cannot have one.
	if _, err := t.DueFor(ctx, outbox.Consumer, 0); errors.Is(err, engine.ErrNoSubscription) {
		err = t.Update(ctx, outbox.Subscribe)
		if err != nil {
			return err
		}
	}
	ctx, stop := cli.Interruptible(ctx)
	defer stop()
	log := jsonlog.OpenLog(t.Dir())
	runs := &recorder{a: a}
	if _, err := runs.open(ctx); err != nil {
		return err
	}
	o := outbox.Options{Mode: outbox.Follow, Recorder: runs, Command: c.Command, Stdout: a.Out.W, Stderr: a.Stderr}
	if c.JSON {
		o.Stdout = a.Stderr
	}
	o.Log = func(failed bool, format string, args ...any) {
		if t.URL() == "" && !failed {
			log.Info(format, args...)
		}
		if !failed {
			return
		}
		if t.URL() == "" {
			log.Warn(format, args...)
		}
		fmt.Fprintf(a.Stderr, "Warning: %s\n", terminal.Printable(fmt.Sprintf(format, args...)))
	}
	if c.Once {
		o.Mode = outbox.Once
	}
	sum, err := relay(ctx, a, t, o, runs)
	if err != nil {
		return err
	}
	switch {
	case c.JSON:
		warnUnprinted(a, printJSON(a, sum))
		return nil
	case c.Once:
		warnUnprinted(a, a.Out.Text(fmt.Sprintf("Processed %d, ran the handler for %d, wrote %d notifications; %d attempts failed, %d records for good\n",
			sum.Processed, sum.Triggered, sum.Notifications, sum.Failures, sum.Failed)))
		return nil
	}
	return nil
}

// open opens the thread. An account that can write it sets the handler, so a handler of another
// account's thread is not run with this one's rights, root's above all; CMD is the
// caller's own.
func (c *relayCmd) open(a *cli.App) (*engine.Thread, error) {
	if len(c.Command) > 0 {
		return a.OpenFor(c.Thread.Value, outbox.Consumer)
	}
	if err := a.OwnDir(c.Thread.Value); err != nil {
		return nil, err
	}
	if cli.IsURL(a.Dir) {
		return a.OpenFor(c.Thread.Value, outbox.Consumer)
	}
	a.Consumer = outbox.Consumer
	return a.Open(c.Thread.Value, dispatch.OwnFile(a.Dir))
}

// relay locks the consumer and hands on. While another relay has it locked, this one
// waits; one that runs once waits no longer than there is something due.
func relay(ctx context.Context, a *cli.App, t *engine.Thread, o outbox.Options, runs *recorder) (sum outbox.Summary, err error) {
	locked := relayLocked
	if t.URL() != "" {
		locked = relayTurn
	}
	for ctx.Err() == nil {
		sum, err := locked(ctx, a, t, o, runs)
		if !errors.Is(err, dispatch.ErrHandled) && !errors.Is(err, outbox.ErrRelaying) && !cli.IsTaken(err) {
			return sum, err
		}
		if o.Mode == outbox.Once {
			due := false
			if err := t.View(ctx, func(tx *engine.Tx) (err error) { due, err = outbox.Due(tx); return err }); err != nil || !due {
				return sum, err
			}
		}
		if err := pause(ctx, t); err != nil && ctx.Err() == nil {
			return sum, err
		}
	}
	return sum, nil
}

// relayLocked is one try of relay in a directory.
func relayLocked(ctx context.Context, a *cli.App, t *engine.Thread, o outbox.Options, runs *recorder) (sum outbox.Summary, err error) {
	held, err := dispatch.LockConsumer(ctx, t, outbox.Consumer)
	if err != nil {
		return sum, err
	}
	if held.Supervised() {
		o.Mode = outbox.UntilEmpty // its supervisor takes an end for the end of the work
	}
	o.Env, o.Work = held.Environment(), held.Work()
	runs.recoverLeft(ctx)
	sum, err = outbox.Relay(ctx, t, o)
	held.Dead(sum.Failed)
	if gerr := held.Release(context.WithoutCancel(ctx)); gerr != nil {
		a.LogWarning("outbox relay: handlers could not be started afterwards: %v", gerr)
	}
	return sum, err
}

// relayTurn is one try of relay for a thread on a server, whose relays are on any number of hosts.
func relayTurn(ctx context.Context, a *cli.App, t *engine.Thread, o outbox.Options, runs *recorder) (sum outbox.Summary, err error) {
	err = cli.HoldURL(ctx, t, outbox.Consumer, o.Mode == outbox.Follow, a.Warn, func(ctx context.Context, held cli.Held, work *os.File) error {
		if o.Work, o.Lost = work, held.Lost(); o.Lost == nil {
			o.Mode = outbox.UntilEmpty // as in relayLocked
		}
		runs.recoverLeft(ctx)
		sum, err = outbox.Relay(ctx, t, o)
		return err
	})
	return sum, err
}

// pause returns when the thread is written, or after a while: the end of the other
// relay is not a write.
func pause(ctx context.Context, t *engine.Thread) error {
	w, err := t.Watch()
	if err != nil {
		return err
	}
	defer w.Close()
	return w.Wait(ctx, time.Now().Add(outbox.PollInterval/4))
}
