package survive

import (
	"database/sql"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	_ "modernc.org/sqlite"
)

// mirror is where the operation has the SQLite mirror of the history.
func (s *started) mirror() string { return s.dir + ".mirror.db" }

// noMirror leaves none there, nor what belongs to one.
func noMirror(t *testing.T, s *started) {
	names, err := filepath.Glob(s.mirror() + "*")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if err := os.Remove(name); err != nil {
			t.Fatal(err)
		}
	}
}

// lateMirror leaves one that is three history events behind.
func lateMirror(t *testing.T, s *started) {
	noMirror(t, s)
	thread(t, "", "history", "mirror", "--thread", s.dir, "--to", s.mirror())
	thread(t, "", "message", "add", "--thread", s.dir, "--session", "one", "--role", "user", "--content", "late")
	thread(t, "", "run", "start", "--thread", s.dir, "--session", "two", "--id", "late")
}

// tornMirror leaves one that the log does not continue, as it was pruned beyond it.
func tornMirror(t *testing.T, s *started) {
	lateMirror(t, s)
	thread(t, "", "history", "prune", "--thread", s.dir, "--keep-last", "1")
}

// mirrorCatchesUp runs the mirror without a fault: it must then be what a new one is.
func mirrorCatchesUp(t *testing.T, s *started) error {
	if r := run(t, "", program, "history", "mirror", "--thread", s.dir, "--to", s.mirror()); r.code != 0 {
		return fmt.Errorf("it cannot be mirrored afterwards: %v", r)
	}
	return mirrorIsNew(t, s.dir, s.mirror())
}

// mirrorIsNew compares a mirror with one that is made now.
func mirrorIsNew(t *testing.T, dir, path string) error {
	fresh := filepath.Join(t.TempDir(), "fresh.db")
	thread(t, "", "history", "mirror", "--thread", dir, "--to", fresh)
	want, err := mirroredRows(fresh)
	if err != nil {
		return err
	}
	got, err := mirroredRows(path)
	if err == nil && got != want {
		err = fmt.Errorf("the mirror is not what a new one is: %s", differing(want, got))
	}
	if err == nil && !strings.Contains(got, "runs ") {
		err = fmt.Errorf("nothing is mirrored: %s", got)
	}
	return err
}

// mirroredRows returns all rows of a mirror and how far it is.
func mirroredRows(path string) (string, error) {
	db, err := sql.Open("sqlite", "file:"+path+"?mode=ro")
	if err != nil {
		return "", err
	}
	defer db.Close()
	var b strings.Builder
	for _, query := range []string{
		"sessions ORDER BY id", "messages ORDER BY id", "runs ORDER BY id", "run_steps ORDER BY id", "tool_calls ORDER BY id",
		"hook_runs ORDER BY id", "action_runs ORDER BY id", "artifacts ORDER BY id",
		"(SELECT workspace_id, last_event_id, status, error_message FROM mirror_state) ORDER BY 1",
	} {
		rows, err := db.Query("SELECT * FROM " + query)
		if err != nil {
			return "", err
		}
		columns, err := rows.Columns()
		if err != nil {
			return "", err
		}
		values, into := make([]any, len(columns)), make([]any, len(columns))
		for i := range values {
			into[i] = &values[i]
		}
		for rows.Next() {
			if err := rows.Scan(into...); err != nil {
				return "", err
			}
			fmt.Fprintf(&b, "%s %q\n", strings.Fields(query)[0], values)
		}
		if err := rows.Err(); err != nil {
			return "", err
		}
		rows.Close()
	}
	return b.String(), nil
}
