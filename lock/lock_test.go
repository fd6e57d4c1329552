package lock

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// The second process is this test binary: it takes the lock, says so, and holds
// it until its stdin ends.
func TestMain(m *testing.M) {
	if path := os.Getenv("LOCK_TEST_HOLD"); path != "" {
		l, err := Open(context.Background(), path, Exclusive)
		fmt.Println(err)
		bufio.NewReader(os.Stdin).ReadString('\n')
		l.Close()
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func hold(t *testing.T, path string) (release func(), kill func()) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "LOCK_TEST_HOLD="+path)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "<nil>\n" {
		t.Fatalf("the other process says %q, %v", line, err)
	}
	return func() { in.Close(); cmd.Wait() }, func() { cmd.Process.Kill(); cmd.Wait() }
}

func TestTwoProcesses(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.lock")
	release, _ := hold(t, path)
	for _, m := range []Mode{Shared, Exclusive} {
		if _, err := Try(path, m); !errors.Is(err, ErrHeld) {
			t.Errorf("try: %v", err)
		}
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
		if _, err := Open(ctx, path, m); !errors.Is(err, ErrHeld) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("open: %v", err)
		}
		cancel()
	}
	got := make(chan error)
	go func() {
		l, err := Open(context.Background(), path, Exclusive)
		if err == nil {
			err = l.Close()
		}
		got <- err
	}()
	release()
	if err := <-got; err != nil {
		t.Error(err)
	}
	// A killed process leaves nothing behind.
	_, kill := hold(t, path)
	kill()
	l, err := Try(path, Exclusive)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v %v", info.Mode(), err)
	}
}

// TestDeleted: a lock file that is deleted while a process waits for it is
// not taken; the wait continues on the new one.
func TestDeleted(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.lock")
	old, err := Try(path, Exclusive)
	if err != nil {
		t.Fatal(err)
	}
	got := make(chan *File)
	go func() {
		l, err := Open(context.Background(), path, Exclusive)
		if err != nil {
			t.Error(err)
		}
		got <- l
	}()
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	old.Close()
	l := <-got
	defer l.Close()
	if same, err := Names(path, l.File()); !same {
		t.Errorf("the lock is on another file, %v", err)
	}
}

func TestSymlink(t *testing.T) {
	dir := t.TempDir()
	target := filepath.Join(dir, "target")
	if err := os.Symlink(target, filepath.Join(dir, "x.lock")); err != nil {
		t.Skip(err)
	}
	if l, err := Try(filepath.Join(dir, "x.lock"), Exclusive); err == nil {
		l.Close()
		t.Error("a symbolic link was followed")
	}
	if _, err := os.Stat(target); err == nil {
		t.Error("its target was created")
	}
}

func TestName(t *testing.T) {
	for text, want := range map[string]string{
		"worker-1": "worker-1", "../../etc/x": "%2E.%2F..%2Fetc%2Fx", ".": "%2E", "": "", "a b'c": "a%20b%27c", "é": "%C3%A9", "a%2Fb": "a%252Fb",
	} {
		if got := Name(text); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
	text := rapid.OneOf(rapid.String(), rapid.StringMatching(`[a-c/.%]{0,5}`), rapid.Map(rapid.StringMatching(`[a-b/]{190,230}`), func(s string) string { return strings.Repeat(s, 2) }))
	rapid.Check(t, func(t *rapid.T) {
		a, b := text.Draw(t, "a"), text.Draw(t, "b")
		na, nb := Name(a), Name(b)
		if (a == b) != (na == nb) {
			t.Fatalf("%q and %q have the names %q and %q", a, b, na, nb)
		}
		if len(na) > maxNameBytes || strings.ContainsAny(na, "/\x00\\: ") || strings.HasPrefix(na, ".") {
			t.Fatalf("%q", na)
		}
	})
}
