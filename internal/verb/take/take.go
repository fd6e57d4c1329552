// Package take is the verb outbox take except for the database that it takes from:
// thread-sqlite has it for SQLite, thread-net for PostgreSQL.
package take

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"thread/engine"
	"thread/event"
	"thread/internal/apptable"
	"thread/internal/cli"
	"thread/internal/terminal"
	"thread/outbox"
)

// Command is the grammar.
type Command struct {
	cli.ThreadFlags
	From   cli.Text `required:"" placeholder:"URL" help:"Where the table is: sqlite:FILE, or postgres://HOST/DATABASE."`
	Table  cli.Text `placeholder:"TABLE" help:"The application's outbox table (default event_outbox)."`
	Name   cli.Text `name:"source-name" placeholder:"NAME" help:"Where rows have no event_id: theirs is NAME:rowid, or NAME: and the primary key. It must be another one for each table that is taken."`
	Batch  cli.Text `placeholder:"N" help:"How many rows are taken in one transaction, at most (default 100)."`
	Mark   bool     `name:"mark-refused" help:"Give rows that are not messages the status failed; without it they stay pending, and the exit code is 1."`
	Follow bool     `short:"f" help:"Follow, with a look each second, until interrupted."`
	cli.JSONFlag
}

// Verb is the verb without what differs.
var Verb = &cli.Verb{
	Name:    "outbox take",
	Summary: "Take messages out of an application's own outbox table",
	Details: `For an application whose records are in SQLite or PostgreSQL: it writes its outbox
table in the same transaction as its records, and each row whose status is pending comes
into the thread once, by its event_id, and becomes processed. Wherever either side is
killed, the next call continues. Columns have the names of a message's members; a JSON
object in the column payload gives further ones. A row that is not a message stays
pending; with --mark-refused it becomes failed, with the reason in the column error. See
docs/reference/outbox.md.`,
	Exits: "0 taken, perhaps nothing; with -f: interrupted\n1 the table cannot be read or marked, or rows stay pending: the others are taken",
	Examples: `thread outbox take --thread ./inbox --from sqlite:app.db --table event_outbox
thread outbox take --thread ./inbox --from postgres://db.example.org/app --follow`,
}

// Rules are the lines of the table of error words for each database.
var Rules = []cli.Rule{
	{Is: apptable.ErrRefused, Code: 1, Fix: "let the constraints and triggers of the table accept the status; nothing was taken"},
	{Is: apptable.ErrBusy, Code: 1, Fix: "retry; what was taken is not taken again"},
}

// Reached is called at the places where tests kill the process.
var Reached = func(place string) {}

// taker is one run.
type taker struct {
	a     *cli.App
	t     *engine.Thread
	table apptable.Table
	name  string
	batch int
	mark  bool // rows that are not messages are marked

	tried bool            // the database marks rows
	no    error           // why it has marked none yet
	left  map[string]bool // the rows that stay pending, and why

	stayed []string // warnings of rows that the database refuses to mark

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
	k := &taker{a: a, t: t, table: table, name: c.Name.Value, batch: int(batch), mark: c.Mark, left: map[string]bool{}}
	err = k.run(ctx, c.Follow)
	if err == nil && !c.Follow && !k.tried && k.no != nil {
		return k.no // for all of the rows
	}
	for _, w := range k.stayed {
		a.Warn("%s", w)
	}
	if err != nil {
		return err
	}
	if err := k.print(c.JSON); err != nil || c.Follow || len(k.left) == 0 {
		return err
	}
	return cli.LogicError(fmt.Sprintf("rows that stay pending: %d; the others are taken", len(k.left)), "correct the rows, or what the table demands of them; --mark-refused makes rows that are not messages failed")
}

func (k *taker) print(json bool) error {
	a := k.a
	if json {
		return a.Out.Text(fmt.Sprintf(`{"taken":%d,"duplicates":%d,"refused":%d}`+"\n", k.taken, k.duplicates, k.refused))
	}
	return a.Out.Text(fmt.Sprintf("Took %d messages; %d were duplicates, %d were refused\n", k.taken, k.duplicates, k.refused))
}

