package history

import (
	"cmp"
	"context"

	"thread/history"
	"thread/internal/cli"
)

// steer changes the run that the flags name, and shows it if show says so.
func (c *runFlags) steer(ctx context.Context, a *cli.App, show, asJSON bool, change func(*history.Run) error) error {
	return with(ctx, a, c.Thread, func(h *history.History) error {
		r, err := c.attach(h)
		if err != nil {
			return err
		}
		if err := change(r); err != nil || !show {
			return err
		}
		var row history.RunRow
		if err := h.Get(ctx, &row, r.ID()); err != nil {
			return err
		}
		return put(a, asJSON, &row, runLine(&row))
	})
}

type runBeatCmd struct {
	runFlags
	cli.JSONFlag
}

var runBeatVerb = &cli.Verb{
	Name: "run beat", Args: "[run]", Summary: "Say that a run lives",
	Details: `Writes nothing to the history. Exit code 3 says that the run is to be cancelled:
its worker then ends it with thread run end --status cancelled.`,
	Exits:    "0 noted\n1 there is no such run, or it has ended\n3 the run is to be cancelled",
	Examples: `while sleep 5; do thread run beat --thread ./inbox "$R" || break; done &`,
	Errors:   errorWords, Grammar: func() cli.Command { return new(runBeatCmd) },
}

func (c *runBeatCmd) Run(ctx context.Context, a *cli.App) error {
	return c.steer(ctx, a, c.JSON, true, func(r *history.Run) error { return r.BeatOnce(ctx) })
}

type runSwitchCmd struct {
	runFlags
	To cli.Text `required:"" placeholder:"AGENT" help:"The agent that continues."`
	cli.JSONFlag
}

var runSwitchVerb = &cli.Verb{
	Name: "run switch", Args: "[run]", Summary: "Let another agent continue a run",
	Details:  `The agent of the run, how often it was switched, and the agent of the session change in one commit.`,
	Exits:    "0 recorded\n1 there is no such run, or it has ended",
	Examples: `thread run switch --thread ./inbox --to reviewer "$R"`,
	Errors:   errorWords, Grammar: func() cli.Command { return new(runSwitchCmd) },
}

func (c *runSwitchCmd) Run(ctx context.Context, a *cli.App) error {
	return c.steer(ctx, a, true, c.JSON, func(r *history.Run) error { return r.Switch(ctx, c.To.Value) })
}

type runMarkCmd struct {
	runFlags
	Status cli.Text `required:"" placeholder:"STATUS" help:"waiting_tool or running."`
	cli.JSONFlag
}

var runMarkVerb = &cli.Verb{
	Name: "run mark", Args: "[run]", Summary: "Record that a run waits for a tool, or continues",
	Exits: "0 recorded\n1 there is no such run, or it has ended",
	Examples: `thread run mark --thread ./inbox --status waiting_tool "$R"
thread run mark --thread ./inbox --status running "$R"`,
	Errors: errorWords, Grammar: func() cli.Command { return new(runMarkCmd) },
}

func (c *runMarkCmd) Run(ctx context.Context, a *cli.App) error {
	if c.Status.Value != history.WaitingTool && c.Status.Value != history.Running {
		return cli.UsageError("--status "+c.Status.Value+" is neither waiting_tool nor running", "end a run with thread run end")
	}
	return c.steer(ctx, a, true, c.JSON, func(r *history.Run) error { return r.Waits(ctx, c.Status.Value == history.WaitingTool) })
}

type runCancelCmd struct {
	cli.ThreadFlags
	RunID cli.Text `arg:"" name:"run" help:"The id of the run."`
	cli.JSONFlag
}

var runCancelVerb = &cli.Verb{
	Name: "run cancel", Args: "<run>", Summary: "Ask a run to end",
	Details: `A queued run is cancelled at once. One that runs under thread run exec or thread run
work gets SIGTERM, and SIGKILL 10 s later; any other one learns of it by its next
thread run beat.`,
	Exits:    "0 asked for\n1 there is no such run, or it has ended",
	Examples: `thread run cancel --thread ./inbox "$R"`,
	Errors:   errorWords, Grammar: func() cli.Command { return new(runCancelCmd) },
}

