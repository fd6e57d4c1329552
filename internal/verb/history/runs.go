package history

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"thread/engine"
	"thread/event"
	"thread/history"
	"thread/internal/cli"
	"thread/internal/jsonform"
	"thread/internal/terminal"
)

type runsCmd struct {
	cli.ThreadFlags
	cli.RootFlag
	All      bool     `help:"Also those that have ended."`
	Failed   bool     `help:"Only those that have failed, or timed out."`
	Active   bool     `help:"Only those that run or wait (the default)."`
	Consumer cli.Text `short:"c" placeholder:"CONSUMER" help:"Only this consumer's."`
	Key      cli.Text `placeholder:"KEY" help:"Only deliveries of thread consume --parallel --key with this key, under thread serve."`
	Follow   bool     `short:"f" help:"Follow runs as they end, until interrupted."`
	Limit    cli.Text `placeholder:"N" help:"At most N that have ended, the newest (default 100, 0 for all)."`
	cli.JSONFlag

	table *terminal.Table // on a terminal
	shown int             // runs of the thread that is asked
}

var runsVerb = &cli.Verb{
	Name: "runs", Summary: "Show which handlers run or wait, and how their runs ended",
	Details: `For each consumer that runs or waits, prints its state (queued, running, or waiting for
a retry) and duration. Under thread serve it also prints the lane, and for a running
handler its process id and whether it is streaming or compacting. Deliveries of thread
consume --parallel have separate lines. Runs of the queue follow, up to 100 that are
queued and 100 that wait, with what holds them. Ended runs are listed newest first: result,
time, duration, event, the event's source, and the last line of output. thread logs
shows the rest. Successful runs are kept for a day, failed runs for a week; thread
history retain changes this. thread run list lists agents' runs as well.`,
	Exits: "0 listed, perhaps none",
	Examples: `thread runs --thread ./inbox
thread runs --thread ./inbox --failed
thread runs --root ~/threads --failed
thread runs --thread ./inbox --all -c mail --json | jq -r .run_id`,
	Errors: errorWords, Grammar: func() cli.Command { return new(runsCmd) },
}

const defaultRuns = 100

func (c *runsCmd) Run(ctx context.Context, a *cli.App) error {
	if c.Active && (c.All || c.Failed) || c.All && c.Failed {
		return cli.UsageError("--active, --all and --failed exclude each other", "give one of them")
	}
	if c.Key.Set && (c.All || c.Failed || c.Follow) {
		return cli.UsageError("--key is about what runs or waits", "leave out --all, --failed and --follow")
	}
	limit := int64(defaultRuns)
	if c.Limit.Set {
		n, ok := cli.ParseNumber(c.Limit.Value)
		if !ok {
			return cli.UsageError(fmt.Sprintf("--limit %q is not a number", c.Limit.Value), "give how many runs, 0 for all")
		}
		limit = n
	}
	if c.Several(&c.Thread) && c.Follow {
		return cli.UsageError("--follow follows one thread", "name it with --thread in place of --root")
	}
	q := history.HandlerQuery{Consumer: c.Consumer.Value, Failed: c.Failed, Limit: limit}
	return c.Each(a, &c.Thread, c.JSON, func(dir string) error {
		c.table = tableOnTerminal(a, c.JSON, []int{8, 7, 20, 5, 5, 6, 6}, "CONSUMER", "STATE", "SINCE", "FOR", "EVENT", "SOURCE", "RUN", "EXIT")
		err := c.one(ctx, a, dir, q)
		if c.table != nil {
			err = errors.Join(err, c.table.Flush())
		}
		return err
	})
}

// one shows the runs of one thread.
func (c *runsCmd) one(ctx context.Context, a *cli.App, dir string, q history.HandlerQuery) error {
	t, err := a.Open(dir)
	if err != nil {
		return err
	}
	defer t.Close()
	c.shown = 0
	if !c.Failed {
		if err := c.active(ctx, a, t); err != nil {
			return err
		}
	}
	if !c.All && !c.Failed && !c.Follow {
		return c.orUnsubscribed(ctx, a, t)
	}
	return withRuns(ctx, a, func(h *history.History) error {
		if c.All || c.Failed {
			for r, err := range h.HandlerRuns(ctx, q) {
				if err == nil && r.Ended() {
					err = c.put(a, &r)
				}
				if err != nil {
					return err
				}
			}
		}
		if err := c.orUnsubscribed(ctx, a, t); err != nil || !c.Follow {
			return err
		}
		ctx, stop := cli.Interruptible(ctx)
		defer stop()
		if c.table != nil {
			if err := c.table.Flush(); err != nil {
				return err
			}
		}
		if err := a.Out.Flush(); err != nil {
			return err
		}
		for r, err := range h.FollowHandlerRuns(ctx, q) {
			switch {
			case err != nil && ctx.Err() != nil:
				return nil
			case err == nil && r.ID != "":
				err = c.put(a, &r)
			}
			if err == nil && c.table != nil {
				err = c.table.Flush()
			}
			if err != nil {
				return err
			}
			if err = a.Out.Flush(); err != nil {
				return err
			}
		}
		return nil
	})
}

