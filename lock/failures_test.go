package lock_test

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"thread/internal/faults"
	"thread/lock"
)

// TestFailures: each system call fails once. The error is returned, and no file stays
// open.
func TestFailures(t *testing.T) {
	held := func(l *lock.File, err error) error {
		if err != nil {
			if l != nil {
				return errors.New("a lock and an error")
			}
			return err
		}
		l.Close() // releases the lock whatever it returns
		return nil
	}
	for name, use := range map[string]func(dir string) error{
		"try": func(dir string) error { return held(lock.Try(filepath.Join(dir, "a"), lock.Exclusive)) },
		"open": func(dir string) error {
			return held(lock.Open(context.Background(), filepath.Join(dir, "new"), lock.Shared))
		},
		"create": func(dir string) error {
			f, err := lock.Create(filepath.Join(dir, "new"), os.O_RDWR|os.O_EXCL)
			if err == nil {
				f.Close()
			}
			return err
		},
		"mkdir": func(dir string) error { return lock.Mkdir(filepath.Join(dir, "sub")) },
		"read": func(dir string) error {
			text, err := lock.ReadFile(filepath.Join(dir, "a"))
			if err == nil && string(text) != "text" {
				t.Errorf("read %q", text)
			}
			return err
		},
		"usable": func(dir string) error {
			f, err := os.Open(filepath.Join(dir, "empty"))
			if err != nil {
				return err
			}
			defer f.Close()
			return lock.Usable(f)
		},
		"names": func(dir string) error {
			f, err := os.Open(filepath.Join(dir, "a"))
			if err != nil {
				return err
			}
			defer f.Close()
			same, err := lock.Names(filepath.Join(dir, "a"), f)
			if same == (err != nil) {
				t.Errorf("%v, %v", same, err)
			}
			return err
		},
		"probe": func(dir string) error {
			l, err := lock.Try(filepath.Join(dir, "a"), lock.Exclusive)
			if err != nil {
				return err
			}
			defer l.Close()
			return l.Probe(filepath.Join(dir, "a"))
		},
	} {
		t.Run(name, func(t *testing.T) {
			faults.Each(t, syscall.EIO, nil, func(t *testing.T, f *faults.Fault) {
				dir := someFiles(t)
				var err error
				f.Run(t, dir, func() { err = use(dir) })
				if open := faults.Open(t, dir); open != nil {
					t.Errorf("open are %q", open)
				}
				if f.Hit != nil && f.Hit.Name != "close" && !errors.Is(err, syscall.EIO) || f.Hit == nil && err != nil {
					t.Errorf("%v, after %v", err, f.Calls)
				}
			})
		})
	}
}

// someFiles makes a directory with a file and an empty one that its owner must not read.
func someFiles(t *testing.T) (dir string) {
	t.Helper()
	dir = t.TempDir()
	for name, text := range map[string]string{"a": "text", "empty": ""} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chmod(filepath.Join(dir, "empty"), 0o400); err != nil {
		t.Fatal(err)
	}
	return dir
}