func (c *runCancelCmd) Run(ctx context.Context, a *cli.App) error {
	return with(ctx, a, c.Thread, func(h *history.History) error {
		row, err := h.Cancel(ctx, c.RunID.Value)
		if err != nil {
			return err
		}
		return put(a, c.JSON, &row, runLine(&row))
	})
}

type runEndCmd struct {
	runFlags
	Status  cli.Text `required:"" placeholder:"STATUS" help:"completed, failed, cancelled or timed_out."`
	Code    cli.Text `name:"error-code" placeholder:"CODE" help:"What kind of error it was."`
	Message cli.Text `name:"error" placeholder:"TEXT" help:"What went wrong."`
	cli.JSONFlag
}

var runEndVerb = &cli.Verb{
	Name: "run end", Args: "[run]", Summary: "Record that a run has ended",
	Exits:    "0 recorded\n1 there is no such run, or it ended otherwise",
	Examples: `thread run end --thread ./inbox --status failed --error "no answer" "$R"`,
	Errors:   errorWords, Grammar: func() cli.Command { return new(runEndCmd) },
}

func (c *runEndCmd) Run(ctx context.Context, a *cli.App) error {
	end := history.End{Status: c.Status.Value, ErrorCode: c.Code.Value, ErrorMessage: c.Message.Value}
	return c.steer(ctx, a, true, c.JSON, func(r *history.Run) error { return r.End(ctx, end) })
}

type runRequeueCmd struct {
	cli.ThreadFlags
	RunID cli.Text `arg:"" name:"run" help:"The id of the run."`
	cli.JSONFlag
}

var runRequeueVerb = &cli.Verb{
	Name: "run requeue", Args: "<run>", Summary: "Queue a run again that has failed or timed out",
	Exits:    "0 queued again\n1 the run has not failed or timed out",
	Examples: `thread run requeue --thread ./inbox "$R"`,
	Errors:   errorWords, Grammar: func() cli.Command { return new(runRequeueCmd) },
}

func (c *runRequeueCmd) Run(ctx context.Context, a *cli.App) error {
	return with(ctx, a, c.Thread, func(h *history.History) error {
		row, err := h.Requeue(ctx, c.RunID.Value)
		if err != nil {
			return err
		}
		return put(a, c.JSON, &row, runLine(&row))
	})
}

type runRecoverCmd struct {
	cli.ThreadFlags
	recoverFlags
	Start bool     `help:"As a worker that has just started: runs may have been silent for 30 s."`
	Every cli.Text `placeholder:"DURATION" help:"How often runs say that they live (default 5s): three times that is too long."`
	cli.JSONFlag
}

var runRecoverVerb = &cli.Verb{
	Name: "run recover", Summary: "Deal with the runs whose workers are gone",
	Details: `Prints those that it found. A run of thread run exec or thread run work is gone when
its process has ended; any other one when it was silent for 15 s. What its worker
still tries to record afterwards is refused. After as many attempts as allowed, a
run stays failed until thread run requeue.`,
	Exits:    "0 done, or nothing to recover",
	Examples: `thread run recover --thread ./inbox --strategy requeue_all`,
	Errors:   errorWords, Grammar: func() cli.Command { return new(runRecoverCmd) },
}

func (c *runRecoverCmd) Run(ctx context.Context, a *cli.App) error {
	o, err := c.options()
	if err != nil {
		return err
	}
	o.Start = c.Start
	if c.Every.Set {
		if o.Every, err = cli.ParseDuration("--every", c.Every.Value); err != nil {
			return err
		}
	}
	return with(ctx, a, c.Thread, func(h *history.History) error {
		list, err := h.Recover(ctx, o)
		for i := range list {
			if err := put(a, c.JSON, &list[i], runLine(&list[i])); err != nil {
				return err
			}
		}
		return err
	})
}