// orUnsubscribed returns the error about a consumer without runs that is not subscribed.
func (c *runsCmd) orUnsubscribed(ctx context.Context, a *cli.App, t *engine.Thread) error {
	if c.shown > 0 || !c.Consumer.Set {
		return nil
	}
	return a.CheckSubscribed(ctx, t, c.Consumer.Value)
}

// withRuns opens the history of the directory that the verb is about, with all runs of
// handlers in it that have ended.
func withRuns(ctx context.Context, a *cli.App, fn func(h *history.History) error) error {
	h, err := history.Open(ctx, a.Dir, history.WithLogLines(a.LogInfo))
	if err != nil {
		return err
	}
	_, err = h.TakeRuns(ctx) // what Open could not take, and why
	if err = ofHistory(h, err); err != nil {
		return err
	}
	return ofHistory(h, fn(h))
}

// active prints the consumers that are on their way: as its server knows them, where
// there is one.
func (c *runsCmd) active(ctx context.Context, a *cli.App, t *engine.Thread) error {
	var key *string
	if c.Key.Set {
		key = &c.Key.Value
	}
	list, err := activeRuns(ctx, t, key)
	if err != nil {
		return err
	}
	for i := range list {
		r := &list[i]
		if c.Consumer.Set && r.Consumer != c.Consumer.Value {
			continue
		}
		c.shown++
		if c.JSON {
			err = a.Out.JSON(newActiveJSON(r))
		} else if c.table != nil {
			err = c.table.Row(r.row()...)
		} else {
			err = a.Out.Text(r.line() + "\n")
		}
		if err != nil {
			return err
		}
	}
	if c.Consumer.Set || c.Key.Set {
		return nil // these are about handlers
	}
	return c.held(ctx, a)
}

// held prints the runs of the queue, with what holds them.
func (c *runsCmd) held(ctx context.Context, a *cli.App) error {
	h, err := history.Open(ctx, a.Dir, history.LeaveRuns(), history.WithLogLines(a.LogInfo))
	if err != nil {
		return err
	}
	defer h.Close()
	for _, status := range []string{history.Queued, history.Waiting} {
		for r, err := range h.Runs(ctx, history.Query{Status: status, Limit: defaultRuns, Oldest: true}) {
			if err == nil {
				err = c.putHeld(a, &r)
			}
			if err != nil {
				return ofHistory(h, err)
			}
		}
	}
	return nil
}

func (c *runsCmd) putHeld(a *cli.App, r *history.RunRow) error {
	c.shown++
	switch {
	case c.JSON:
		return a.Out.JSON(struct {
			RunID string        `json:"run_id"`
			Agent string        `json:"agent"`
			State string        `json:"state"`
			Since string        `json:"since"`
			Hold  *history.Hold `json:"hold"`
		}{r.ID, r.EffectiveAgentName, r.Status, event.FormatTime(r.CreatedAt), history.HoldOf(r)})
	case c.table != nil:
		return c.table.Row(terminal.Printable(r.EffectiveAgentName), r.Status, second(r.CreatedAt), brief(time.Since(r.CreatedAt)), "", "", r.ID, terminal.Printable(holds(r)))
	}
	return a.Out.Text(line(labelled("run", r.ID), labelled("agent", r.EffectiveAgentName), r.Status+" for "+brief(time.Since(r.CreatedAt)), holds(r)) + "\n")
}

func (r *activeRun) line() string {
	text := terminal.Printable(r.Consumer)
	if r.Event != 0 {
		text += fmt.Sprintf("  event %d", r.Event)
	}
	if r.Key != nil {
		text += ", key " + terminal.Printable(*r.Key) + ","
	}
	text += fmt.Sprintf("  %s for %s", r.State, max(0, time.Since(r.Since)).Truncate(time.Millisecond))
	if r.Lane != "" {
		text += ", lane " + terminal.Printable(r.Lane)
	}
	if r.PID != 0 {
		text += fmt.Sprintf(", pid %d", r.PID)
	}
	if r.Activity != "" {
		text += ", " + r.Activity
	}
	return text
}

