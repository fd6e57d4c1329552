package history

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"thread/event"
	"thread/history"
	"thread/internal/cli"
)

type runWaitCmd struct {
	stepFlags
	For     cli.Text `required:"" placeholder:"WHAT" help:"approval, event, run or time."`
	Key     cli.Text `placeholder:"KEY" help:"The name of the wait, unique in its run (default: WHAT, of a run with its id)."`
	Ask     cli.Text `placeholder:"TEXT" help:"The question to the person who approves."`
	Filter  cli.Text `placeholder:"WHERE" help:"With event: which event, as a condition on its columns."`
	After   cli.Text `placeholder:"ID" help:"With event: only events with an id above this one (default: the newest now)."`
	Ended   cli.Text `placeholder:"RUN" help:"With run: the run that has to end."`
	At      cli.Text `placeholder:"TIME" help:"With time: the time, as for peek --since."`
	Delay   cli.Text `placeholder:"DURATION" help:"With time: that much time from the first call."`
	Timeout cli.Text `placeholder:"DURATION" help:"Otherwise: how long from the first call."`
}

var runWaitVerb = &cli.Verb{
	Name: "run wait", Summary: "Let a run wait without a process",
	Details: `For the command of a run of thread run work. Prints the answer as JSON if it is there.
Otherwise stores what the run waits for and exits with 77. The command has to end with
that exit code also. Its run then has the status waiting and holds no process, no
lock, and not its session, over any number of reboots. With the answer, a worker
starts the command again from its beginning: thread run do skips the steps that have
ended, and this wait prints the answer, which is also in THREAD_ANSWER. Exactly one
of answer and timeout counts. Workers look for events and times.`,
	Exits: "0 approved, or what was waited for is there\n1 denied, or there is no such run\n77 the run waits: end the command with this code\n124 --timeout was over",
	Examples: `thread run wait --for approval --ask "Refund 80 EUR?" --timeout 3d || exit
thread run wait --for event --filter "type = 'payment' and source = 'order-7'" || exit
thread run wait --for time --delay 1d || exit`,
	Errors: errorWords, Grammar: func() cli.Command { return new(runWaitCmd) },
}

func (c *runWaitCmd) Run(ctx context.Context, a *cli.App) error {
	w, err := c.wait()
	if err != nil {
		return err
	}
	key := c.For.Value
	if w.Run != "" {
		key += ":" + w.Run
	}
	var answer history.Answer
	err = with(ctx, a, c.Thread, func(h *history.History) error {
		r, err := c.attach(h)
		if err != nil {
			return err
		}
		_, err = retryBusy(func() (struct{}, error) {
			answer, err = r.Wait(ctx, c.Key.Or(key), w)
			return struct{}{}, err
		})
		return err
	})
	switch {
	case errors.Is(err, history.ErrWaiting):
		return cli.Exited(waitingCode)
	case errors.Is(err, history.ErrState):
		return cli.LogicError(err.Error(), "queue it with thread run enqueue, for thread run work")
	case errors.Is(err, history.ErrInvalid):
		return cli.UsageError(strings.TrimPrefix(err.Error(), event.ErrInvalid.Error()+": "), "see thread run wait --help")
	case err != nil:
		return err
	}
	if err := a.Out.JSON(answer); err != nil {
		return err
	}
	switch answer.Result {
	case history.Denied:
		return cli.Exited(1)
	case history.TimedOutWait:
		return cli.Exited(timedOutCode)
	}
	return nil
}

// wait returns what the flags say.
func (c *runWaitCmd) wait() (w history.Wait, err error) {
	w = history.Wait{For: c.For.Value, Ask: c.Ask.Value, Run: c.Ended.Value, Filter: c.Filter.Value}
	for _, f := range []struct {
		flag, of string
		text     cli.Text
	}{{"--ask", history.ForApproval, c.Ask}, {"--filter", history.ForEvent, c.Filter}, {"--after", history.ForEvent, c.After}, {"--ended", history.ForRun, c.Ended},
		{"--at", history.ForTime, c.At}, {"--delay", history.ForTime, c.Delay}} {
		if f.text.Set && f.of != w.For {
			return w, cli.UsageError(fmt.Sprintf("%s is for --for %s", f.flag, f.of), "leave it out")
		}
	}
	if c.Timeout.Set && w.For == history.ForTime {
		return w, cli.UsageError("--timeout is not for --for time", "give --at or --delay")
	}
	if c.After.Set {
		n, ok := cli.ParseNumber(c.After.Value)
		if !ok || n < 0 {
			return w, cli.UsageError(fmt.Sprintf("--after %q is not an id", c.After.Value), "give the id of an event")
		}
		w.After = n
	}
	if w.Until, err = dueTime(c.At, c.Delay); err != nil || !c.Timeout.Set {
		return w, err
	}
	d, err := cli.ParseDuration("--timeout", c.Timeout.Value)
	w.Until = time.Now().Add(d).Truncate(time.Millisecond).UTC()
	return w, err
}

type answerCmd struct {
	cli.ThreadFlags
	RunID cli.Text `arg:"" name:"run" help:"The id of the run."`
	Key   cli.Text `placeholder:"KEY" help:"The key of the wait; by default the approval that the run waits for now."`
	By    cli.Text `placeholder:"WHO" help:"Who decides."`
}

type approveCmd struct {
	answerCmd
	Data cli.Text `placeholder:"JSON" help:"What the run gets with the approval, at most 64 KiB."`
}

var approveVerb = &cli.Verb{
	Name: "approve", Args: "<run>", Summary: "Approve what a run waits for",
	Details: `A run that waits (thread run wait --for approval) is listed by thread run list
--status waiting. It is queued then. The first answer counts.`,
	Exits:    "0 approved\n1 the run does not wait for an approval, or was answered",
	Examples: `thread approve --thread ./inbox --by ann --data '{"limit":80}' "$R"`,
	Errors:   errorWords, Grammar: func() cli.Command { return new(approveCmd) },
}

func (c *approveCmd) Run(ctx context.Context, a *cli.App) error {
	data, err := jsonText("--data", c.Data)
	if err != nil {
		return err
	}
	return c.answer(ctx, a, history.Answer{Result: history.Approved, Data: data})
}

type denyCmd struct {
	answerCmd
	Reason cli.Text `placeholder:"TEXT" help:"Why."`
}

var denyVerb = &cli.Verb{
	Name: "deny", Args: "<run>", Summary: "Deny what a run waits for",
	Details:  `The run is queued then, and its thread run wait exits with 1. The first answer counts.`,
	Exits:    "0 denied\n1 the run does not wait for an approval, or was answered",
	Examples: `thread deny --thread ./inbox --by ann --reason "too much" "$R"`,
	Errors:   errorWords, Grammar: func() cli.Command { return new(denyCmd) },
}

func (c *denyCmd) Run(ctx context.Context, a *cli.App) error {
	return c.answer(ctx, a, history.Answer{Result: history.Denied, Reason: c.Reason.Value})
}

func (c *answerCmd) answer(ctx context.Context, a *cli.App, answer history.Answer) error {
	answer.By = c.By.Value
	return with(ctx, a, c.Thread, func(h *history.History) error {
		err := h.Answer(ctx, c.RunID.Value, c.Key.Value, answer)
		switch {
		case errors.Is(err, history.ErrState):
			return cli.LogicError(err.Error(), "see thread run list --status waiting")
		case errors.Is(err, history.ErrInvalid):
			return cli.UsageError(strings.TrimPrefix(err.Error(), event.ErrInvalid.Error()+": "), "see thread run wait --help")
		}
		return err
	})
}
