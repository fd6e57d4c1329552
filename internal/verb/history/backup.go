package history

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"

	"thread/history"
	"thread/internal/backup"
	"thread/internal/cli"
	"thread/internal/dispatch"
	"thread/internal/target"
	"thread/internal/terminal"
)

type backupCmd struct {
	cli.ThreadFlags
	To   cli.Text `arg:"" name:"dir" help:"Where backups are kept; outside of threads."`
	Keep cli.Text `placeholder:"N" help:"Remove all but the newest N backups."`
	cli.JSONFlag
}

var backupVerb = &cli.Verb{
	Name: "backup", Summary: "Write a checked copy of a thread and its history", Args: "<dir>",
	Details: `The copy is <dir>/000001, the next one <dir>/000002, and so on: each is a whole
thread directory, as the thread was at one moment. It is made in slices while others
push, as by thread compact, checked, and has its name only then. events*.jsonl and logs
are not part of it.`,
	Exits: "0 a checked copy is written\n1 the copy could not be written, or is not sound",
	Examples: `thread backup --thread ./inbox /mnt/backups/inbox --keep 7
thread restore /mnt/backups/inbox --to ./inbox.restored`,
	Errors: backupWords, Grammar: func() cli.Command { return new(backupCmd) },
	Directories: "dump the database with pg_dump, which has all threads and their histories",
}

func (c *backupCmd) Run(ctx context.Context, a *cli.App) error {
	keep := int64(0)
	if c.Keep.Set {
		var ok bool
		if keep, ok = cli.ParseNumber(c.Keep.Value); !ok || keep < 1 || keep > math.MaxInt32 {
			return cli.UsageError(fmt.Sprintf("--keep %q is not a number from 1 to %d", c.Keep.Value, math.MaxInt32), "give how many backups to keep")
		}
	}
	if err := a.SetDir("--thread", c.Thread.Value); err != nil {
		return err
	}
	to, err := cli.Resolve(c.To.Value)
	if err == nil && c.To.Value == "" {
		err = cli.UsageError("the directory is empty", "name where backups are kept")
	}
	if err != nil {
		return err
	}
	if err = target.Outside(filepath.Join(to, "000001")); err != nil {
		return err
	}
	d, err := backup.Create(ctx, a.Dir, to, int(keep))
	if err != nil {
		return err
	}
	if err := printBackup(a, c.JSON, "Wrote", d); err != nil || d.History == nil {
		return err
	}
	a.Warn("the backup is without the history, and older backups were kept")
	return &history.DirError{Dir: filepath.Join(a.Dir, history.Dir), Err: d.History}
}

func printBackup(a *cli.App, json bool, verb string, d backup.Done) error {
	if json {
		return a.Out.IndentedJSON(struct {
			Dir     string `json:"dir"`
			Events  int64  `json:"event_count"`
			Copied  int64  `json:"copied_count"`
			Digest  string `json:"digest"`
			Removed int    `json:"removed_count"`
			Count   *int   `json:"consumer_count,omitempty"`
			Deliver *int   `json:"deliver_count,omitempty"`
			Paused  *bool  `json:"paused,omitempty"`
		}{d.Dir, d.Events, d.Copied, d.Digest, d.Removed, restored(verb, &d.Count), restored(verb, &d.Deliver), restored(verb, &d.Paused)})
	}
	more := ""
	if d.Copied < d.Events {
		more = fmt.Sprintf(", of which %d are since the last backup", d.Copied)
	}
	return a.Out.Text(fmt.Sprintf("%s %s: %d events%s\nDigest: %s\n", verb, terminal.Printable(d.Dir), d.Events, more, d.Digest))
}

// restored returns a member that only restore prints.
func restored[T any](verb string, member *T) *T {
	if verb != "Restored" {
		return nil
	}
	return member
}

// sayConsumers says what a restored thread would deliver, or will.
func sayConsumers(a *cli.App, d backup.Done) {
	switch {
	case d.Count == 0:
	case d.Paused:
		a.Warn("its consumers are paused, %d in all, of which %d would deliver events at once: run thread resume --thread %s --consumer <name> for each, or restore with --deliver", d.Count, d.Deliver, cli.ShellWord(d.Dir))
	case d.Deliver > 0:
		a.Warn("%d of its %d consumers have events to deliver: the next push, thread dispatch or thread serve starts their handlers", d.Deliver, d.Count)
	}
}

type restoreCmd struct {
	From    cli.Text     `arg:"" name:"dir" help:"A backup, or the directory of backups, for the newest."`
	To      cli.Text     `required:"" placeholder:"NEWDIR" help:"The directory to make; nothing is replaced."`
	Paused  bool         `help:"Pause all consumers. The default where the thread that was backed up is still there, or a thread serve has a thread in the same directory as NEWDIR."`
	Deliver bool         `help:"Leave consumers as they were, also there."`
	Help    cli.HelpFlag `short:"h" help:"Show this help."`
	cli.JSONFlag
}

var restoreVerb = &cli.Verb{
	Name: "restore", Summary: "Make a thread of a backup", Args: "<dir>",
	Details: `Copies a backup, checks the copy, and gives it its name. What has happened since the
backup is not in it: consumers get events again, and ids that were given since are given
again to other events. It says how many consumers would deliver events at once.`,
	Exits: "0 restored\n1 the backup is damaged, or --to is a thread already",
	Examples: `thread restore /mnt/backups/inbox --to ./inbox.restored
thread restore /mnt/backups/inbox/000003 --to ./inbox.restored`,
	Errors: backupWords, Grammar: func() cli.Command { return new(restoreCmd) },
	Directories: "restore the database with pg_restore",
}

func (c *restoreCmd) Run(ctx context.Context, a *cli.App) error {
	if c.From.Value == "" || c.To.Value == "" {
		return cli.UsageError("a directory is empty", "name the backup, and a new directory with --to")
	}
	from, err := cli.Resolve(c.From.Value)
	if err != nil {
		return err
	}
	to, err := cli.Resolve(c.To.Value)
	if err != nil {
		return err
	}
	if err = target.Outside(to); err != nil {
		return err
	}
	a.Dir = from
	if c.Paused && c.Deliver {
		return cli.UsageError("--paused and --deliver exclude each other", "give one of them")
	}
	serving := slices.ContainsFunc(cli.ThreadsIn(filepath.Dir(to)), dispatch.Served)
	d, err := backup.Restore(ctx, from, to, backup.RestoreOptions{Paused: c.Paused, Deliver: c.Deliver, Serving: serving})
	if errors.Is(err, os.ErrExist) {
		return cli.Taken(to)
	}
	if err != nil {
		return err
	}
	sayConsumers(a, d)
	return printBackup(a, c.JSON, "Restored", d)
}

func backupWords(a *cli.App) []cli.Rule {
	return append([]cli.Rule{
		{Is: backup.ErrNone, Code: 1, Fix: "name a directory that thread backup has written to"},
		{Is: backup.ErrFaults, Code: 1, Fix: "run thread check on the thread, and check the disk; nothing was replaced"},
	}, errorWords(a)...)
}
