package sqlite

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"thread/compat"
	"thread/engine"
	"thread/event"
	"thread/internal/cli"
	"thread/outbox"
)

type takeCmd struct {
	cli.ThreadFlags
	From   cli.Text `required:"" placeholder:"URL" help:"Where the table is: sqlite:FILE."`
	Table  cli.Text `placeholder:"NAME" help:"The application's outbox table (default event_outbox)."`
	Name   cli.Text `name:"source-name" placeholder:"NAME" help:"Where rows have no event_id: theirs is NAME:rowid. It must be another one for each table that is taken."`
	Batch  cli.Text `placeholder:"N" help:"How many rows are taken in one transaction, at most (default 100)."`
	Follow bool     `short:"f" help:"Go on, with a look each second, until interrupted."`
	cli.JSONFlag
}

func takeVerb() *cli.Verb {
	return &cli.Verb{
		Name:    "outbox take",
		Summary: "Take messages out of an application's own outbox table",
		Details: `For an application whose records are in SQLite: it writes its outbox table in the
transaction of its own records, and each row whose status is pending comes into the
thread once, by its event_id, and becomes processed. Wherever either side is
killed, the next call goes on. Columns have the names of a message's members; a JSON
object in the column payload gives further ones. A row that is not a message becomes
failed, with the reason in the column error. See docs/OUTBOX.md.`,
		Examples: `thread outbox take --thread ./inbox --from sqlite:app.db --table event_outbox
thread outbox take --thread ./inbox --from sqlite:app.db --follow`,
		Grammar: func() cli.Command { return new(takeCmd) },
		Errors: func(a *cli.App) []cli.Rule {
			return append([]cli.Rule{
				{Is: compat.ErrNotSQLite, Code: 1, What: a.Target + " is not a SQLite database", Fix: "name the application's database file"},
				{Is: compat.ErrNoTable, Code: 1, Fix: "name the table with --table; it needs a rowid and the columns event_type and status"},
				{Is: compat.ErrTableBusy, Code: 1, Fix: "retry; what was taken is not taken again"},
			}, errorWords(a)...)
		},
	}
}

// taken counts what became of rows.
type taken struct {
	Taken      int64 `json:"taken"`
	Duplicates int64 `json:"duplicates"`
	Refused    int64 `json:"refused"`
}

func (c *takeCmd) Run(ctx context.Context, a *cli.App) error {
	scheme, file, _ := strings.Cut(c.From.Value, ":")
	switch {
	case scheme == "postgres" || scheme == "postgresql":
		return cli.LogicError("rows cannot be taken from PostgreSQL yet", "insert them with thread outbox add, or keep the outbox table in SQLite")
	case scheme != "sqlite" || file == "":
		return cli.UsageError(fmt.Sprintf("--from %q is not sqlite:FILE", c.From.Value), "say for example sqlite:app.db")
	}
	batch, ok := cli.ParseNumber(c.Batch.Or("100"))
	if !ok || batch < 1 || batch > 10_000 {
		return cli.UsageError(fmt.Sprintf("--batch %q is not a number from 1 to 10000", c.Batch.Value), "give a whole number")
	}
	path, err := cli.Resolve(file)
	if err != nil {
		return err
	}
	t, err := a.Open(c.Thread.Value)
	if err != nil {
		return err
	}
	defer t.Close()
	a.Target = path
	if !compat.Available { // a constant: all that follows is left out of such a build
		return compat.ErrNoSQLite
	}
	ctx, stop := cli.Interruptible(ctx)
	defer stop()
	table, err := compat.OpenTable(ctx, path, c.Table.Or("event_outbox"), "event_type", "status")
	if err != nil {
		return err
	}
	defer table.Close()
	var sum taken
	for {
		more := true
		for more && err == nil {
			more, err = c.take(ctx, a, t, table, int(batch), &sum)
		}
		switch {
		case c.Follow && ctx.Err() != nil:
			err = nil // interrupted, as it was to be
		case errors.Is(err, compat.ErrTableBusy) && c.Follow:
			err = nil // the next look may succeed
		}
		if err != nil || !c.Follow || ctx.Err() != nil {
			break
		}
		timer := time.NewTimer(outbox.PollInterval)
		select {
		case <-ctx.Done():
		case <-timer.C:
		}
		timer.Stop()
	}
	if err != nil {
		return err
	}
	if c.JSON {
		return a.Out.Text(fmt.Sprintf(`{"taken":%d,"duplicates":%d,"refused":%d}`+"\n", sum.Taken, sum.Duplicates, sum.Refused))
	}
	return a.Out.Text(fmt.Sprintf("Took %d messages; %d were duplicates, %d were refused\n", sum.Taken, sum.Duplicates, sum.Refused))
}

// reached is called at the places where a test kills the process.
var reached = func(place string) {}

// take takes the next rows: they are durable in the thread before they are marked,
// and their event_ids keep those that were taken before from being stored again.
func (c *takeCmd) take(ctx context.Context, a *cli.App, t *engine.Thread, table *compat.Table, batch int, sum *taken) (more bool, err error) {
	rows, err := table.Pending(ctx, batch)
	if err != nil || len(rows) == 0 {
		return false, err
	}
	reached("read")
	marks := make([]compat.Mark, 0, len(rows))
	var messages []outbox.Message
	for i := range rows {
		row := &rows[i]
		key := ""
		if c.Name.Value != "" {
			key = fmt.Sprintf("%s:%d", c.Name.Value, row.RowID)
		}
		m, err := outbox.MessageOfRow(row.Values, key)
		if err != nil {
			why := strings.TrimPrefix(err.Error(), event.ErrInvalid.Error()+": ")
			a.Warn("the row %d is not a message: %s", row.RowID, why)
			marks = append(marks, compat.Mark{Row: row, Status: string(outbox.Failed), Error: why})
			continue
		}
		messages = append(messages, m)
		marks = append(marks, compat.Mark{Row: row, Status: string(outbox.Processed)})
	}
	var inserted, duplicates int64
	if len(messages) > 0 {
		err = t.Update(ctx, func(tx *engine.Tx) error {
			inserted, duplicates = 0, 0
			for _, m := range messages {
				in, err := outbox.Insert(tx, m)
				if err != nil {
					return err
				}
				if in.Duplicate {
					duplicates++
				} else {
					inserted++
				}
			}
			return nil
		})
		if err != nil {
			return false, err
		}
	}
	reached("stored")
	if inserted > 0 {
		a.NotStarted("outbox take: the messages are stored", cli.Wake(ctx, t, outbox.Source))
	}
	// What is stored is marked, also after Ctrl-C.
	marked, err := table.Mark(context.WithoutCancel(ctx), marks)
	if err != nil {
		return false, err
	}
	if marked == 0 && len(rows) == batch {
		return false, cli.LogicError("the rows stay pending: the database gives them another status than the one that is written", "see what its triggers do")
	}
	reached("marked")
	sum.Taken += inserted
	sum.Duplicates += duplicates
	sum.Refused += int64(len(rows) - len(messages))
	return len(rows) == batch, nil
}
