package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"thread/engine"
	"thread/internal/address"
	"thread/internal/target"
	"thread/internal/terminal"
)

// RefuseHistory returns an error if the thread directory is the history of another
// one: what a verb does to events would take rows from it, or add what is none.
func (a *App) RefuseHistory() error {
	of := address.HistoryOf(a.Dir)
	if !IsURL(a.Dir) {
		of = target.HistoryOf(a.Dir)
	}
	if of == "" {
		return nil
	}
	return LogicError(a.Dir+" is the history of "+of, "drop old history events with thread history prune --thread "+ShellWord(of)+", and record with thread run and thread message")
}

// OpenEvents is Open for a verb that adds events or drops some.
func (a *App) OpenEvents(dir string) (*engine.Thread, error) {
	if err := a.SetDir("--thread", dir); err != nil {
		return nil, err
	}
	if err := a.RefuseHistory(); err != nil {
		return nil, err
	}
	return a.Open(dir)
}

// historyWords are the lines about damage of the history of the thread of, whose events
// are in another file: nothing is advised that would touch them.
func (a *App) historyWords(of string) []Rule {
	const unaffected = "; the events of its thread are not affected"
	fix := "run thread repair --thread " + ShellWord(a.Dir) + " --to <new directory>, move " + ShellWord(a.Dir) + " away and the new directory into its place, then run thread history rebuild --thread " +
		ShellWord(of) + "; where nothing can be saved, moving it away is enough"
	database := "the history " + filepath.Join(a.Dir, "events.db")
	return []Rule{
		{engine.ErrSQLite, 1, database + " is a SQLite database" + unaffected, "move it away and run thread history import --thread " + ShellWord(of) + " <file>"},
		{engine.ErrEmpty, 1, database + " is empty" + unaffected, fix},
		{engine.ErrNotDatabase, 1, database + " is not a thread database" + unaffected, fix},
		{engine.ErrCorrupt, 1, database + " is damaged" + unaffected, fix},
	}
}

// HistoryDamaged reports whether err is damage of a thread's history, which keeps no command from
// running.
func HistoryDamaged(err error) bool {
	var of interface {
		error
		HistoryDir() string
	}
	return errors.As(err, &of) && !errors.Is(err, engine.ErrBusy) && !errors.Is(err, fs.ErrPermission)
}

// Unrecorded warns at once that what follows is not recorded, if err is damage of the history, and
// reports whether it is.
func (a *App) Unrecorded(err error) bool {
	if !HistoryDamaged(err) {
		return false
	}
	f := a.explain(err)
	text := "what runs now is not recorded: " + f.What + " - " + f.Fix
	fmt.Fprintf(a.Stderr, "Warning: %s\n", terminal.Printable(text))
	LogWarningOf(a.Dir, "%s", text)
	return true
}
