package bolt_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"thread/engine"
	"thread/internal/faults"
	"thread/internal/fsck"
	"thread/internal/store"
	"thread/internal/store/bolt"
	"thread/internal/store/bolt/disk"
)

// TestDamagedBase: a copy that continues behind a damaged one is a whole one, or a check of it
// says what is damaged.
func TestDamagedBase(t *testing.T) {
	dir := filepath.Join(faults.Dir(t), "t")
	everything(t, dir)
	since, err := copyTo(ctx, dir, bolt.CopyOptions{})
	must(t, err)
	base := copied(dir) + ".base"
	must(t, os.Rename(copied(dir), base))
	b, err := os.ReadFile(base)
	must(t, err)
	th, err := engine.Open(dir)
	must(t, err)
	defer th.Close()
	for range 3 {
		_, err = th.Push(ctx, draft("behind it"))
		must(t, err)
	}
	want, err := allEvents(th)
	must(t, err)
	whole := 0
	for page := range len(b) / disk.PageBytes {
		damaged := bytes.Clone(b)
		clear(damaged[page*disk.PageBytes:][:disk.PageBytes])
		must(t, os.WriteFile(base, damaged, 0o600))
		_, err := copyTo(ctx, dir, bolt.CopyOptions{Base: base, Since: since})
		must(t, err)
		to := filepath.Join(faults.Dir(t), "t")
		must(t, os.Mkdir(to, 0o700))
		must(t, os.Rename(copied(dir), filepath.Join(to, bolt.DatabaseName)))
		of, err := engine.Open(to)
		must(t, err)
		got, err := allEvents(of)
		report, cerr := fsck.Check(ctx, of)
		switch {
		case err == nil && got == want && cerr == nil && len(report.Faults) == 0:
			whole++
		case cerr == nil && len(report.Faults) == 0:
			t.Errorf("page %d of the base: %s, %v, want %s", page, got, err, want)
		}
		must(t, of.Close())
	}
	if whole < 3 { // the two meta pages, and what is free
		t.Errorf("%d of the copies are whole", whole)
	}
}

// TestCopyWritesLines: the first push into a copy elsewhere writes the lines of the events
// that the newest file of the source had.
func TestCopyWritesLines(t *testing.T) {
	for _, n := range []int{20, 10_050} { // with the second, events.jsonl is rotated
		dir := filepath.Join(faults.Dir(t), "t")
		fiveEvents(t, dir)
		th, err := engine.Open(dir)
		must(t, err)
		defer th.Close()
		_, err = th.PushAll(ctx, drafts(n, ""))
		must(t, err)
		_, err = th.Push(ctx, draft("newest"))
		must(t, err)
		_, err = copyTo(ctx, dir, bolt.CopyOptions{})
		must(t, err)
		to := filepath.Join(faults.Dir(t), "t")
		must(t, os.Mkdir(to, 0o700))
		must(t, os.Rename(copied(dir), filepath.Join(to, bolt.DatabaseName)))
		of, err := engine.Open(to)
		must(t, err)
		defer of.Close()
		_, err = of.Push(ctx, draft("last"))
		must(t, err)
		var from int64
		must(t, dirOf(of).ViewLines(ctx, func(_ disk.State, start disk.LogStart) error { from = start.From; return nil }))
		if n == 20 && from != 1 || n > 20 && from <= 1 {
			t.Errorf("the lines of %d events begin at %d", n, from)
		}
		var want strings.Builder
		for e, err := range of.Events(ctx, engine.Query{After: from - 1}) {
			must(t, err)
			fmt.Fprintf(&want, "%s\n", e.AppendJSON(nil))
		}
		if lines, err := os.ReadFile(filepath.Join(to, "events.jsonl")); err != nil || string(lines) != want.String() {
			t.Errorf("%d lines of %d events, want %d, %v", strings.Count(string(lines), "\n"), n, strings.Count(want.String(), "\n"), err)
		}
		if report, err := fsck.Check(ctx, of); err != nil || len(report.Faults) > 0 {
			t.Errorf("%v, %v", report.Faults, err)
		}
	}
}

// TestOwnerCannotBeKept: a compaction that cannot keep who may use the database is refused.
// Where that is a group that may do nothing with it, it is not kept.
func TestOwnerCannotBeKept(t *testing.T) {
	if os.Geteuid() != 0 || runtime.GOOS != "linux" {
		t.Skip("only root can give files away, and only Linux has faults")
	}
	for _, tt := range []struct {
		uid, gid int
		mode     os.FileMode
		want     error
	}{
		{1234, 0, 0o600, store.ErrOwner}, {0, 1234, 0o660, store.ErrOwner}, {0, 1234, 0o604, nil}, {0, 0, 0o660, nil},
	} {
		dir := filepath.Join(faults.Dir(t), "t")
		compactable(t, dir)
		path := filepath.Join(dir, bolt.DatabaseName)
		must(t, os.Chmod(path, tt.mode))
		must(t, os.Chown(path, tt.uid, tt.gid))
		th, err := engine.Open(dir)
		must(t, err)
		defer th.Close()
		f := faults.Fault{At: 1, Errno: syscall.EPERM, Only: []string{"fchown"}}
		before := sizeOf(dir)
		f.Run(t, dir, func() { _, err = th.Compact(ctx) })
		if !errors.Is(err, tt.want) || tt.want == nil && (err != nil || sizeOf(dir) >= before) {
			t.Errorf("%+v: %v, %d of %d bytes", tt, err, sizeOf(dir), before)
		}
		if leftovers(t, dir) != nil {
			t.Errorf("%+v left %q", tt, leftovers(t, dir))
		}
		if _, err := th.Compact(ctx); err != nil {
			t.Error(err)
		}
		info, err := os.Stat(path)
		must(t, err)
		if is := info.Sys().(*syscall.Stat_t); info.Mode().Perm() != tt.mode || int(is.Uid) != tt.uid || tt.want != nil && int(is.Gid) != tt.gid {
			t.Errorf("%+v became %v of %d:%d", tt, info.Mode(), is.Uid, is.Gid)
		}
	}
}
