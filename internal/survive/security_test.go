package survive

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestModes makes and uses a thread under every umask that could matter. All
// directories are 0700 and all files 0600.
func TestModes(t *testing.T) {
	for _, umask := range []string{"000", "022", "077", "277", "777"} {
		t.Run(umask, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "parent", "thread")
			script := fmt.Sprintf(`umask %s
				%[2]s init %[3]s && %[2]s push --thread %[3]s --source s --type t --content c &&
				%[2]s subscribe --thread %[3]s --consumer c --handler true &&
				rm -r %[3]s/run %[3]s/logs %[3]s/events.jsonl &&
				%[2]s push --thread %[3]s --source s --type t --content c &&
				%[2]s compact --thread %[3]s && %[2]s repair --thread %[3]s --to %[3]s.new`, umask, program, dir)
			if r := run(t, "", "sh", "-c", script); r.code != 0 {
				t.Fatal(r)
			}
			err := filepath.WalkDir(filepath.Dir(dir), func(path string, e fs.DirEntry, err error) error {
				if err != nil {
					return err
				}
				info, err := e.Info()
				want := fs.FileMode(0o600)
				if e.IsDir() {
					want = 0o700
				}
				if err == nil && info.Mode().Perm() != want {
					t.Errorf("%s is %v, want %v", path, info.Mode().Perm(), want)
				}
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
		})
	}
}

// TestLinks puts symbolic links in the place of files. They are not followed: what
// they point to stays as it is.
func TestLinks(t *testing.T) {
	for _, name := range []string{"events.db", "events.journal", "events.jsonl", "run/.gate", "logs/thread.log", "events.db.compact"} {
		t.Run(strings.ReplaceAll(name, "/", "_"), func(t *testing.T) {
			dir, victim := filepath.Join(t.TempDir(), "thread"), filepath.Join(t.TempDir(), "victim")
			fresh(t, dir)
			if err := os.WriteFile(victim, []byte("precious"), 0o600); err != nil {
				t.Fatal(err)
			}
			path := filepath.Join(dir, name)
			if err := os.Remove(path); err != nil && !os.IsNotExist(err) {
				t.Fatal(err)
			}
			if err := os.Symlink(victim, path); err != nil {
				t.Fatal(err)
			}
			push := run(t, "", program, "push", "--thread", dir, "--source", "s", "--type", "t", "--content", "c")
			if want := name == "events.db" || name == "events.journal"; (push.code != 0) != want {
				t.Errorf("push: %v", push)
			}
			run(t, "", program, "compact", "--thread", dir)
			if got, err := os.ReadFile(victim); err != nil || string(got) != "precious" {
				t.Errorf("the link was followed: %q, %v", got, err)
			}
		})
	}
}
