//go:build linux

package dispatch

import (
	"context"
	"encoding/json"
	"errors"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"thread/engine"
	"thread/internal/faults"
	"thread/lock"
)

// TestNothingStaysOpen: whatever call of those that open something fails, nothing that was
// opened before stays open, also where a path is too long for a socket.
func TestNothingStaysOpen(t *testing.T) {
	for _, name := range []string{"t", strings.Repeat("t", maxSocketPath)} {
		th, err := engine.Init(filepath.Join(faults.Dir(t), name))
		must(t, err)
		r := newDispatcher(th, Options{})
		must(t, r.prepare())
		listening, err := r.listenAt(ControlSocket) // of the wrong kind, so that no process can connect
		must(t, err)
		for what, open := range map[string]func(){
			"listening": func() {
				if p, err := r.listen(); err == nil {
					must(t, p.Close())
				}
			},
			"telling": func() { r.ping(pingLook, "") },
			"connecting": func() {
				if c, err := dialControl(r.run); err == nil {
					must(t, c.Close())
				}
			},
			"an alarm": func() { newAlarm(time.Now().Add(time.Hour)).stop() },
			"a link": func() {
				if l, theirs, err := newLink(); err == nil {
					l.close()
					must(t, theirs.Close())
				}
			},
			"an output": func() {
				if o, err := r.openOutput("c"); err == nil {
					o.close()
				}
			},
			"a wait": func() {
				if await, err := withReady(exec.Command("true")); err == nil {
					await(0)
				}
			},
			"files of a slot": func() {
				if f, err := newDeliveryFiles(filepath.Join(r.run, "0")); err == nil {
					f.close()
				}
			},
			"a record": func() {
				if l, err := r.tryRecord("c"); err == nil {
					release(l)
				}
				r.records()
			},
			"room": func() {
				if m, _, err := r.tryRoom("lane"); err == nil {
					m.release()
				}
				r.inLane("lane")
			},
			"a note": func() { _ = r.writeNote("c", note{State: stateIdle}) },
			"a run that has ended": func() {
				_, _ = (&EndedRun{RunID: newRunID(), EndedAt: time.Now()}).Leave(th.Dir(), false)
			},
			"popped":     func() { _, _ = r.popped("c", "run") },
			"forgetting": func() { _ = r.forget(context.Background(), time.Now().Add(48*time.Hour)) },
		} {
			open() // what is made once
			before := descriptors(t)
			for at := 1; ; at++ {
				f := &faults.Fault{At: at, Errno: syscall.EIO, Also: []string{"socket", "socketpair", "bind", "connect", "pipe2", "mknodat", "timerfd_create"}}
				f.Run(t, th.Dir(), open)
				for until := time.Now().Add(time.Second); stayOpen(t, before) != nil && time.Now().Before(until); {
					time.Sleep(time.Millisecond) // a goroutine is still to close what it has
				}
				if list := stayOpen(t, before); list != nil {
					t.Fatalf("%s, without %v: %q stay open", what, f.Hit, list)
				}
				if f.Hit == nil {
					break
				}
			}
		}
		must(t, listening.Close())
		must(t, th.Close())
	}
}

// TestTurnIsGivenBack: a turn that no server gave is given back to no process, and where
// that cannot be told, the connection is closed.
func TestTurnIsGivenBack(t *testing.T) {
	dir := t.TempDir()
	q := &Turns{place: dir, control: dir, consumer: "c", files: map[int]*deliveryFiles{}}
	turn, err := q.Wait(t.Context(), 0, nil, 1)
	must(t, err)
	turn.Done("failed")
	broken := &deafConn{closed: make(chan struct{})}
	turn.conn = &turnConn{ReadWriteCloser: broken, asked: map[int64]*Turn{}}
	turn.Done("failed")
	if !isClosed(broken.closed) {
		t.Error("the connection is open")
	}
	// Where it is gone already, nothing is said.
	gone := &deafConn{closed: make(chan struct{})}
	turn.conn = &turnConn{ReadWriteCloser: gone}
	turn.Done("failed")
	if isClosed(gone.closed) {
		t.Error("it is told over a connection that is gone")
	}
	if first, err := json.Marshal(TurnRequest{End: 1, Error: short(strings.Repeat("x", maxFailureBytes+1))}); err != nil || len(first) > maxFailureBytes+64 {
		t.Errorf("a failure of %d bytes is told", len(first))
	}
}

// TestServerWaits: a process becomes the server when the one before it has ended.
func TestServerWaits(t *testing.T) {
	th := withEvent(t, filepath.Join(faults.Dir(t), "t"), "true")
	defer th.Close()
	first, err := NewServer(t.Context(), th)
	must(t, err)
	var second *Server
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	// It is released when the second one has seen it held.
	f := &faults.Fault{Before: func(c faults.Call, n int) {
		if first != nil && c.Name == "close" && strings.HasSuffix(c.Path, "/.serve") {
			first.Close()
			first = nil
		}
	}}
	f.Run(t, th.Dir(), func() { second, err = NewServer(ctx, th) })
	if err != nil || first != nil {
		t.Fatalf("%v, released: %v", err, first == nil)
	}
	second.Close()
}

// TestRetryBesideAnotherProcess: a retry whose consumer another process has begun to run is
// left to that.
func TestRetryBesideAnotherProcess(t *testing.T) {
	quickly(t)
	th := withEvent(t, filepath.Join(faults.Dir(t), "t"), "exit 1")
	defer th.Close()
	server, err := NewServer(t.Context(), th)
	must(t, err)
	defer server.Close()
	o, err := server.Run(t.Context(), "c", false, nil)
	if err != nil || o.Retry == nil {
		t.Fatalf("%+v, %v", o, err)
	}
	exclusive(t, server.recordPath("c"))
	o, err = server.Resume(t.Context(), o.Retry, nil)
	if err != nil || o.Ran || o.Retry != nil || !o.Look {
		t.Errorf("%+v, %v", o, err)
	}
	if _, err := lock.Try(server.supervisorLockPath("c"), lock.Exclusive); errors.Is(err, lock.ErrHeld) {
		t.Error("its lock is held")
	}
}