type runListCmd struct {
	cli.ThreadFlags
	Session cli.Text `placeholder:"SESSION" help:"Only this session's."`
	Parent  cli.Text `placeholder:"RUN" help:"Only those that this run has started."`
	Subject cli.Text `placeholder:"REF" help:"Only those for this subject."`
	Space   cli.Text `name:"workspace" placeholder:"WORKSPACE" help:"Only this workspace's."`
	Status  cli.Text `placeholder:"STATUS" help:"Only those with this status."`
	Active  bool     `help:"Only those that have been started and have not ended."`
	ByBeat  bool     `name:"by-heartbeat" help:"Only those that are active, the one that has been silent for the longest time first."`
	Failed  bool     `help:"Only those that have failed."`
	Oldest  bool     `help:"Oldest first."`
	Limit   cli.Text `placeholder:"N" help:"At most N."`
	cli.JSONFlag
}

var runListVerb = &cli.Verb{
	Name: "run list", Summary: "List recorded runs, newest first",
	Exits: "0 listed, perhaps none",
	Examples: `thread run list --thread ./inbox --failed --limit 10
thread run list --thread ./inbox --session S --json | jq -r .status
thread run list --thread ./inbox --by-heartbeat --workspace W`,
	Errors: errorWords, Grammar: func() cli.Command { return new(runListCmd) },
}

func (c *runListCmd) Run(ctx context.Context, a *cli.App) error {
	limit, err := limitOf(c.Limit)
	if err != nil {
		return err
	}
	q := history.Query{Session: c.Session.Value, Run: c.Parent.Value, Subject: c.Subject.Value, Workspace: c.Space.Value, Status: c.Status.Value, Active: c.Active, Oldest: c.Oldest, Limit: limit}
	if c.Failed {
		q.Status = history.Failed
	}
	table := tableOnTerminal(a, c.JSON, []int{8, 7, 6, 8, 8, 19, 4, 8}, "RUN", "STATUS", "AGENT", "SESSION", "SUBJECT", "CREATED", "TOOK", "ERROR")
	return with(ctx, a, c.Thread, func(h *history.History) error {
		runs := h.Runs
		if c.ByBeat {
			runs = h.ActiveByHeartbeat
		}
		return list(a, c.JSON, runs(ctx, q), table, func(r *history.RunRow) []string {
			return []string{r.ID, r.Status, r.EffectiveAgentName, r.SessionID, r.InitiatorRef, at(r.CreatedAt), tookText(r), firstLine(cmp.Or(r.ErrorMessage, r.ErrorCode))}
		}, runLine)
	})
}

type runShowCmd struct {
	cli.ThreadFlags
	RunID cli.Text `arg:"" name:"run" help:"The id of the run."`
	Step  cli.Text `placeholder:"N" help:"Only this step, with all that went in and came out."`
	cli.JSONFlag
}

var runShowVerb = &cli.Verb{
	Name: "run show", Args: "<run>", Summary: "Show a run with all that it did",
	Details: `With --json one object per row: the run, then its steps, calls of tools, hooks,
actions, artifacts, messages and the runs that it started, each with the member
entity before its columns.`,
	Exits: "0 shown\n1 there is no such run or step",
	Examples: `thread run show --thread ./inbox "$R"
thread run show --thread ./inbox --step 3 --json "$R" | jq .input.request`,
	Errors: errorWords, Grammar: func() cli.Command { return new(runShowCmd) },
}

func (c *runShowCmd) Run(ctx context.Context, a *cli.App) error {
	step := int64(0)
	if c.Step.Set {
		n, ok := cli.ParseNumber(c.Step.Value)
		if !ok || n < 1 {
			return cli.UsageError("--step "+c.Step.Value+" is not a number from 1", "give the number of a step")
		}
		step = n
	}
	return with(ctx, a, c.Thread, func(h *history.History) error {
		return show(ctx, a, h, c.RunID.Value, step, c.JSON)
	})
}
