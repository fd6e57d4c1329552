package cli

import (
	"os"
	"path/filepath"

	"thread/engine"
)

// historyDir is the name of the directory in which a thread keeps its history, as of
// package history, which not every program links.
const historyDir = "history"

// RefuseHistory returns an error if the thread directory is the history of another
// one: what a verb does to events would take rows from it, or add what is none.
func (a *App) RefuseHistory() error {
	dir := a.Dir
	if info, err := os.Lstat(dir); err == nil && info.Mode()&os.ModeSymlink != 0 {
		if real, err := filepath.EvalSymlinks(dir); err == nil {
			dir = real
		}
	}
	of := filepath.Dir(dir)
	if filepath.Base(dir) != historyDir || IsURL(dir) {
		return nil
	}
	if _, err := os.Lstat(filepath.Join(of, "events.db")); err != nil {
		return nil // it only has the name
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