// TestUsable: the owner of an empty file may read and write it; files that hold
// something keep their mode.
func TestUsable(t *testing.T) {
	for _, tt := range []struct {
		text       string
		mode, want fs.FileMode
	}{
		{"", 0o400, 0o600}, {"", 0o644, 0o644}, {"", 0o600, 0o600}, {"x", 0o400, 0o400}, {"x", 0o600, 0o600}, {"", 0o444, 0o600}, {"", 0o660, 0o660},
	} {
		path := filepath.Join(t.TempDir(), "x")
		if err := os.WriteFile(path, []byte(tt.text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, tt.mode); err != nil {
			t.Fatal(err)
		}
		f, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if err := lock.Usable(f); err != nil {
			t.Error(err)
		}
		if info, err := f.Stat(); err != nil || info.Mode().Perm() != tt.want {
			t.Errorf("%q with %v: %v, want %v, %v", tt.text, tt.mode, info.Mode(), tt.want, err)
		}
	}
	dir, err := os.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	if err := lock.Usable(dir); err == nil || !strings.Contains(err.Error(), "not a regular file") {
		t.Errorf("a directory: %v", err)
	}
}

// TestProbe: a lock that keeps others out, and one that was lost.
func TestProbe(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x")
	l, err := lock.Try(path, lock.Exclusive)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if err := l.Probe(path); err != nil {
		t.Error(err)
	}
	if err := lock.Unlock(l.File()); err != nil {
		t.Fatal(err)
	}
	if err := l.Probe(path); !errors.Is(err, lock.ErrNotKept) {
		t.Errorf("a lock that is not there: %v", err)
	}
	other, err := lock.Try(path, lock.Exclusive)
	if err != nil {
		t.Fatal(err)
	}
	if err := lock.TryFile(l.File(), lock.Shared); !errors.Is(err, lock.ErrHeld) {
		t.Errorf("shared, next to an exclusive lock: %v", err)
	}
	if err := errors.Join(other.Close(), lock.TryFile(l.File(), lock.Shared)); err != nil {
		t.Error(err)
	}
	if err := l.Probe(filepath.Join(t.TempDir(), "none")); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
	if err := lock.FromFile(l.File()).Close(); err != nil {
		t.Error(err)
	}
	if err := lock.TryFile(l.File(), lock.Shared); err == nil {
		t.Error("a closed file was locked")
	}
	if err := lock.TryFile(nil, lock.Shared); err == nil {
		t.Error("no file was locked")
	}
	if err := lock.Unlock(l.File()); err == nil {
		t.Error("a closed file was locked")
	}
}

// TestWaitEnded: a wait that has ended before it began returns at once, unless the lock
// is free.
func TestWaitEnded(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x")
	l, err := lock.Try(path, lock.Exclusive)
	if err != nil {
		t.Fatal(err)
	}
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := lock.Open(ended, path, lock.Shared); !errors.Is(err, lock.ErrHeld) || !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	free, err := lock.Open(ended, path, lock.Exclusive)
	if err != nil {
		t.Fatal(err)
	}
	free.Close()
}

// TestNames: a path that has no file, another file, and the file.
func TestNames(t *testing.T) {
	dir := someFiles(t)
	f, err := os.Open(filepath.Join(dir, "a"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for name, want := range map[string]bool{"a": true, "empty": false, "none": false} {
		same, err := lock.Names(filepath.Join(dir, name), f)
		if same != want || (err != nil) != (name == "none") {
			t.Errorf("%s: %v, %v", name, same, err)
		}
	}
}

// TestReadFile: links are not followed, and a named pipe is not waited for.
func TestReadFile(t *testing.T) {
	dir := someFiles(t)
	if err := os.Symlink("a", filepath.Join(dir, "link")); err != nil {
		t.Skip(err)
	}
	if text, err := lock.ReadFile(filepath.Join(dir, "link")); err == nil {
		t.Errorf("a link was followed to %q", text)
	}
	if _, err := lock.ReadFile(filepath.Join(dir, "none")); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
}

// TestLongNames: a name of 200 bytes stays, and a longer one has that length.
func TestLongNames(t *testing.T) {
	for _, n := range []int{1, 199, 200, 201, 400} {
		name := lock.Name(strings.Repeat("a", n))
		if (n <= 200) != (name == strings.Repeat("a", n)) || n > 200 && (len(name) != 200 || !strings.HasPrefix(name, strings.Repeat("a", 159)+"%")) {
			t.Errorf("%d letters: %q", n, name)
		}
	}
	var got []string
	for c := range 256 {
		if name := lock.Name("a" + string([]byte{byte(c)})); len(name) == 2 {
			got = append(got, name[1:])
		}
	}
	if want := "-.0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ_abcdefghijklmnopqrstuvwxyz"; strings.Join(got, "") != want {
		t.Errorf("these stay: %q, want %q", got, want)
	}
	if name := lock.Name(".a.b"); name != "%2Ea.b" {
		t.Error(name)
	}
}

// TestCreate: O_EXCL refuses a file that is there; without it the file is opened.
func TestCreate(t *testing.T) {
	dir := someFiles(t)
	if f, err := lock.Create(filepath.Join(dir, "a"), os.O_RDWR|os.O_EXCL); !errors.Is(err, os.ErrExist) {
		f.Close()
		t.Error(err)
	}
	f, err := lock.Create(filepath.Join(dir, "a"), os.O_RDWR)
	if err != nil {
		t.Fatal(err)
	}
	f.Close()
	if text, err := os.ReadFile(filepath.Join(dir, "a")); err != nil || string(text) != "text" {
		t.Errorf("%q, %v", text, err)
	}
	if _, err := lock.Create(filepath.Join(dir, "none", "a"), os.O_RDWR); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
	if err := lock.Mkdir(filepath.Join(dir, "none", "a")); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
	for range 2 {
		if err := lock.Mkdir(filepath.Join(dir, "sub")); err != nil {
			t.Error(err)
		}
	}
	if err := os.Chmod(filepath.Join(dir, "sub"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := lock.Mkdir(filepath.Join(dir, "sub")); err != nil {
		t.Error(err)
	}
	if info, err := os.Stat(filepath.Join(dir, "sub")); err != nil || info.Mode().Perm() != 0o755 {
		t.Errorf("a directory that was there: %v, %v", info.Mode(), err)
	}
}

// TestRaceOfCreators: two that create the same file have the same one.
func TestRaceOfCreators(t *testing.T) {
	for range 20 {
		path := filepath.Join(t.TempDir(), "x")
		files := make(chan *os.File, 4)
		for range cap(files) {
			go func() {
				f, err := lock.Create(path, os.O_RDWR)
				if err != nil {
					t.Error(err)
				}
				files <- f
			}()
		}
		for range cap(files) {
			f := <-files
			if f == nil {
				t.FailNow()
			}
			if same, err := lock.Names(path, f); !same || err != nil {
				t.Errorf("%v, %v", same, err)
			}
			f.Close()
		}
	}
}

// TestOwner: what root creates in the directory of another account belongs to that
// account, and directories have mode 0700 whatever the umask.
func TestOwner(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root gives files away")
	}
	dir := t.TempDir()
	if err := os.Chown(dir, 1234, 1235); err != nil {
		t.Skip(err)
	}
	f, err := lock.Create(filepath.Join(dir, "f"), os.O_RDWR)
	if err != nil {
		t.Fatal(err)
	}
	f.Close()
	if err := lock.Mkdir(filepath.Join(dir, "d")); err != nil {
		t.Fatal(err)
	}
	for name, mode := range map[string]fs.FileMode{"f": 0o600, "d": 0o700 | fs.ModeDir} {
		info, err := os.Stat(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		uid, gid := owner(info)
		if uid != 1234 || gid != 1235 || info.Mode() != mode {
			t.Errorf("%s belongs to %d:%d and has %v", name, uid, gid, info.Mode())
		}
	}
	// In the directory of root nothing is given away.
	var fault faults.Fault
	mine := t.TempDir()
	fault.Run(t, mine, func() {
		if f, err := lock.Create(filepath.Join(mine, "f"), os.O_RDWR); err != nil {
			t.Error(err)
		} else {
			f.Close()
		}
	})
	if slices.ContainsFunc(fault.Calls, func(c faults.Call) bool { return c.Name == "fchown" }) {
		t.Errorf("%v", fault.Calls)
	}
	// What cannot be given away is not used, and goes: its owner could not use it.
	faults.Each(t, syscall.EPERM, []string{"fchown", "fstat"}, func(t *testing.T, fault *faults.Fault) {
		dir := t.TempDir()
		if err := os.Chown(dir, 1234, 1235); err != nil {
			t.Fatal(err)
		}
		var fileErr, dirErr error
		fault.Run(t, dir, func() {
			f, err := lock.Create(filepath.Join(dir, "f"), os.O_RDWR)
			if fileErr = err; err == nil {
				f.Close()
			}
			dirErr = lock.Mkdir(filepath.Join(dir, "d"))
		})
		if err := errors.Join(fileErr, dirErr); fault.Hit != nil && !errors.Is(err, syscall.EPERM) || fault.Hit == nil && err != nil {
			t.Error(err)
		}
		for name, err := range map[string]error{"f": fileErr, "d": dirErr} {
			if _, is := os.Lstat(filepath.Join(dir, name)); (is == nil) != (err == nil) {
				t.Errorf("%s, after %v: %v", name, err, is)
			}
		}
		if open := faults.Open(t, dir); open != nil {
			t.Errorf("open are %q", open)
		}
	})
}

// TestGoneMeanwhile: the file of a lock is removed, or replaced, just before the lock on
// it is taken, and before it is compared with its name. The lock is on the file that has
// the name.
func TestGoneMeanwhile(t *testing.T) {
	for _, replace := range []bool{false, true} {
		for _, call := range []string{"flock", "newfstatat"} {
			path := filepath.Join(t.TempDir(), "x")
			once := true
			fault := faults.Fault{}
			fault.Before = func(c faults.Call, n int) {
				locked := len(fault.Names("flock")) > 0
				if c.Name != call || !locked || !once {
					return
				}
				once = false
				if err := os.Remove(path); err != nil {
					t.Error(err)
				}
				if replace {
					if err := os.WriteFile(path, nil, 0o600); err != nil {
						t.Error(err)
					}
				}
			}
			var l *lock.File
			var err error
			fault.Run(t, filepath.Dir(path), func() { l, err = lock.Try(path, lock.Exclusive) })
			if once || err != nil || l == nil {
				t.Fatalf("%v, %v, after %v", l, err, fault.Calls)
			}
			if same, err := lock.Names(path, l.File()); !same {
				t.Errorf("the lock is on another file: %v", err)
			}
			if open := faults.Open(t, filepath.Dir(path)); len(open) != 1 {
				t.Errorf("open are %q", open)
			}
			if err := l.Close(); err != nil {
				t.Error(err)
			}
		}
	}
}
