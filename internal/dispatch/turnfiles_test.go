//go:build linux

package dispatch

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"thread/engine"
	"thread/lock"
)

// TestTurnEnvironment: each process of a delivery finds an empty state and no messages of
// the process before, also where its files were replaced or deleted.
func TestTurnEnvironment(t *testing.T) {
	b := newBench(t)
	b.inHandlerOf("c")
	q := &Turns{place: b.t.Dir(), control: b.r.run, consumer: "c", files: map[int]*deliveryFiles{}}
	turn, err := q.Wait(t.Context(), 5, nil, 1)
	must(t, err)
	dir := DeliveryDir(b.t.Dir(), "c", 5)
	want := []string{EnvState + "=" + filepath.Join(dir, "state"), EnvMessages + "=" + filepath.Join(dir, "messages")}
	pipe := func() *os.File {
		t.Helper()
		f, err := os.OpenFile(filepath.Join(dir, "messages"), os.O_RDWR|lock.NoWait, 0)
		must(t, err)
		return f
	}
	for name, spoil := range map[string]func() error{
		"nothing":         func() error { return nil },
		"words of before": func() error { return os.WriteFile(filepath.Join(dir, "state"), []byte("busy"), 0o600) },
		"a directory": func() error {
			os.Remove(filepath.Join(dir, "state"))
			return os.Mkdir(filepath.Join(dir, "state"), 0o700)
		},
		"no pipe": func() error { return os.Remove(filepath.Join(dir, "messages")) },
		"a file for a pipe": func() error {
			os.Remove(filepath.Join(dir, "messages"))
			return os.WriteFile(filepath.Join(dir, "messages"), nil, 0o600)
		},
		"deleted": func() error { return os.RemoveAll(dir) },
	} {
		if got := turn.Environment(); strings.Join(got, " ") != strings.Join(want, " ") {
			t.Fatalf("%s: %q", name, got)
		}
		f := pipe()
		if _, err := f.Write([]byte(strings.Repeat("\"old\"\n", 1000))); err != nil {
			t.Fatal(err)
		}
		f.Close()
		must(t, spoil())
		turn.Environment()
		if text, err := os.ReadFile(filepath.Join(dir, "state")); err != nil || len(text) != 0 {
			t.Errorf("%s: the state is %q, %v", name, text, err)
		}
		fd, err := unix.Open(filepath.Join(dir, "messages"), unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
		must(t, err)
		if n, err := unix.Read(fd, make([]byte, 10)); !errors.Is(err, unix.EAGAIN) {
			t.Errorf("%s: a message of before is left, or the pipe is not kept open: %d %v", name, n, err)
		}
		unix.Close(fd)
	}
	if n := openBelow(t, dir); n != 1 {
		t.Errorf("%d files are open", n)
	}
	must(t, os.RemoveAll(filepath.Dir(filepath.Dir(dir))))
	must(t, os.WriteFile(filepath.Dir(filepath.Dir(dir)), nil, 0o600))
	none := func(turn *Turn) {
		t.Helper()
		if got := turn.Environment(); len(got) != 2 || got[0] != EnvState+"=" || got[1] != EnvMessages+"=" {
			t.Errorf("%q", got)
		}
	}
	none(turn)
	deleted, err := engine.Init(b.path("deleted"))
	must(t, err)
	gone := &Turns{place: deleted.Dir(), consumer: "c", files: map[int]*deliveryFiles{}}
	must(t, os.RemoveAll(deleted.Dir()))
	none(&Turn{t: gone})
	if _, err := os.Lstat(deleted.Dir()); err == nil {
		t.Error("a deleted thread is back")
	}
}

// openBelow counts the files below dir that this process has open, also deleted ones.
func openBelow(t *testing.T, dir string) (n int) {
	t.Helper()
	paths, err := filepath.Glob("/proc/self/fd/*")
	must(t, err)
	for _, path := range paths {
		if name, _ := os.Readlink(path); strings.HasPrefix(name, dir+"/") {
			n++
		}
	}
	return n
}

// TestShortKey: keys of any length stay apart, and none is long.
func TestShortKey(t *testing.T) {
	seen := map[string]int{}
	for n, key := range []string{
		"", "k", strings.Repeat("k", maxKeyBytes), strings.Repeat("k", maxKeyBytes+1), strings.Repeat("k", maxKeyBytes+2),
		strings.Repeat("k", 2*maxKeyBytes) + "a", strings.Repeat("k", 2*maxKeyBytes) + "b", "x" + strings.Repeat("ä", maxKeyBytes), strings.Repeat("ä", maxKeyBytes),
	} {
		got := ShortKey(key)
		if other, same := seen[got]; same || len(got) > maxKeyBytes || !utf8.ValidString(got) || len(key) <= maxKeyBytes && got != key {
			t.Errorf("key %d becomes %d bytes, as key %d does: %v", n, len(got), other, same)
		}
		seen[got] = n
	}
}

// TestLongPath: a socket is reached in a directory whose path is too long for an address.
func TestLongPath(t *testing.T) {
	b := newBench(t)
	run := filepath.Join(b.dir, strings.Repeat("d", 100), "run")
	if _, err := dialControl(run); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("without the directory: %v", err)
	}
	must(t, os.MkdirAll(run, 0o700))
	if _, err := dialControl(run); err == nil {
		t.Error("it is connected with no process")
	}
	r := &dispatcher{t: b.t, run: run}
	if r.sendTo(timerSocket, pingSchedule, "") {
		t.Error("a ping is sent to no process")
	}
	pings, err := r.listenAt(timerSocket)
	must(t, err)
	defer pings.Close()
	if !r.sendTo(timerSocket, pingPush, "c") || r.sendTo(wakeSocket, pingPush, "c") {
		t.Error("a ping is not sent, or to another socket")
	}
	if p, err := pings.Next(); err != nil || !p.Push || p.Author != "c" {
		t.Errorf("%+v %v", p, err)
	}
	(&bench{TB: t, r: r}).fakeServer()
	conn, err := dialControl(run)
	must(t, err)
	conn.Close()
}
