//go:build (linux && (386 || amd64 || arm || arm64 || loong64 || ppc64le || riscv64 || s390x)) || (darwin && (amd64 || arm64)) || (freebsd && (amd64 || arm64)) || (netbsd && amd64) || (openbsd && (amd64 || arm64))

package compat

import (
	"bufio"
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"pgregory.net/rapid"

	"thread/engine"
	"thread/event"
	"thread/filter"
)

// fill adds n events and one row of each other kind.
func fill(t rapid.TB, db *sql.DB, n int) {
	t.Helper()
	mustExec(t, db, "BEGIN")
	for i := range n {
		mustExec(t, db, `INSERT INTO events (source, type, content) VALUES (?, 'message', ?)`, fmt.Sprint("s", i%7), strings.Repeat("x", i%100))
	}
	mustExec(t, db, `INSERT INTO subscriptions VALUES ('inbox', 'agent run', NULL), ('a', 'true', 'type=message AND source=self')`)
	mustExec(t, db, `INSERT INTO consumer_progress VALUES ('inbox', 3, '2026-03-18T10:30:00.123Z'), ('gone', 5, 'once')`)
	mustExec(t, db, "COMMIT")
}

func importTo(t testing.TB, src, dst string) (*engine.Thread, Report) {
	t.Helper()
	r, err := Import(context.Background(), src, ImportOptions{To: dst})
	if err != nil {
		t.Fatal(err, r.Faults)
	}
	th, err := engine.Open(dst)
	if err != nil {
		t.Fatal(err)
	}
	return th, r
}

func names(t testing.TB, dir string) string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var list []string
	for _, e := range entries {
		list = append(list, e.Name())
	}
	return strings.Join(list, " ")
}