func (k *taker) run(ctx context.Context, follow bool) error {
	said := ""
	for {
		var err error
		k.table.Rewind()
		for more := true; more && err == nil; {
			more, err = k.take(ctx)
		}
		switch {
		case follow && ctx.Err() != nil:
			return nil // interrupted, as it was to be
		case follow && errors.Is(err, apptable.ErrBusy): // the next look may succeed
			if now := err.Error(); now != said {
				fmt.Fprintf(k.a.Stderr, "Warning: %s; trying again each second\n", terminal.Printable(now))
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
	if ok, err := k.try(ctx, rows); err != nil || !ok {
		return len(rows) == k.batch, err
	}
	var rules *outbox.Rules
	err = k.t.View(ctx, func(tx *engine.Tx) (err error) { rules, err = outbox.ReadRules(tx); return err })
	if err != nil {
		return false, err
	}
	var messages []outbox.Message
	var marks []apptable.Mark
	for i := range rows {
		row := &rows[i]
		m, err := outbox.MessageOfRow(rules, row.Values, k.key(row))
		if err == nil {
			messages = append(messages, m)
			marks = append(marks, apptable.Mark{Row: row, Status: string(outbox.Processed)})
			continue
		}
		why := strings.TrimPrefix(err.Error(), event.ErrInvalid.Error()+": ")
		first := k.mark || k.stays(row, why)
		if first {
			k.a.Warn("the row %s is not a message: %s", cmp.Or(row.Name, "without a key"), why)
			k.refused++
		}
		if k.mark {
			marks = append(marks, apptable.Mark{Row: row, Status: string(outbox.Failed), Error: why})
		}
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
	refused, err := k.table.Mark(context.WithoutCancel(ctx), marks, false)
	if err != nil {
		return false, err
	}
	k.stay(marks, refused)
	Reached("marked")
	k.taken += inserted
	k.duplicates += int64(len(messages)) - inserted
	return len(rows) == k.batch, nil
}

// key is what names a row that has no event_id.
func (k *taker) key(row *apptable.Row) string {
	if k.name == "" || row.Name == "" {
		return ""
	}
	return k.name + ":" + row.Name
}

// stay notes the rows that the database refuses to mark.
func (k *taker) stay(marks []apptable.Mark, refused []error) {
	for i, err := range refused {
		if err != nil && k.stays(marks[i].Row, err.Error()) {
			k.stayed = append(k.stayed, fmt.Sprintf("the row %s stays pending: %v", cmp.Or(marks[i].Row.Name, "without a key"), err))
		}
	}
}

// stays notes a row that stays pending. It reports whether it is the first time.
func (k *taker) stays(row *apptable.Row, why string) bool {
	id := fmt.Sprint(row.Name, row.Place, why)
	first := !k.left[id]
	k.left[id] = true
	return first
}

// try marks rows with each status that may be written, and takes it back, until a row could be
// marked. It returns false for rows that all have to stay: none of them is stored.
func (k *taker) try(ctx context.Context, rows []apptable.Row) (bool, error) {
	if k.tried {
		return true, nil
	}
	_, named := rows[0].Values["event_id"]
	_, payload := rows[0].Values["payload"]
	if !named && !payload && k.key(&rows[0]) == "" {
		return false, cli.LogicError("the table has no column event_id", "give --source-name NAME, for which the table needs a primary key of one column")
	}
	statuses := []outbox.Status{outbox.Processed}
	if k.mark {
		statuses = append(statuses, outbox.Failed)
	}
	for _, status := range statuses {
		marks := make([]apptable.Mark, len(rows))
		for i := range rows {
			marks[i] = apptable.Mark{Row: &rows[i], Status: string(status)}
			if status == outbox.Failed {
				marks[i].Error = "refused"
			}
		}
		refused, err := k.table.Mark(ctx, marks, true)
		if err != nil {
			return false, err
		}
		if !slices.Contains(refused, nil) {
			k.no = fmt.Errorf("%w %s: %w", apptable.ErrRefused, status, refused[0])
			k.stay(marks, refused)
			return false, nil
		}
	}
	k.tried = true
	return true, nil
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
