// Package take is the verb outbox take but for the database that it takes from:
// thread-sqlite has it for SQLite, thread-net for PostgreSQL.
package take

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"thread/engine"
	"thread/event"
	"thread/internal/apptable"
	"thread/internal/cli"
	"thread/outbox"
)

// Command is the grammar.
type Command struct {
	cli.ThreadFlags
	From   cli.Text `required:"" placeholder:"URL" help:"Where the table is: sqlite:FILE, or postgres://HOST/DATABASE."`
	Table  cli.Text `placeholder:"TABLE" help:"The application's outbox table (default event_outbox)."`
	Name   cli.Text `name:"source-name" placeholder:"NAME" help:"Where rows have no event_id: theirs is NAME:rowid, or NAME: and the primary key. It must be another one for each table that is taken."`
	Batch  cli.Text `placeholder:"N" help:"How many rows are taken in one transaction, at most (default 100)."`
	Follow bool     `short:"f" help:"Go on, with a look each second, until interrupted."`
	cli.JSONFlag
}

// Verb is the verb without what differs.
func Verb() *cli.Verb {
	return &cli.Verb{
		Name:    "outbox take",
		Summary: "Take messages out of an application's own outbox table",
		Details: `For an application whose records are in SQLite or PostgreSQL: it writes its outbox
table in the transaction of its own records, and each row whose status is pending comes
into the thread once, by its event_id, and becomes processed. Wherever either side is
killed, the next call goes on. Columns have the names of a message's members; a JSON
object in the column payload gives further ones. A row that is not a message becomes
failed, with the reason in the column error. See docs/OUTBOX.md.`,
		Exits: "0 taken, perhaps nothing; with -f: interrupted\n1 the table cannot be read",
		Examples: `thread outbox take --thread ./inbox --from sqlite:app.db --table event_outbox
thread outbox take --thread ./inbox --from postgres://db.example.org/app --follow`,
	}
}

// BusyRule is the line of the table of error words for apptable.ErrBusy.
var BusyRule = cli.Rule{Is: apptable.ErrBusy, Code: 1, Fix: "retry; what was taken is not taken again"}

// Reached is called at the places where tests kill the process.
var Reached = func(place string) {}

// taker is one run.
type taker struct {
	a     *cli.App
	t     *engine.Thread
	table apptable.Table
	name  string
	batch int

	taken      int64
	duplicates int64
	refused    int64
}

// Take opens the thread and then the table, which messages call target, and takes its
// rows.
func (c *Command) Take(ctx context.Context, a *cli.App, target string, open func(context.Context, string) (apptable.Table, error)) error {
	batch, ok := cli.ParseNumber(c.Batch.Or("100"))
	if !ok || batch < 1 || batch > 10_000 {
		return cli.UsageError(fmt.Sprintf("--batch %q is not a number from 1 to 10000", c.Batch.Value), "give a whole number")
	}
	t, err := a.Open(c.Thread.Value)
	if err != nil {
		return err
	}
	defer t.Close()
	a.Target = target
	ctx, stop := cli.Interruptible(ctx)
	defer stop()
	table, err := open(ctx, c.Table.Or("event_outbox"))
	if err != nil {
		return err
	}
	defer table.Close()
	k := &taker{a: a, t: t, table: table, name: c.Name.Value, batch: int(batch)}
	if err := k.run(ctx, c.Follow); err != nil {
		return err
	}
	if c.JSON {
		return a.Out.Text(fmt.Sprintf(`{"taken":%d,"duplicates":%d,"refused":%d}`+"\n", k.taken, k.duplicates, k.refused))
	}
	return a.Out.Text(fmt.Sprintf("Took %d messages; %d were duplicates, %d were refused\n", k.taken, k.duplicates, k.refused))
}

func (k *taker) run(ctx context.Context, follow bool) error {
	said := ""
	for {
		var err error
		for more := true; more && err == nil; {
			more, err = k.take(ctx)
		}
		switch {
		case follow && ctx.Err() != nil:
			return nil // interrupted, as it was to be
		case follow && errors.Is(err, apptable.ErrBusy): // the next look may succeed
			if now := err.Error(); now != said {
				fmt.Fprintf(k.a.Stderr, "Warning: %s; trying again each second\n", cli.Printable(now))
				said = now
			}
		case err != nil || !follow:
			return err
		default:
			said = ""
		}
		timer := time.NewTimer(outbox.PollInterval)
		select {
		case <-ctx.Done():
		case <-timer.C:
		}
		timer.Stop()
	}
}

// take takes the next rows: they are durable in the thread before they are marked,
// and their event_ids keep those that were taken before from being stored again.
func (k *taker) take(ctx context.Context) (more bool, err error) {
	rows, err := k.table.Pending(ctx, k.batch)
	if err != nil || len(rows) == 0 {
		return false, err
	}
	Reached("read")
	marks := make([]apptable.Mark, 0, len(rows))
	var messages []outbox.Message
	for i := range rows {
		row := &rows[i]
		key := ""
		if k.name != "" && row.Name != "" {
			key = k.name + ":" + row.Name
		}
		m, err := outbox.MessageOfRow(row.Values, key)
		if err != nil {
			why := strings.TrimPrefix(err.Error(), event.ErrInvalid.Error()+": ")
			k.a.Warn("the row %s is not a message: %s", cmp.Or(row.Name, "without a key"), why)
			marks = append(marks, apptable.Mark{Row: row, Status: string(outbox.Failed), Error: why})
			continue
		}
		messages = append(messages, m)
		marks = append(marks, apptable.Mark{Row: row, Status: string(outbox.Processed)})
	}
	inserted, err := k.insert(ctx, messages)
	if err != nil {
		return false, err
	}
	Reached("stored")
	if inserted > 0 {
		k.a.NotStarted("outbox take: the messages are stored", cli.Wake(ctx, k.t, outbox.Source))
	}
	// What is stored is marked, also after Ctrl-C.
	marked, err := k.table.Mark(context.WithoutCancel(ctx), marks)
	if err != nil {
		return false, err
	}
	if marked == 0 && len(rows) == k.batch {
		return false, cli.LogicError("the rows stay pending: the database gives them another status than the one that is written", "see what its triggers do")
	}
	Reached("marked")
	k.taken += inserted
	k.duplicates += int64(len(messages)) - inserted
	k.refused += int64(len(rows) - len(messages))
	return len(rows) == k.batch, nil
}

// insert stores the messages and returns how many were not there yet.
func (k *taker) insert(ctx context.Context, messages []outbox.Message) (inserted int64, err error) {
	if len(messages) == 0 {
		return 0, nil
	}
	err = k.t.Update(ctx, func(tx *engine.Tx) error {
		inserted = 0
		for _, m := range messages {
			in, err := outbox.Insert(tx, m)
			if err != nil {
				return err
			}
			if !in.Duplicate {
				inserted++
			}
		}
		return nil
	})
	return inserted, err
}
