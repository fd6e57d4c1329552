package outbox

import (
	"context"
	"fmt"
	"slices"
	"strconv"

	"thread/engine"
	"thread/internal/cli"
	"thread/internal/similar"
	"thread/internal/terminal"
	"thread/outbox"
)

type listCmd struct {
	cli.ThreadFlags
	EventID cli.Text `name:"event-id" placeholder:"ID" help:"Only the record with this event_id."`
	Status  cli.Text `placeholder:"STATUS" help:"Only those that are pending, processed or failed."`
	Type    cli.Text `placeholder:"TYPE" help:"Only those with this event type."`
	After   cli.Text `placeholder:"N" help:"Only those with a higher number, to continue from."`
	Limit   cli.Text `placeholder:"N" help:"At most N (default 100)."`
	cli.JSONFlag
}

var listVerb = &cli.Verb{
	Name:    "outbox list",
	Summary: "List the messages of the outbox and what became of them",
	Details: `One line per record: number, status, event type, event_id, retries, when it is
available, and the last error. --json has the payload and all receipts, too.`,
	Exits: "0 listed, perhaps none",
	Examples: `thread outbox list --thread ./inbox --status failed
thread outbox list --thread ./inbox --event-id evt_20260226_9f3a1c --json`,
	Grammar: func() cli.Command { return new(listCmd) },
}

func (c *listCmd) query() (q outbox.Query, err error) {
	q.Status, q.Type = outbox.Status(c.Status.Value), c.Type.Value
	if c.Status.Set && q.Status != outbox.Pending && q.Status != outbox.Processed && q.Status != outbox.Failed {
		return q, cli.UsageError(fmt.Sprintf("--status %q is not a status", c.Status.Value), "say pending, processed or failed")
	}
	if c.After.Set {
		if q.After, err = cli.ParseID("--after", c.After.Value); err != nil {
			return q, err
		}
	}
	if c.Limit.Set {
		n, err := parseCount("--limit", c.Limit.Value)
		q.Limit = int(n)
		return q, err
	}
	return q, nil
}

func (c *listCmd) Run(ctx context.Context, a *cli.App) error {
	q, err := c.query()
	if err != nil {
		return err
	}
	t, err := a.Open(c.Thread.Value)
	if err != nil {
		return err
	}
	defer t.Close()
	var list []outbox.Record
	err = t.View(ctx, func(tx *engine.Tx) (err error) {
		if !c.EventID.Set {
			if list, err = outbox.List(tx, q); err != nil || len(list) > 0 || !c.Type.Set {
				return err
			}
			rules, err := outbox.ReadRules(tx)
			if types := rules.Types(); err == nil && !slices.Contains(types, q.Type) {
				err = cli.UsageError(similar.Unknown("type", q.Type, types), "see thread outbox config")
			}
			return err
		}
		id, err := find(tx, a, c.EventID.Value)
		if err != nil {
			return err
		}
		rec, _, err := outbox.Get(tx, id)
		list = []outbox.Record{rec}
		return err
	})
	if err != nil {
		return err
	}
	table := &terminal.Table{Out: &a.Out, Columns: terminal.TableColumns(a.Out.W), Number: true, Least: []int{8, 10, 16, 20, 7, 24}}
	for i := range list {
		r := &list[i]
		if c.JSON {
			err = printJSON(a, r)
		} else {
			problem := ""
			if r.Error != nil {
				problem = *r.Error
			}
			err = table.Row(strconv.FormatInt(r.ID, 10), string(r.Status), r.EventType, terminal.Printable(r.EventID), strconv.FormatInt(r.RetryCount, 10), r.AvailableAt, terminal.Printable(problem))
		}
		if err != nil {
			return err
		}
	}
	return table.Flush()
}

// find returns the number of the record with that event_id.
func find(tx *engine.Tx, a *cli.App, eventID string) (int64, error) {
	id, ok, err := outbox.Find(tx, eventID)
	if err == nil && !ok {
		err = cli.LogicError("there is no message with the event_id '"+eventID+"'", "see thread outbox list --thread "+cli.ShellWord(a.Dir))
	}
	return id, err
}

type retryCmd struct {
	cli.ThreadFlags
	All bool     `help:"Every failed message."`
	IDs []string `arg:"" optional:"" name:"event_id" help:"Messages by their event_id."`
	cli.JSONFlag
}

var retryVerb = &cli.Verb{
	Name:    "outbox retry",
	Args:    "[event_id...]",
	Summary: "Make failed messages pending again",
	Details: `They have all their attempts again. All that are named become pending, or none. Then
a relay is started.`,
	Exits: "0 pending again\n1 no such message, or it has not failed",
	Examples: `thread outbox retry --thread ./inbox evt_20260226_9f3a1c
thread outbox retry --thread ./inbox --all`,
	Grammar: func() cli.Command { return new(retryCmd) },
}

// retryAtOnce is how many failed messages become pending in one transaction.
const retryAtOnce = 500

func (c *retryCmd) Run(ctx context.Context, a *cli.App) error {
	if c.All == (len(c.IDs) > 0) {
		return cli.UsageError("no message is named, or --all together with one", "give event_ids, or --all")
	}
	t, err := a.Open(c.Thread.Value)
	if err != nil {
		return err
	}
	defer t.Close()
	n := 0
	for more := true; more; {
		var done int
		err := t.Update(ctx, func(tx *engine.Tx) error {
			done, more = 0, false
			if !c.All {
				for _, eventID := range c.IDs {
					if err := retry(tx, a, eventID); err != nil {
						return err
					}
					done++
				}
				return nil
			}
			var err error
			done, err = outbox.RetryFailed(tx, retryAtOnce)
			more = done == retryAtOnce
			return err
		})
		if err != nil {
			return err
		}
		n += done
	}
	if n > 0 {
		a.NotStarted("outbox retry: done", cli.Wake(ctx, t, outbox.Source))
	}
	if c.JSON {
		warnUnprinted(a, a.Out.Text(fmt.Sprintf(`{"retried":%d}`+"\n", n)))
		return nil
	}
	warnUnprinted(a, a.Out.Text(fmt.Sprintf("Pending again: %d\n", n)))
	return nil
}

func retry(tx *engine.Tx, a *cli.App, eventID string) error {
	id, err := find(tx, a, eventID)
	if err != nil {
		return err
	}
	failed, err := outbox.Retry(tx, id)
	if err != nil || failed {
		return err
	}
	rec, _, err := outbox.Get(tx, id)
	if err != nil {
		return err
	}
	return cli.LogicError(fmt.Sprintf("the message '%s' is %s", eventID, rec.Status), "retry one that has failed: see thread outbox list --status failed")
}

// parseCount reads a number in [1, 2^31).
func parseCount(flag, s string) (int64, error) {
	n, ok := cli.ParseNumber(s)
	if !ok || n < 1 || n > 1<<31-1 {
		return 0, cli.UsageError(fmt.Sprintf("%s %q is not a number from 1 to %d", flag, s, 1<<31-1), "give a whole number")
	}
	return n, nil
}
