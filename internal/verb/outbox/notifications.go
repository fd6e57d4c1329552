package outbox

import (
	"context"
	"fmt"
	"strconv"

	"thread/engine"
	"thread/internal/cli"
	"thread/internal/terminal"
	"thread/outbox"
)

type notificationsCmd struct {
	cli.ThreadFlags
	User     cli.Text `placeholder:"USER" help:"Whose notifications."`
	Unread   bool     `help:"Only those that were not read."`
	ByThread bool     `name:"by-thread" help:"One line for each thread of the application, with its counts."`
	Limit    cli.Text `placeholder:"N" help:"At most N, the newest; also with --by-thread."`
	cli.JSONFlag
	Words []string `arg:"" optional:"" name:"read" help:"The word read, and the ids of notifications to mark as read."`
}

var notificationsVerb = &cli.Verb{
	Name:    "notifications",
	Args:    "[read id...]",
	Summary: "List a user's notifications, or mark some as read",
	Details: `Newest first: id, when, event type, thread, who, whether it was read, and the
preview. With read, those that are named are marked as read, all or none.`,
	Exits: "0 listed, perhaps none, or marked\n1 there is no such notification",
	Examples: `thread notifications --thread ./inbox --user 5 --unread
thread notifications --thread ./inbox --user 5 --by-thread --json
thread notifications --thread ./inbox read 17 18`,
	Grammar: func() cli.Command { return new(notificationsCmd) },
}

func (c *notificationsCmd) Run(ctx context.Context, a *cli.App) error {
	if len(c.Words) > 0 {
		return c.read(ctx, a)
	}
	if c.User.Value == "" {
		return cli.UsageError("missing flag --user", "say whose notifications")
	}
	limit := int64(0)
	if c.Limit.Set {
		var err error
		if limit, err = parseCount("--limit", c.Limit.Value); err != nil {
			return err
		}
	}
	t, err := a.Open(c.Thread.Value)
	if err != nil {
		return err
	}
	defer t.Close()
	var list []outbox.Notification
	err = t.View(ctx, func(tx *engine.Tx) (err error) {
		list, err = outbox.Notifications(tx, c.User.Value, c.Unread, int(limit))
		return err
	})
	if err != nil {
		return err
	}
	if c.ByThread {
		return byThread(a, outbox.ByThread(list), c.JSON)
	}
	table := &terminal.Table{Out: &a.Out, Columns: terminal.TableColumns(a.Out.W), Number: true, Least: []int{6, 24, 16, 8, 8, 6}}
	for i := range list {
		n := &list[i]
		if c.JSON {
			err = printJSON(a, n)
		} else {
			read := "unread"
			if n.ReadAt != nil {
				read = "read"
			}
			err = table.Row(strconv.FormatInt(n.ID, 10), n.Created, n.Type, terminal.Printable(n.ThreadID.String()), terminal.Printable(n.Actor.String()), read, terminal.Printable(n.Preview))
		}
		if err != nil {
			return err
		}
	}
	return table.Flush()
}

func byThread(a *cli.App, groups []outbox.ThreadNotifications, json bool) (err error) {
	table := &terminal.Table{Out: &a.Out, Columns: terminal.TableColumns(a.Out.W), Least: []int{8, 24, 8, 8}}
	for i := range groups {
		g := &groups[i]
		if json {
			err = printJSON(a, g)
		} else {
			err = table.Row(terminal.Printable(g.ThreadID.String()), g.Latest.Created, strconv.Itoa(g.Count), strconv.Itoa(g.Unread)+" unread", terminal.Printable(g.Latest.Preview))
		}
		if err != nil {
			return err
		}
	}
	return table.Flush()
}

func (c *notificationsCmd) read(ctx context.Context, a *cli.App) error {
	if c.Words[0] != "read" || len(c.Words) < 2 || c.User.Set || c.Unread || c.ByThread || c.Limit.Set {
		return cli.UsageError("the arguments are not the word read and ids", "run thread notifications read 17, or list with --user")
	}
	var ids []int64
	for _, word := range c.Words[1:] {
		id, err := cli.ParseID("id", word)
		if err != nil {
			return err
		}
		ids = append(ids, id)
	}
	t, err := a.Open(c.Thread.Value)
	if err != nil {
		return err
	}
	defer t.Close()
	n := 0
	err = t.Update(ctx, func(tx *engine.Tx) error {
		n = 0
		for _, id := range ids {
			found, changed, err := outbox.MarkRead(tx, id)
			if err != nil {
				return err
			}
			if !found {
				return cli.LogicError(fmt.Sprintf("there is no notification %d", id), "see their ids with thread notifications --user")
			}
			if changed {
				n++
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	if c.JSON {
		warnUnprinted(a, a.Out.Text(fmt.Sprintf(`{"marked":%d}`+"\n", n)))
		return nil
	}
	warnUnprinted(a, a.Out.Text(fmt.Sprintf("Marked as read: %d\n", n)))
	return nil
}
