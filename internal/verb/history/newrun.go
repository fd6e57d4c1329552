package history

import (
	"context"
	"encoding/json"
	"os"

	"thread/history"
	"thread/internal/cli"
)

func env(name string) string { return os.Getenv(name) }

// recorded returns id if there is a run with it, else "". The runs of handlers have
// ids in the same variable, and need not be recorded.
func recorded(ctx context.Context, h *history.History, id string) string {
	if id == "" || h.Get(ctx, new(history.RunRow), id) != nil {
		return ""
	}
	return id
}

// newRun are the flags of a run that begins.
type newRun struct {
	cli.ThreadFlags
	ID        cli.Text `name:"id" placeholder:"ID" help:"Its id; a new one without it."`
	Session   cli.Text `placeholder:"SESSION" help:"The session; by default the session of the run that this command belongs to."`
	Parent    cli.Text `placeholder:"RUN" help:"The run that starts it; by default the one in THREAD_RUN_ID."`
	Trigger   cli.Text `placeholder:"KIND" help:"What started it: message, manual_action, api_action, hook or system."`
	Ref       cli.Text `placeholder:"REF" help:"Which message, action or hook that was."`
	Initiator cli.Text `placeholder:"REF" help:"Who it is for; by default the subject of the session."`
	Agent     cli.Text `placeholder:"AGENT" help:"The agent; by default the session's agent."`
	Metadata  cli.Text `placeholder:"JSON" help:"More about it, as an object."`
	Trace     cli.Text `name:"traceparent" placeholder:"ID" help:"The trace that it belongs to, as the W3C writes it; by default that in TRACEPARENT."`
	Request   cli.Text `name:"request-id" placeholder:"ID" help:"The request that it belongs to; by default that in THREAD_REQUEST_ID."`
}

// row returns the run that the flags and the environment describe.
func (c *newRun) row(ctx context.Context, h *history.History) (history.RunRow, error) {
	r := history.RunRow{ID: c.ID.Value, SessionID: c.Session.Value, ParentRunID: c.Parent.Value, TriggerType: c.Trigger.Or("manual_action"),
		TriggerRef: c.Ref.Value, InitiatorRef: c.Initiator.Value, AgentName: c.Agent.Value}
	var err error
	if r.Metadata, err = c.metadata(); err != nil {
		return r, err
	}
	if !c.Parent.Set {
		r.ParentRunID = recorded(ctx, h, env(envRun))
	}
	if r.ParentRunID != "" && !c.Session.Set {
		var parent history.RunRow
		if err := h.Get(ctx, &parent, r.ParentRunID); err != nil {
			return r, err
		}
		r.SessionID = parent.SessionID
	}
	return r, nil
}

// metadata returns what --metadata says, with the trace context.
func (c *newRun) metadata() (json.RawMessage, error) {
	m, err := jsonText("--metadata", c.Metadata)
	if err != nil {
		return nil, err
	}
	if m != nil && m[0] != '{' {
		return nil, cli.UsageError("--metadata is not a JSON object", `give for example {"ticket":7}`)
	}
	for name, value := range map[string]string{"traceparent": c.Trace.Or(env(envTrace)), "request_id": c.Request.Or(env(envRequest))} {
		if value != "" && err == nil {
			m, err = history.SetMember(m, name, value)
		}
	}
	return m, err
}

type runStartCmd struct {
	newRun
	cli.JSONFlag
}

var runStartVerb = &cli.Verb{
	Name: "run start", Summary: "Record a run that starts now and print its id",
	Details: `For a program that records its own steps; thread run exec does it around a command.
The program reports that its run lives, with thread run beat or with any
write, at least every 15 s: recovery ends a run that is silent for longer.`,
	Exits: "0 recorded\n1 over a limit\n75 another run of the session is active",
	Examples: `R=$(thread run start --thread ./inbox --session S --trigger message --ref 42 --agent coder)
thread run end --thread ./inbox --status completed "$R"`,
	Errors: errorWords, Grammar: func() cli.Command { return new(runStartCmd) },
}

func (c *runStartCmd) Run(ctx context.Context, a *cli.App) error {
	return with(ctx, a, c.Thread, func(h *history.History) error {
		row, err := c.row(ctx, h)
		if err != nil {
			return err
		}
		r, err := h.StartRun(ctx, row)
		if err != nil {
			return err
		}
		if row, err = r.Row(ctx); err != nil {
			return err
		}
		return put(a, c.JSON, &row, row.ID)
	})
}

type runNextCmd struct {
	cli.ThreadFlags
	Wait bool `help:"Wait until a run is ready."`
	cli.JSONFlag
}

var runNextVerb = &cli.Verb{
	Name: "run next", Summary: "Take the oldest run that is ready, and print its id",
	Details: `The run is running then, and its caller ends it. No two callers get the same.
Exit code 1 says that none is ready.`,
	Exits:    "0 taken\n1 none is ready",
	Examples: `thread run next --thread ./inbox --wait --json`,
	Errors:   errorWords, Grammar: func() cli.Command { return new(runNextCmd) },
}

func (c *runNextCmd) Run(ctx context.Context, a *cli.App) error {
	return with(ctx, a, c.Thread, func(h *history.History) error {
		ctx, stop := cli.Interruptible(ctx)
		defer stop()
		claim := h.Claim
		if c.Wait {
			claim = h.ClaimWait
		}
		_, row, err := claim(ctx)
		if err != nil {
			return err
		}
		return put(a, c.JSON, &row, row.ID)
	})
}
