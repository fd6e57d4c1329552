package serve

import (
	"context"
	"fmt"
	"time"

	"thread/internal/cli"
	"thread/internal/serve"
	"thread/internal/terminal"
	"thread/lane"
)

type lanesCmd struct {
	cli.ThreadFlags
	Key   cli.Text `placeholder:"KEY" help:"The session lane of this key, of thread consume --parallel --key."`
	Clear cli.Text `placeholder:"LANE" help:"Take what waits in this lane out of it, of all threads of the server, and print how many. What runs is not changed."`
	cli.JSONFlag
}

var lanesVerb = &cli.Verb{
	Name:    "lanes",
	Summary: "Show the lanes of a thread serve, which must run",
	Details: `For each lane that is in use or configured: how many handlers run in it, its
limit, how many wait and for how long the first of them. A thread serve has its
lanes in common for all of its threads. The session lanes of keys, in which one
delivery runs at a time, are shown one by one, with --key. With --clear, handlers that
wait in the lane are not started for what is unread now before the thread's next push;
their events stay. Deliveries of thread consume --parallel stay in the lane.`,
	Exits:    "0 listed or cleared, perhaps none\n1 no thread serve runs for the thread",
	Examples: "thread lanes --thread ./inbox\nthread lanes --thread ./inbox --clear main",
	Grammar:  func() cli.Command { return new(lanesCmd) },
	Errors:   errorWords,
}

func (c *lanesCmd) Run(ctx context.Context, a *cli.App) error {
	if c.Clear.Set {
		return c.clear(ctx, a)
	}
	answer, err := ask(ctx, a, c.Thread.Value, serve.Request{Op: "lanes", Key: (&keyFlag{c.Key}).key()})
	if err != nil {
		return err
	}
	table := terminal.Table{Out: &a.Out, Columns: terminal.TableColumns(a.Out.W), Least: []int{12, 6, 5, 7}}
	table.Header("LANE", "ACTIVE", "LIMIT", "WAITING", "OLDEST")
	for _, l := range answer.Lanes {
		if c.JSON {
			err = a.Out.JSON(laneJSON{l.Name, l.Limit, l.Active, l.Queued, l.OldestMS})
		} else {
			oldest := "-"
			if l.Queued > 0 {
				oldest = (time.Duration(l.OldestMS) * time.Millisecond).String()
			}
			err = table.Row(terminal.Printable(l.Name), fmt.Sprint(l.Active), fmt.Sprint(l.Limit), fmt.Sprint(l.Queued), oldest)
		}
		if err != nil {
			return err
		}
	}
	return table.Flush()
}

func (c *lanesCmd) clear(ctx context.Context, a *cli.App) error {
	name := lane.GlobalLane(c.Clear.Value)
	if c.Key.Set || lane.SessionLane(name) == name {
		return cli.UsageError("--clear is for a lane with a limit, not for the session lane of a key", "name a lane that thread lanes shows")
	}
	answer, err := askWhatRuns(ctx, a, c.Thread.Value, serve.Request{Op: "clear", Lane: name})
	if err != nil {
		return err
	}
	if c.JSON {
		return a.Out.JSON(clearJSON{name, answer.Count})
	}
	return a.Out.Text(fmt.Sprintf("Cleared: %d\n", answer.Count))
}

type clearJSON struct {
	Lane    string `json:"lane"`
	Cleared int    `json:"cleared"`
}

type laneJSON struct {
	Name     string `json:"name"`
	Limit    int    `json:"limit"`
	Active   int    `json:"active"`
	Queued   int    `json:"queued"`
	OldestMS int64  `json:"oldest_ms"`
}
