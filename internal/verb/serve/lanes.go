package serve

import (
	"context"
	"fmt"
	"time"

	"thread/internal/cli"
	"thread/internal/serve"
)

type lanesCmd struct {
	cli.ThreadFlags
	Key cli.Text `placeholder:"KEY" help:"The session lane of this key, of thread consume --parallel --key."`
	cli.JSONFlag
}

func lanesVerb() *cli.Verb {
	return &cli.Verb{
		Name:    "lanes",
		Summary: "Show the lanes of thread serve",
		Details: `For each lane that is in use or configured: how many handlers run in it, its
limit, how many wait and for how long the first of them. A thread serve has its
lanes in common for all of its threads. The session lanes of keys, in which one
delivery runs at a time, are shown one by one, with --key.`,
		Exits:    "0 listed, perhaps none\n1 no thread serve runs for the thread",
		Examples: `thread lanes --thread ./inbox`,
		Grammar:  func() cli.Command { return new(lanesCmd) },
		Errors:   errorWords,
	}
}

func (c *lanesCmd) Run(_ context.Context, a *cli.App) error {
	answer, err := ask(a, c.Thread.Value, serve.Request{Op: "lanes", Key: (&keyFlag{c.Key}).key()})
	if err != nil {
		return err
	}
	table := cli.Table{Out: &a.Out, Columns: cli.TableColumns(a.Out.W), Least: []int{12, 6, 5, 7}}
	table.Header("LANE", "ACTIVE", "LIMIT", "WAITING", "OLDEST")
	for _, l := range answer.Lanes {
		if c.JSON {
			err = a.Out.JSON(laneJSON{l.Name, l.Limit, l.Active, l.Queued, l.OldestMS})
		} else {
			oldest := "-"
			if l.Queued > 0 {
				oldest = (time.Duration(l.OldestMS) * time.Millisecond).String()
			}
			err = table.Row(cli.Printable(l.Name), fmt.Sprint(l.Active), fmt.Sprint(l.Limit), fmt.Sprint(l.Queued), oldest)
		}
		if err != nil {
			return err
		}
	}
	return table.Flush()
}

type laneJSON struct {
	Name     string `json:"name"`
	Limit    int    `json:"limit"`
	Active   int    `json:"active"`
	Queued   int    `json:"queued"`
	OldestMS int64  `json:"oldest_ms"`
}
