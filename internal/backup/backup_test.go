package backup

import (
	"context"
	"encoding/hex"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"thread/engine"
	"thread/event"
	"thread/internal/fsck"
	"thread/jsonlog"
)

func digest(t *testing.T, dir string) string {
	t.Helper()
	th, err := engine.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer th.Close()
	sum, err := th.Digest(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return hex.EncodeToString(sum[:])
}

// TestUnderLoad: each backup of a thread that is pushed to holds the events of one
// moment, no older than when it began, and is restored as it is.
func TestUnderLoad(t *testing.T) {
	base := t.TempDir()
	dir, to := filepath.Join(base, "thread"), filepath.Join(base, "backups")
	th, err := engine.Init(dir)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	var pushed int64
	var mu sync.Mutex
	var all sync.WaitGroup
	all.Go(func() {
		for ctx.Err() == nil {
			e, err := th.Push(t.Context(), event.Draft{Source: "s", Type: "t", Content: "x"})
			if err != nil {
				t.Error(err)
				return
			}
			mu.Lock()
			pushed = e.ID
			mu.Unlock()
		}
	})
	backups := 4
	if os.Getenv("THREAD_BACKUPS") != "" {
		backups = 20
	}
	for range backups {
		mu.Lock()
		least := pushed
		mu.Unlock()
		d, err := Create(t.Context(), dir, to, 0)
		if err != nil {
			t.Fatal(err)
		}
		if d.Events < least || d.Digest != digest(t, d.Dir) {
			t.Errorf("%+v, of at least %d events", d, least)
		}
		r, err := Restore(t.Context(), d.Dir, filepath.Join(base, filepath.Base(d.Dir)), RestoreOptions{})
		if err != nil || r.Digest != d.Digest || r.Events != d.Events {
			t.Errorf("restored %+v of %+v, %v", r, d, err)
		}
	}
	stop()
	all.Wait()
	d, err := Create(t.Context(), dir, to, 2)
	if err != nil || d.Digest != digest(t, dir) || d.Removed != backups-1 {
		t.Errorf("%+v, %v", d, err)
	}
}

// TestUnfinished: what a crash leaves is in no way, and what fails leaves the earlier
// backups.
func TestUnfinished(t *testing.T) {
	base := t.TempDir()
	dir, to := filepath.Join(base, "thread"), filepath.Join(base, "backups")
	if _, err := engine.Init(dir); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(to, unfinished, historyName), 0o700); err != nil {
		t.Fatal(err)
	}
	first, err := Create(t.Context(), dir, to, 1)
	if err != nil {
		t.Fatal(err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Create(ended, dir, to, 1); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if list, err := List(to); err != nil || len(list) != 1 || list[0] != first.Dir {
		t.Errorf("%q, %v", list, err)
	}
	if _, err := Restore(ended, to, filepath.Join(base, "r"), RestoreOptions{}); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	for _, name := range []string{"file", "link"} {
		path := filepath.Join(base, name)
		if name == "file" {
			err = os.WriteFile(path, nil, 0o600)
		} else {
			err = os.Symlink("nowhere", path)
		}
		if err != nil {
			t.Fatal(err)
		}
		if _, err := Restore(t.Context(), to, path, RestoreOptions{}); !errors.Is(err, os.ErrExist) {
			t.Errorf("%s: %v", name, err)
		}
	}
	left, _ := filepath.Glob(filepath.Join(base, "*.restoring-*"))
	if more, _ := filepath.Glob(filepath.Join(to, ".*")); len(left)+len(more) > 0 {
		t.Errorf("left: %q, %q", left, more)
	}
}

// TestForeign: what has a number for its name, but is not a backup, is never removed, taken
// for the newest one, or in the way of the next one.
func TestForeign(t *testing.T) {
	base := t.TempDir()
	dir, to := filepath.Join(base, "thread"), filepath.Join(base, "backups")
	if _, err := engine.Init(dir); err != nil {
		t.Fatal(err)
	}
	foreign := []string{"7", "2026", "0000001"}
	for _, name := range foreign {
		if _, err := engine.Init(filepath.Join(to, name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join(to, "000002"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("nowhere", filepath.Join(to, "000004")); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"000005", "000006"} {
		d, err := Create(t.Context(), dir, to, 1)
		if err != nil || filepath.Base(d.Dir) != want {
			t.Fatalf("%+v, %v, want %s", d, err, want)
		}
		if list, err := List(to); err != nil || len(list) != 1 || list[0] != d.Dir {
			t.Errorf("%q, %v", list, err)
		}
	}
	last := filepath.Join(to, nameOf(1<<30-1))
	if err := os.Mkdir(last, 0o700); err != nil {
		t.Fatal(err)
	}
	if d, err := Create(t.Context(), dir, to, 1); !errors.Is(err, os.ErrExist) {
		t.Errorf("behind the last number: %+v, %v", d, err)
	}
	for _, name := range append(foreign, "000002", "000004") {
		if _, err := os.Lstat(filepath.Join(to, name)); err != nil {
			t.Error(err)
		}
	}
}

// TestLinesOfCopies: no line is missing in a backup, nor in what was restored from it and
// pushed to, whether or not the thread's lines were rotated; and the newest ones come back.
func TestLinesOfCopies(t *testing.T) {
	base := t.TempDir()
	dir, to := filepath.Join(base, "thread"), filepath.Join(base, "backups")
	th, err := engine.Init(dir)
	if err != nil {
		t.Fatal(err)
	}
	for n, c := range []struct {
		push  int
		lines int64 // in what was restored and pushed to
	}{{0, 1}, {3, 4}, {jsonlog.MaxLines, jsonlog.MaxLines + 1}, {1, 2}, {5, 7}} {
		if _, err := th.PushBatch(t.Context(), slices.Repeat([]event.Draft{{Source: "s", Type: "t"}}, c.push)); err != nil {
			t.Fatal(err)
		}
		d, err := Create(t.Context(), dir, to, 2)
		if err != nil {
			t.Fatal(err)
		}
		if r := checked(t, d.Dir); len(r.Faults) > 0 {
			t.Errorf("%d: the backup: %+v", n, r.Faults)
		}
		if d, err = Restore(t.Context(), to, filepath.Join(base, nameOf(n)), RestoreOptions{}); err != nil {
			t.Fatal(err)
		}
		restored, err := engine.Open(d.Dir)
		if err == nil {
			_, err = restored.Push(t.Context(), event.Draft{Source: "s", Type: "t"})
		}
		if err != nil {
			t.Fatal(err)
		}
		if r := checked(t, d.Dir); len(r.Faults) > 0 || r.Lines != c.lines {
			t.Errorf("%d: restored: %d lines, %+v", n, r.Lines, r.Faults)
		}
	}
}

func checked(t *testing.T, dir string) *fsck.Report {
	t.Helper()
	th, err := engine.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer th.Close()
	r, err := fsck.Check(t.Context(), th)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// TestPipe: a pipe next to a backup's database delays no command.
func TestPipe(t *testing.T) {
	base := t.TempDir()
	dir, to := filepath.Join(base, "thread"), filepath.Join(base, "backups")
	if _, err := engine.Init(dir); err != nil {
		t.Fatal(err)
	}
	d, err := Create(t.Context(), dir, to, 0)
	if err != nil {
		t.Fatal(err)
	}
	moment := filepath.Join(d.Dir, momentName)
	if err := os.Remove(moment); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("mkfifo", moment).CombinedOutput(); err != nil {
		t.Skipf("%v: %s", err, out)
	}
	if _, err := Create(t.Context(), dir, to, 0); err != nil {
		t.Error(err)
	}
}

// looking is a context that looks whenever it is asked.
type looking struct {
	context.Context
	look func()
}

func (l looking) Err() error            { l.look(); return l.Context.Err() }
func (l looking) Done() <-chan struct{} { l.look(); return l.Context.Done() }

// TestRestoreUnseen: until a restored thread has its name, no directory next to it is a
// thread, which a server of the directory above would serve.
func TestRestoreUnseen(t *testing.T) {
	base := t.TempDir()
	from, err := engine.Init(filepath.Join(base, "thread"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := from.Push(t.Context(), event.Draft{Source: "s", Type: "t", Content: "c"}); err != nil {
		t.Fatal(err)
	}
	backups := filepath.Join(base, "backups")
	if _, err := Create(t.Context(), from.Dir(), backups, 0); err != nil {
		t.Fatal(err)
	}
	seen := 0
	ctx := looking{t.Context(), func() {
		found, _ := filepath.Glob(filepath.Join(base, "new*", "events.db"))
		if len(found) > 0 {
			t.Errorf("%v is there before it is whole", found)
		}
		found, _ = filepath.Glob(filepath.Join(base, "new*", "*", "events.db"))
		seen += len(found)
	}}
	if _, err := Restore(ctx, backups, filepath.Join(base, "new"), RestoreOptions{}); err != nil || seen == 0 {
		t.Errorf("%v, the copy was seen %d times", err, seen)
	}
}
