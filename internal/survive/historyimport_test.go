package survive

import (
	"fmt"
	"path/filepath"
	"testing"

	"thread/history"
)

// importable makes a history.db, once: a session with a run and a message.
func importable(t *testing.T, s *started) {
	if s.source != "" {
		return
	}
	s.source = filepath.Join(t.TempDir(), "history.db")
	other := filepath.Join(t.TempDir(), "other")
	thread(t, "", "init", other)
	thread(t, "", "session", "start", "--thread", other, "--id", "imported")
	thread(t, "", "message", "add", "--thread", other, "--session", "imported", "--role", "user", "--content", "hi")
	thread(t, "", "run", "enqueue", "--thread", other, "--session", "imported", "--id", "imported")
	thread(t, "", "history", "mirror", "--thread", other, "--to", s.source)
}

// importedWhole imports once more, in a copy: nothing is missing then, and a third
// import changes nothing.
func importedWhole(t *testing.T, s *started) error {
	dir := filepath.Join(t.TempDir(), "thread")
	copyDir(t, s.dir, dir)
	var last kept
	for i := range 2 {
		if r := run(t, "", program, "history", "import", "--thread", dir, s.source); r.code != 0 {
			return fmt.Errorf("it cannot be imported afterwards: %v", r)
		}
		k, h, err := keptIn(dir)
		if err != nil {
			return err
		}
		if i > 0 && k != last {
			return fmt.Errorf("one more import changed\n%s to\n%s", last.rows, k.rows)
		}
		last = k
		messages := 0
		for _, err := range h.Messages(ctx, history.Query{Session: "imported"}) {
			if err != nil {
				return err
			}
			messages++
		}
		if messages != 1 {
			return fmt.Errorf("%d messages are imported", messages)
		}
	}
	return nil
}