// row is what line says, for a table; what comes last has no separate column.
func (r *activeRun) row() []string {
	eventID, key, lane, pid := "", "", labelled("lane", r.Lane), ""
	if r.Event != 0 {
		eventID = strconv.FormatInt(r.Event, 10)
	}
	if r.Key != nil {
		key = "key " + *r.Key
	}
	if r.PID != 0 {
		pid = "pid " + strconv.Itoa(r.PID)
	}
	return []string{terminal.Printable(r.Consumer), r.State, second(r.Since), brief(time.Since(r.Since)), eventID, "", r.RunID,
		line(key, lane, pid, r.Activity)}
}

// second is when something was, for a column, which has no room for more.
func second(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// brief is how long something took, for a column.
func brief(d time.Duration) string {
	switch d = max(0, d); {
	case d < time.Second:
		return d.Round(time.Millisecond).String()
	case d < time.Minute:
		return d.Round(100 * time.Millisecond).String()
	}
	return d.Round(time.Second).String()
}

// activeJSON is a run in the forms of docs/reference/json.md.
type activeJSON struct {
	Consumer string  `json:"consumer_id"`
	Event    int64   `json:"event_id,omitempty"`
	Key      *string `json:"key,omitempty"`
	State    string  `json:"state"`
	Lane     string  `json:"lane"`
	Since    string  `json:"since"`
	RunID    string  `json:"run_id"`
	PID      int     `json:"pid"`
	Activity string  `json:"activity"`
	RetryAt  string  `json:"retry_at,omitempty"`
}

func newActiveJSON(r *activeRun) activeJSON {
	j := activeJSON{r.Consumer, r.Event, r.Key, r.State, r.Lane, event.FormatTime(r.Since), r.RunID, r.PID, r.Activity, ""}
	if !r.RetryAt.IsZero() {
		j.RetryAt = event.FormatTime(r.RetryAt)
	}
	return j
}

// endedJSON is a run that has ended.
type endedJSON struct {
	Consumer   string  `json:"consumer_id"`
	State      string  `json:"state"`
	Since      string  `json:"since"` // when it ended
	RunID      string  `json:"run_id"`
	StartedAt  string  `json:"started_at"`
	DurationMS int64   `json:"duration_ms"`
	Exit       string  `json:"exit"`
	ExitCode   *int64  `json:"exit_code"`
	EventID    *int64  `json:"event_id"`
	Source     *string `json:"source"`
	AckedFrom  int64   `json:"acked_from"`
	AckedTo    int64   `json:"acked_to"`
	Error      *string `json:"error"`
}

func newEndedJSON(r *history.RunRow) endedJSON {
	h, _ := history.HandlerOf(r)
	j := endedJSON{Consumer: r.AgentName, State: r.Status, Since: event.FormatTime(r.EndedAt), RunID: r.ID, StartedAt: event.FormatTime(r.StartedAt),
		DurationMS: r.Duration(r.EndedAt).Milliseconds(), Exit: h.Exit, ExitCode: h.ExitCode, AckedFrom: h.AckedFrom, AckedTo: h.AckedTo,
		Source: jsonform.Null(r.InitiatorRef), Error: jsonform.Null(r.ErrorMessage)}
	if id, err := strconv.ParseInt(r.TriggerRef, 10, 64); err == nil {
		j.EventID = &id
	}
	return j
}

// put prints a run that has ended.
func (c *runsCmd) put(a *cli.App, r *history.RunRow) error {
	c.shown++
	if c.JSON {
		return a.Out.JSON(newEndedJSON(r))
	}
	if c.table == nil {
		return a.Out.Text(endedLine(r) + "\n")
	}
	return c.table.Row(terminal.Printable(r.AgentName), r.Status, second(r.EndedAt), brief(r.Duration(r.EndedAt)),
		terminal.Printable(r.TriggerRef), terminal.Printable(r.InitiatorRef), r.ID, terminal.Printable(firstLine(exitOfHandler(r))))
}

func exitOfHandler(r *history.RunRow) string {
	h, _ := history.HandlerOf(r)
	return cmp.Or(r.ErrorMessage, h.Exit) // the first begins with how it ended
}

func endedLine(r *history.RunRow) string {
	return line(r.AgentName, r.Status, at(r.EndedAt), "after "+r.Duration(r.EndedAt).Round(time.Millisecond).String(),
		labelled("event", r.TriggerRef), labelled("from", r.InitiatorRef), labelled("run", r.ID), firstLine(exitOfHandler(r)))
}
