package outbox

import (
	"context"
	"errors"
	"fmt"
	"time"

	"thread/engine"
	"thread/history"
	"thread/internal/cli"
	"thread/internal/dispatch"
	"thread/internal/watch"
	"thread/jsonlog"
	"thread/outbox"
)

type relayCmd struct {
	cli.ThreadFlags
	Once bool `help:"End when nothing is due."`
	cli.JSONFlag
	Command []string `arg:"" optional:"" name:"cmd" help:"The agent's handler and its arguments, in place of the one that is set."`
}

func relayVerb() *cli.Verb {
	return &cli.Verb{
		Name:    "outbox relay",
		Args:    "[-- CMD ARGS...]",
		Summary: "Hand the messages of the outbox on",
		Details: `Messages become notifications, and those for agents run the handler: CMD, or the
one of thread outbox config --handler. It reads the message as one line of JSON on
stdin and prints a receipt as its last line of JSON. Without --once the relay stays.
Two relays never work at once: this one waits for the other, with --once until
nothing is due. See docs/OUTBOX.md.`,
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
	log := jsonlog.OpenLog(a.Dir)
	runs, err := newRecorder(ctx, a.Dir)
	if err != nil {
		return err
	}
	o := outbox.Options{Mode: outbox.Follow, Recorder: runs, Command: c.Command, Stdout: a.Out.W, Stderr: a.Stderr}
	if c.JSON {
		o.Stdout = a.Stderr
	}
	o.Log = func(failed bool, format string, args ...any) {
		if !failed {
			log.Info(format, args...)
			return
		}
		log.Warn(format, args...)
		fmt.Fprintf(a.Stderr, "Warning: %s\n", cli.Printable(fmt.Sprintf(format, args...)))
	}
	if c.Once {
		o.Mode = outbox.Once
	}
	sum, err := relay(ctx, a, t, o)
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

// open opens the thread. Whoever can write it sets the handler, so that of another
// account's thread is not run with this one's rights, root's above all; CMD is the
// caller's own.
func (c *relayCmd) open(a *cli.App) (*engine.Thread, error) {
	a.Consumer = outbox.Consumer
	if len(c.Command) > 0 {
		return a.Open(c.Thread.Value)
	}
	if err := a.OwnDir(c.Thread.Value); err != nil {
		return nil, err
	}
	return a.Open(c.Thread.Value, dispatch.OwnFile(a.Dir))
}

// relay locks the consumer and hands on. While another relay has it locked, this one
// waits; one that runs once waits no longer than there is something due.
func relay(ctx context.Context, a *cli.App, t *engine.Thread, o outbox.Options) (sum outbox.Summary, err error) {
	for ctx.Err() == nil {
		held, err := dispatch.LockConsumer(ctx, t, outbox.Consumer)
		if err == nil {
			if held.Supervised() {
				o.Mode = outbox.UntilEmpty // its supervisor takes an end for the end of the work
			}
			o.Env = held.Environment()
			sum, err = outbox.Relay(ctx, t, o)
			if gerr := held.Release(context.WithoutCancel(ctx)); gerr != nil {
				a.LogWarning("outbox relay: handlers could not be started afterwards: %v", gerr)
			}
		}
		if !errors.Is(err, dispatch.ErrHandled) && !errors.Is(err, outbox.ErrRelaying) {
			return sum, err
		}
		if o.Mode == outbox.Once {
			due := false
			if err := t.View(ctx, func(tx *engine.Tx) (err error) { due, err = outbox.Due(tx); return err }); err != nil || !due {
				return sum, err
			}
		}
		if err := pause(ctx, a.Dir); err != nil && ctx.Err() == nil {
			return sum, err
		}
	}
	return sum, nil
}

// pause returns when the thread is written, or after a while: the end of the other
// relay is no write.
func pause(ctx context.Context, dir string) error {
	w, err := watch.New(dir)
	if err != nil {
		return err
	}
	defer w.Close()
	return w.Wait(ctx, time.Now().Add(outbox.PollInterval/4))
}
