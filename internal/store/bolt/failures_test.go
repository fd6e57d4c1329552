package bolt_test

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"thread/engine"
	"thread/internal/faults"
	"thread/internal/fsck"
	"thread/internal/store"
	"thread/internal/store/bolt"
)

// leftovers returns the temporary files below dir.
func leftovers(t *testing.T, dir string) (list []string) {
	t.Helper()
	must(t, filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		name := filepath.Base(path)
		if strings.HasSuffix(name, ".new") || strings.HasSuffix(name, ".compact") || strings.HasPrefix(name, "batch-") || strings.HasSuffix(name, ".taken") {
			list = append(list, path)
		}
		return err
	}))
	return list
}

// changing are the calls that fail: those that look at a file fail for none alone.
var changing = []string{"openat", "read", "write", "pread64", "pwrite64", "fsync", "fdatasync", "ftruncate", "fchmod", "flock", "close", "unlinkat", "mkdirat", "fchmodat", "renameat", "renameat2", "fstat", "newfstatat", "lseek", "linkat"}

// TestFailures: each system call of an operation fails once. Without an error its effect
// is there; with one nothing is, unless the error leaves that open. No file stays open or
// is left behind, the old events stay, and the operation can be done again.
func TestFailures(t *testing.T) {
	for name, op := range operations() {
		t.Run(name, func(t *testing.T) {
			prepared := filepath.Join(faults.Dir(t), "t")
			if op.prepare == nil {
				must(t, os.Mkdir(prepared, 0o700))
			} else {
				op.prepare(t, prepared)
			}
			faults.Each(t, syscall.EIO, changing, func(t *testing.T, f *faults.Fault) { op.fail(t, f, prepared) })
		})
	}
}

func (op *operation) fail(t *testing.T, f *faults.Fault, prepared string) {
	root := faults.Dir(t)
	dir := filepath.Join(root, "t")
	must(t, os.CopyFS(dir, os.DirFS(prepared)))
	if op.before != nil {
		f.Before = func(c faults.Call, _ int) { op.before(dir, c) }
	}
	var failed error
	f.Run(t, root, func() { failed = op.do(ctx, dir) })
	if op.after != nil {
		op.after()
	}
	if open := faults.Open(t, root); open != nil {
		t.Errorf("open are %q", open)
	}
	if f.Hit == nil {
		inOrder(t, f.Calls)
		if failed != nil {
			t.Error(failed)
		}
	}
	unknown := errors.Is(failed, store.ErrUnknownOutcome)
	// What cannot be locked, or compared with its name, is not removed.
	left := leftovers(t, root)
	if left != nil && !unknown && !slices.Contains([]string{"unlinkat", "flock", "newfstatat", "fstat"}, f.Hit.Name) {
		t.Errorf("left are %q, after %v", left, failed)
	}
	want := "done"
	if failed != nil {
		want = ""
	}
	got := op.effect(t, dir)
	if got != want && !unknown {
		t.Errorf("%q, and the error %v", got, failed)
	}
	if op.prepare == nil && got == "done" || f.At%4 != 0 && !unknown { // the rest takes half of the time
		return
	}
	if err := op.do(ctx, dir); err != nil {
		t.Errorf("done again: %v", err)
	}
	if !exists(filepath.Join(dir, bolt.DatabaseName)) {
		return
	}
	th, err := engine.Open(dir)
	must(t, err)
	defer th.Close()
	if report, err := fsck.Check(ctx, th); err != nil || len(report.Faults) > 0 {
		t.Errorf("check: %v, %v", report.Faults, err)
	}
}

// inOrder: what was written is synced before it is given its name, and before the end;
// a new name is synced with its directory.
func inOrder(t *testing.T, calls []faults.Call) {
	t.Helper()
	unsynced, unnamed := map[string]bool{}, map[string]bool{}
	for _, c := range calls {
		path := filepath.Clean(c.Path)
		if passing(path) {
			continue
		}
		switch c.Name {
		case "write", "pwrite64", "ftruncate":
			unsynced[path] = true
		case "fsync", "fdatasync":
			delete(unsynced, path)
			delete(unnamed, path)
		case "mkdirat":
			unnamed[filepath.Dir(path)] = true
		case "renameat", "renameat2":
			if unsynced[path] {
				t.Errorf("%s is renamed before it is synced", path)
			}
			delete(unsynced, path)
			unnamed[filepath.Dir(path)] = true
		case "unlinkat":
			delete(unsynced, path)
		}
	}
	for path := range unsynced {
		t.Errorf("%s is not synced", path)
	}
	for dir := range unnamed {
		t.Errorf("a new name in %s is not synced", dir)
	}
	if t.Failed() {
		t.Logf("%v", calls)
	}
}

// passing reports whether a file need not outlast a loss of power: the lines are written
// again, and run/ may be deleted.
func passing(path string) bool {
	return strings.HasSuffix(path, "events.jsonl") || slices.Contains(strings.Split(path, "/"), store.RunName)
}