func TestImportReport(t *testing.T) {
	dir := t.TempDir()
	db := createSQLite(t, dir+"/a")
	fill(t, db, 20)
	mustExec(t, db, `DELETE FROM events WHERE id > 18`)
	db.Close()
	before := names(t, dir+"/a")
	th, r := importTo(t, dir+"/a", dir+"/b")
	if r.Events != 18 || r.Head != 18 || r.LastID != 20 || r.Subscriptions != 2 || r.Consumers != 2 {
		t.Errorf("report %+v", r)
	}
	if len(r.BadFilters) != 1 || r.BadFilters[0].Consumer != "a" {
		t.Errorf("bad filters %+v", r.BadFilters)
	}
	if after := names(t, dir+"/a"); after != before {
		t.Errorf("the source had %s, and has %s", before, after)
	}
	info, err := th.Info(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	if info.EventCount != 18 || info.Subscriptions[0].Consumer != "inbox" || info.Subscriptions[0].LastAcked != 3 || info.Subscriptions[1].FilterErr == nil {
		t.Errorf("info %+v", info)
	}
	// T-43: a pop by a filter that is not accepted changes nothing.
	was := info.Subscriptions[1]
	var bad *filter.Error
	if _, err := th.Pop(context.Background(), was.Consumer, engine.PopQuery{LastAcked: was.LastAcked + 1, Limit: 1}); !errors.As(err, &bad) {
		t.Errorf("pop by a bad filter: %v", err)
	}
	if info, err = th.Info(context.Background()); err != nil || info.Subscriptions[1].LastAcked != was.LastAcked {
		t.Errorf("after that pop: %+v %v", info.Subscriptions[1], err)
	}
	e, err := th.Push(context.Background(), event.Draft{Source: "s", Type: "t", Content: "c"})
	if err != nil || e.ID != 21 {
		t.Errorf("next id %d, %v", e.ID, err)
	}
	if lines, _ := os.ReadFile(dir + "/b/events.jsonl"); bytes.Count(lines, []byte("\n")) != 19 {
		t.Errorf("events.jsonl:\n%s", lines)
	}
}

// TestImportWhileWriting: the result is a prefix of what the other program wrote.
func TestImportWhileWriting(t *testing.T) {
	dir := t.TempDir()
	db := createSQLite(t, dir+"/a")
	defer db.Close()
	fill(t, db, 5000)
	stop := make(chan struct{})
	done := make(chan int)
	started := make(chan struct{})
	go func() {
		for n := 0; ; n++ {
			select {
			case <-stop:
				done <- n
				return
			default:
			}
			// Event and progress in one transaction: a snapshot has both or neither.
			tx, err := db.Begin()
			if err != nil {
				t.Error(err)
			}
			tx.Exec(`INSERT INTO events (source, type, content) VALUES ('w', 't', 'c')`)
			tx.Exec(`UPDATE consumer_progress SET last_acked_id = (SELECT max(id) FROM events) WHERE consumer_id = 'inbox'`)
			if err := tx.Commit(); err != nil {
				t.Error(err)
			}
			if n == 0 {
				close(started)
			}
		}
	}()
	<-started
	th, r := importTo(t, dir+"/a", dir+"/b")
	close(stop)
	if written := <-done; written < 2 || r.Events <= 5000 || r.Events > 5000+int64(written) {
		t.Errorf("%d events imported, %d written meanwhile", r.Events, written)
	}
	info, err := th.Info(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	if info.Subscriptions[0].LastAcked != r.Head {
		t.Errorf("progress %d, newest %d: not one moment", info.Subscriptions[0].LastAcked, r.Head)
	}
}

func TestBadRows(t *testing.T) {
	for _, c := range []struct{ sql, fault string }{
		{`INSERT INTO events VALUES (50, 'now', x'00', 't', NULL, 'c')`, `table events, row 50: source is blob, not text`},
		{`INSERT INTO events VALUES (50, 'now', 's', 't', NULL, x'41')`, `table events, row 50: content is blob, not text`},
		{`INSERT INTO events VALUES (50, 'now', 's', 't', x'41', 'c')`, `table events, row 50: subtype is blob, not text`},
		{`INSERT INTO events VALUES (0, 'now', 's', 't', NULL, 'c')`, `table events, row 0: ids begin at 1`},
		{`INSERT INTO events VALUES (-9223372036854775808, 'now', 's', 't', NULL, 'c')`, `table events, row -9223372036854775808: ids begin at 1`},
		{`INSERT INTO subscriptions VALUES ('', 'h', NULL)`, `table subscriptions, row "": consumer_id is 0 bytes long, it must be 1 to 4096`},
		{`INSERT INTO subscriptions VALUES ('x', x'00', NULL)`, `table subscriptions, row "x": handler_cmd is blob, not text`},
		{`INSERT INTO subscriptions VALUES ('x', 'h', x'00')`, `table subscriptions, row "x": filter is blob, not text`},
		{`INSERT INTO consumer_progress VALUES ('x', 'many', 'now')`, `table consumer_progress, row "x": last_acked_id is text, not integer`},
		{`INSERT INTO consumer_progress VALUES ('x', 1.5, 'now')`, `table consumer_progress, row "x": last_acked_id is real, not integer`},
		{`INSERT INTO consumer_progress VALUES ('x', 1, x'00')`, `table consumer_progress, row "x": updated_at is blob, not text`},
		{`CREATE TABLE other (x)`, `table other: is not part of a thread`},
		{`ALTER TABLE events ADD COLUMN more TEXT`, `table events: column more is not part of a thread`},
	} {
		t.Run(c.sql, func(t *testing.T) {
			dir := t.TempDir()
			db := createSQLite(t, dir+"/a")
			defer db.Close()
			fill(t, db, 10)
			mustExec(t, db, c.sql)
			ctx := context.Background()
			r, err := Import(ctx, dir+"/a", ImportOptions{To: dir + "/deep/b"})
			if !errors.Is(err, ErrBadRows) || len(r.Faults) != 1 || r.Faults[0].String() != c.fault {
				t.Fatalf("%v, %v", err, r.Faults)
			}
			if got := names(t, dir); got != "a" {
				t.Errorf("the refused import left %s", got)
			}
			if r, err = Import(ctx, dir+"/a", ImportOptions{To: dir + "/deep/b", SkipBadRows: true}); err != nil || r.Events != 10 || len(r.Faults) != 1 {
				t.Errorf("skip: %v, %+v", err, r)
			}
			th, err := engine.Open(dir + "/deep/b")
			if err != nil {
				t.Fatal(err)
			}
			if _, err := Export(ctx, th, dir+"/c", nil); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestNotSQLite(t *testing.T) {
	dir := t.TempDir()
	if _, err := engine.Init(dir + "/ours"); err != nil {
		t.Fatal(err)
	}
	os.Mkdir(dir+"/empty", 0o700)
	os.Mkdir(dir+"/zero", 0o700)
	os.WriteFile(dir+"/zero/events.db", nil, 0o600)
	os.Mkdir(dir+"/other", 0o700)
	db, _ := sql.Open("sqlite", dir+"/other/events.db")
	mustExec(t, db, `CREATE TABLE events (x)`)
	db.Close()
	for _, name := range []string{"ours", "empty", "zero", "other", "missing"} {
		for _, to := range []string{"", dir + "/to"} {
			if _, err := Import(context.Background(), dir+"/"+name, ImportOptions{To: to}); !errors.Is(err, ErrNotSQLite) {
				t.Errorf("%s to %q: %v", name, to, err)
			}
		}
	}
	if got := names(t, dir); got != "empty other ours zero" {
		t.Errorf("left %s", got)
	}
}

func TestInPlace(t *testing.T) {
	dir := t.TempDir()
	db := createSQLite(t, dir+"/a")
	fill(t, db, 100)
	os.WriteFile(dir+"/a/events.jsonl", []byte("{\"theirs\":1}\n"), 0o600)
	if _, err := Import(context.Background(), dir+"/a", ImportOptions{}); !errors.Is(err, ErrInUse) {
		t.Fatalf("with the file open elsewhere: %v", err)
	}
	copyDir(t, dir+"/a", dir+"/before") // with a WAL
	db.Close()
	if _, err := Import(context.Background(), dir+"/a", ImportOptions{}); err != nil {
		t.Fatal(err)
	}
	if got := names(t, dir+"/a"); got != "events.db events.jsonl events.sqlite logs run" {
		t.Errorf("left %s", got)
	}
	checkInPlace(t, dir+"/before", dir+"/a")
	if _, err := Import(context.Background(), dir+"/a", ImportOptions{}); !errors.Is(err, ErrNotSQLite) {
		t.Errorf("again: %v", err)
	}
	th, err := engine.Open(dir + "/a")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := th.Push(context.Background(), event.Draft{Source: "s", Type: "t", Content: "c"}); err != nil {
		t.Fatal(err)
	}
	if lines, _ := os.ReadFile(dir + "/a/events.jsonl"); bytes.Count(lines, []byte("\n")) != 2 || !bytes.HasPrefix(lines, []byte("{\"theirs\":1}\n{\"id\":101,")) {
		t.Errorf("events.jsonl:\n%s", lines)
	}
}

// checkInPlace: dir has our database and the SQLite one, both with all that was
// there before.
func checkInPlace(t testing.TB, before, dir string) {
	t.Helper()
	th, err := engine.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	out := t.TempDir() + "/out"
	if _, err := Export(context.Background(), th, out, nil); err != nil {
		t.Fatal(err)
	}
	sameContent(t, before, out)
	old := t.TempDir()
	if err := copyFile(old+"/events.db", dir+"/events.sqlite"); err != nil {
		t.Fatal(err)
	}
	sameContent(t, before, old)
}

func copyDir(t testing.TB, from, to string) {
	t.Helper()
	if err := os.CopyFS(to, os.DirFS(from)); err != nil {
		t.Fatal(err)
	}
}

// TestInPlaceKilled kills an import with SIGKILL at each of its steps: the
// directory is still the SQLite one with all its content, and a second import
// completes.
func TestInPlaceKilled(t *testing.T) {
	for _, step := range []string{"events", "finished", "whole", "kept", "published"} {
		t.Run(step, func(t *testing.T) {
			dir := t.TempDir()
			db := createSQLite(t, dir+"/x")
			defer db.Close()
			fill(t, db, 3000)
			copyDir(t, dir+"/x", dir+"/a") // with a WAL, as after a crash
			copyDir(t, dir+"/x", dir+"/before")
			cmd := child(t, "import", dir+"/a", step)
			out, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			hold, err := cmd.StdinPipe() // open for as long as the child shall stand still
			if err != nil {
				t.Fatal(err)
			}
			defer hold.Close()
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			line, err := bufio.NewReader(out).ReadString('\n')
			cmd.Process.Kill()
			cmd.Wait()
			if err != nil || line != "at "+step+"\n" {
				t.Fatalf("child said %q, %v", line, err)
			}
			if step == "published" {
				checkInPlace(t, dir+"/before", dir+"/a")
				return
			}
			if step == "events" || step == "finished" {
				for _, name := range []string{"/events.db", "/events.db-wal"} {
					a, _ := os.ReadFile(dir + "/a" + name)
					b, _ := os.ReadFile(dir + "/before" + name)
					if len(a) == 0 || !bytes.Equal(a, b) {
						t.Errorf("%s of the source has changed", name)
					}
				}
			}
			copyDir(t, dir+"/a", dir+"/look")
			sameContent(t, dir+"/before", dir+"/look")
			if _, err := Import(context.Background(), dir+"/a", ImportOptions{}); err != nil {
				t.Fatal(err)
			}
			if got := names(t, dir+"/a"); got != "events.db events.jsonl events.sqlite logs run" {
				t.Errorf("left %s", got)
			}
			checkInPlace(t, dir+"/before", dir+"/a")
		})
	}
}

// TestInPlaceWithoutLinks: a crash between the two renames of a file system
// without hard links leaves the SQLite file under its new name only.
func TestInPlaceWithoutLinks(t *testing.T) {
	dir := t.TempDir()
	db := createSQLite(t, dir+"/a")
	fill(t, db, 10)
	db.Close()
	copyDir(t, dir+"/a", dir+"/before")
	if err := os.Rename(dir+"/a/events.db", dir+"/a/events.sqlite"); err != nil {
		t.Fatal(err)
	}
	if _, err := Import(context.Background(), dir+"/a", ImportOptions{}); err != nil {
		t.Fatal(err)
	}
	checkInPlace(t, dir+"/before", dir+"/a")
}

// child returns a command that runs this test binary as a helper; see TestMain.
func child(t testing.TB, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(os.Args[0], args...)
	cmd.Env = append(os.Environ(), "THREAD_COMPAT_CHILD=1")
	cmd.Stderr = os.Stderr
	return cmd
}

func TestMain(m *testing.M) {
	if os.Getenv("THREAD_COMPAT_CHILD") == "" {
		os.Exit(m.Run())
	}
	switch args := os.Args[1:]; args[0] {
	case "import": // directory, step at which to stand still
		stop := func(step string) {
			if step == args[2] {
				fmt.Println("at", step)
				io.Copy(io.Discard, os.Stdin)
			}
		}
		_, err := Import(context.Background(), args[1], ImportOptions{step: stop, Progress: func(int64, int64) { stop("events") }})
		fmt.Println("ended", err)
	case "read-only": // source, target
		r, err := Import(context.Background(), args[1], ImportOptions{To: args[2]})
		fmt.Println(r.Events, err)
	}
}

// TestReadOnly imports from a directory that cannot be written, in a process
// that has no privileges to do so.
func TestReadOnly(t *testing.T) {
	for _, withWAL := range []bool{false, true} {
		for _, withSHM := range []bool{false, true} {
			t.Run(fmt.Sprint("wal ", withWAL, " shm ", withSHM), func(t *testing.T) {
				dir := t.TempDir()
				db := createSQLite(t, dir+"/x")
				defer db.Close()
				fill(t, db, 10)
				if !withWAL {
					db.Close()
				}
				copyDir(t, dir+"/x", dir+"/a")
				if !withSHM {
					os.Remove(dir + "/a/events.db-shm")
				}
				cmd := child(t, "read-only", dir+"/a", dir+"/out/b")
				os.Mkdir(dir+"/out", 0o777)
				dropPrivileges(t, cmd, dir)
				filepath.Walk(dir+"/a", func(path string, info os.FileInfo, err error) error {
					return os.Chmod(path, info.Mode()&^0o222|0o444|(info.Mode().Perm()&0o100)|(info.Mode().Perm()&0o100)>>6)
				})
				t.Cleanup(func() { os.Chmod(dir+"/a", 0o700) })
				out, err := cmd.Output()
				if err != nil || string(out) != "10 <nil>\n" {
					t.Errorf("%s, %v", out, err)
				}
			})
		}
	}
}

// TestInPlaceReadOnly: a directory, or a file, that cannot be written is said in
// the system's words, and stays as it is.
func TestInPlaceReadOnly(t *testing.T) {
	for _, name := range []string{"", "/events.db"} {
		t.Run("a"+name, func(t *testing.T) {
			dir := t.TempDir()
			createSQLite(t, dir+"/a").Close()
			os.Mkdir(dir+"/out", 0o777)
			cmd := child(t, "import", dir+"/a", "")
			dropPrivileges(t, cmd, dir)
			filepath.Walk(dir+"/a", func(path string, info os.FileInfo, err error) error {
				mode := info.Mode().Perm()&^0o222 | 0o444 | (info.Mode().Perm()&0o100)>>6
				if path != dir+"/a"+name {
					mode |= 0o222
				}
				return os.Chmod(path, mode)
			})
			t.Cleanup(func() { os.Chmod(dir+"/a", 0o700) })
			before := tree(t, dir+"/a")
			out, err := cmd.Output()
			if err != nil || !strings.Contains(string(out), "permission denied") {
				t.Errorf("%s, %v", out, err)
			}
			if after := tree(t, dir+"/a"); after != before {
				t.Errorf("before:\n%s\nafter:\n%s", before, after)
			}
		})
	}
}

// TestExportsAtOnce: of several exports into one directory, one is made and whole,
// also when another one looked before that had begun and locks when it has ended.
func TestExportsAtOnce(t *testing.T) {
	th := newThread(t, 1)
	for range 20 {
		to := t.TempDir() + "/x"
		var all sync.WaitGroup
		var made atomic.Int32
		for range 8 {
			all.Go(func() {
				for n := int64(0); n == 0 && made.Load() == 0; {
					var err error
					if n, err = Export(t.Context(), th, to, nil); err == nil {
						made.Add(1)
					} else if !errors.Is(err, ErrNotEmpty) && !errors.Is(err, engine.ErrBusy) {
						t.Error(err)
						return
					}
				}
			})
		}
		all.Wait()
		if got := names(t, to); made.Load() != 1 || got != "events.db events.jsonl logs run" {
			t.Fatalf("%d were made, with %s", made.Load(), got)
		}
	}
}

// TestInterruptedTarget: what a killed import or export left in its target does
// not keep it from being run again, and anything else does.
func TestInterruptedTarget(t *testing.T) {
	for name, c := range map[string]struct {
		files []string
		want  error
	}{
		"unfinished":  {[]string{"events.db.new", "events.jsonl", "run/.init"}, nil},
		"with wal":    {[]string{"events.db.new", "events.db.new-wal"}, nil},
		"no database": {[]string{"events.jsonl"}, ErrNotEmpty},
		"a file":      {[]string{"events.db.new", "notes.txt"}, ErrNotEmpty},
		"complete":    {[]string{"events.db.new", "events.db"}, ErrNotEmpty},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			for _, f := range c.files {
				path := filepath.Join(dir, f)
				if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(path, []byte("cut sho"), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			th, err := engine.Init(filepath.Join(t.TempDir(), "ours"))
			if err != nil {
				t.Fatal(err)
			}
			if _, err := Export(context.Background(), th, dir, nil); !errors.Is(err, c.want) {
				t.Fatalf("export: %v, want %v", err, c.want)
			}
			if c.want == nil {
				if _, err := Import(context.Background(), dir, ImportOptions{To: filepath.Join(t.TempDir(), "back")}); err != nil {
					t.Errorf("import of the export: %v", err)
				}
				if _, err := os.Lstat(filepath.Join(dir, "run", ".init")); err == nil {
					t.Error("run/.init is left")
				}
			}
		})
	}
}
