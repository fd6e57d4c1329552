//go:build linux

package dispatch

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"thread/engine"
	"thread/event"
	"thread/internal/faults"
)

// TestWakeMode: what THREAD_DISPATCH means, and that auto is notifier where there is one.
func TestWakeMode(t *testing.T) {
	with, without := t.TempDir(), t.TempDir()
	must(t, os.WriteFile(filepath.Join(with, notifierCommand), []byte("#!/bin/sh\n"), 0o755))
	for _, tt := range []struct {
		value, path, how string
		known            bool
	}{
		{"none", with, wakeNone, true}, {"spawn", with, wakeSpawn, true}, {"notifier", without, wakeNotifier, true},
		{"", with, wakeNotifier, true}, {"auto", with, wakeNotifier, true}, {"auto", without, wakeSpawn, true}, {"", without, wakeSpawn, true},
		{"Auto", with, wakeSpawn, false},
	} {
		t.Setenv(envDispatch, tt.value)
		t.Setenv("PATH", tt.path)
		if how, known := wakeMode(); how != tt.how || known != tt.known {
			t.Errorf("%+v: %s, %v", tt, how, known)
		}
	}
}

// TestTraceOfAHandler: a handler has the trace context of its first event, and none where
// the event has none.
func TestTraceOfAHandler(t *testing.T) {
	ctx := context.Background()
	const parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	th, err := engine.Init(filepath.Join(faults.Dir(t), "t"))
	must(t, err)
	defer th.Close()
	h := &handler{dispatcher: newDispatcher(th, Options{})}
	for content, want := range map[string]bool{`{"traceparent":"` + parent + `","request_id":"r"}`: true, "{}": false} {
		e, err := th.Push(ctx, event.Draft{Source: "s", Type: "t", Content: content})
		must(t, err)
		h.rec = &record{First: e.ID}
		for _, variable := range []string{envTraceparent + "=" + parent, envRequestID + "=r"} {
			if got := slices.Contains(h.environment(), variable); got != want {
				t.Errorf("%s: %s is there: %v", content, variable, got)
			}
		}
	}
}

// TestLeaderIsEnded: the group of a handler's first process is asked to end, and then killed.
func TestLeaderIsEnded(t *testing.T) {
	for want, end := range map[syscall.Signal]func(l *leader){unix.SIGTERM: (*leader).terminate, unix.SIGKILL: (*leader).kill} {
		cmd := exec.Command("sleep", "1000")
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		must(t, cmd.Start())
		l := &leader{p: cmd.Process}
		end(l)
		l.wait()
		_ = cmd.Wait()
		if status := cmd.ProcessState.Sys().(syscall.WaitStatus); status.Signal() != want {
			t.Errorf("it ended by %v, want %v", status.Signal(), want)
		}
		end(l) // nothing is left to end
	}
}

// TestServerIsToldToLook: WakeServer reaches the server of a thread, as a push does.
func TestServerIsToldToLook(t *testing.T) {
	th := withEvent(t, filepath.Join(faults.Dir(t), "t"), "true")
	defer th.Close()
	server, err := NewServer(context.Background(), th)
	must(t, err)
	defer server.Close()
	pings, err := server.Listen()
	must(t, err)
	defer pings.Close()
	WakeServer(th)
	if got, err := pings.Next(); err != nil || got != parsePing([]byte{pingLook}) {
		t.Errorf("%+v, %v", got, err)
	}
}

// TestRetainDue: what a thread is not to keep any more goes, and what it is to keep stays.
func TestRetainDue(t *testing.T) {
	ctx := context.Background()
	now := time.Now()
	th, err := engine.Init(filepath.Join(faults.Dir(t), "t"), engine.WithClock(func() time.Time { return now }))
	must(t, err)
	defer th.Close()
	must(t, th.SetLimits(ctx, engine.Limits{MaxAge: time.Hour}))
	for range 3 {
		now = now.Add(40 * time.Minute)
		_, err := th.Push(ctx, event.Draft{Source: "s", Type: "t", Content: "x"})
		must(t, err)
	}
	for range 2 {
		must(t, Retain(ctx, th))
		info, err := th.Info(ctx)
		must(t, err)
		if info.Stored != 2 {
			t.Errorf("%d events are stored, want 2", info.Stored)
		}
	}
}
