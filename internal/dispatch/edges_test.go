//go:build linux

package dispatch

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"thread/internal/faults"
)

// TestServiceVariables: a handler is told nothing of the service that started it.
func TestServiceVariables(t *testing.T) {
	for variable, want := range map[string]bool{
		"NOTIFY_SOCKET=/run/s": true, "WATCHDOG_USEC=1": true, "WATCHDOG_PID=2": true, "WATCHDOG": false, "PATH=NOTIFY_SOCKET": false,
	} {
		if got := ofService(variable); got != want {
			t.Errorf("%s: %v", variable, got)
		}
	}
}

// TestLongestSocketPath: the longest path that fits into an address is that address.
func TestLongestSocketPath(t *testing.T) {
	for n, direct := range map[int]bool{maxSocketPath: true, maxSocketPath + 1: false} {
		root := faults.Dir(t)
		dir := filepath.Join(root, strings.Repeat("x", n-len(root)-len("/")-len("/s")))
		must(t, os.Mkdir(dir, 0o700))
		address, done, err := SocketAddress(dir, "s")
		must(t, err)
		if got := address == filepath.Join(dir, "s"); got != direct {
			t.Errorf("%d bytes: %s", n, address)
		}
		done()
		must(t, os.Remove(dir))
		if _, _, err := SocketAddress(dir, "s"); (err == nil) != direct { // a short one is looked at when it is used
			t.Errorf("%d bytes, of a directory that is gone: %v", n, err)
		}
	}
}

// TestReachable: a socket is reachable under its name, and not where another one, or none,
// has the name.
func TestReachable(t *testing.T) {
	th := withEvent(t, filepath.Join(faults.Dir(t), "t"), "true")
	defer th.Close()
	r := newDispatcher(th, Options{})
	must(t, r.prepare())
	first, err := r.listenAt(timerSocket)
	must(t, err)
	defer first.Close()
	if !first.Reachable() {
		t.Error("it is not reachable")
	}
	must(t, os.Rename(first.path, first.path+".old"))
	if first.Reachable() {
		t.Error("it is reachable without a name")
	}
	must(t, os.WriteFile(first.path, nil, 0o600))
	if first.Reachable() {
		t.Error("another file is taken for it")
	}
}

// TestPlacesAreClosed: who has places in a lane is read, and the files are closed.
func TestPlacesAreClosed(t *testing.T) {
	th := withEvent(t, filepath.Join(faults.Dir(t), "t"), "true")
	defer th.Close()
	r := newDispatcher(th, Options{})
	must(t, r.prepare())
	must(t, os.WriteFile(r.placePath("cron", 0), []byte("c"), 0o600))
	if list := r.inLane("cron"); len(list) != 1 || list[0] != "c" {
		t.Errorf("%q", list)
	}
	if open := faults.Open(t, th.Dir()); open != nil {
		t.Errorf("open are %q", open)
	}
}

// TestNoteInPlaceOfAPipe: a note takes the place of a pipe, of which a write would wait for
// a reader.
func TestNoteInPlaceOfAPipe(t *testing.T) {
	th := withEvent(t, filepath.Join(faults.Dir(t), "t"), "true")
	defer th.Close()
	r := newDispatcher(th, Options{})
	must(t, r.prepare())
	must(t, unix.Mkfifo(r.notePath("c"), 0o600))
	reader, err := os.OpenFile(r.notePath("c"), os.O_RDWR, 0) // a write succeeds
	must(t, err)
	defer reader.Close()
	must(t, r.writeNote("c", note{State: stateStalled}))
	if info, err := os.Lstat(r.notePath("c")); err != nil || !info.Mode().IsRegular() {
		t.Errorf("%v, %v", info, err)
	}
	if n := newDispatcher(th, Options{}).readNote("c"); n.State != stateStalled {
		t.Errorf("%+v", n)
	}
}

// TestRoomInTheWay: what is in the way of a slot or of a place is an error, and not want of
// room.
func TestRoomInTheWay(t *testing.T) {
	th := withEvent(t, filepath.Join(faults.Dir(t), "t"), "true")
	defer th.Close()
	r := newDispatcher(th, Options{MaxHandlers: 1})
	must(t, r.prepare())
	for _, path := range []string{r.slotPath(0), r.placePath("cron", 0)} {
		must(t, errors.Join(os.RemoveAll(path), os.MkdirAll(filepath.Join(path, "full"), 0o700)))
		if got, why, err := r.tryRoom("cron"); got != nil || err == nil {
			t.Errorf("%s: %v, %v, no error", path, got, why)
		}
		must(t, os.RemoveAll(path))
	}
	got, why, err := r.tryRoom("cron")
	if why != claimed || err != nil {
		t.Errorf("%v, %v", why, err)
	}
	got.release()
}

// TestUnknownDispatchIsLogged: a value of THREAD_DISPATCH that is none is logged at a push,
// and a known one is not.
func TestUnknownDispatchIsLogged(t *testing.T) {
	th := withEvent(t, filepath.Join(faults.Dir(t), "t"), "true")
	defer th.Close()
	withoutProgram(t)
	for value, want := range map[string]bool{"auto": false, "spawn": false, "Spawn": true} {
		_ = os.Remove(filepath.Join(th.Dir(), "logs", "thread.log"))
		t.Setenv(envDispatch, value)
		if err := Wake(context.Background(), th, "s"); !errors.Is(err, ErrNoProgram) {
			t.Errorf("%s: %v", value, err)
		}
		text, _ := os.ReadFile(filepath.Join(th.Dir(), "logs", "thread.log"))
		if got := strings.Contains(string(text), "is not auto, notifier, spawn or none"); got != want {
			t.Errorf("%s: logged: %v\n%s", value, got, text)
		}
	}
}
