//go:build linux

package dispatch

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"thread/engine"
	"thread/internal/faults"
)

// failing calls fn with the failure of one call that is on no file.
func failing(t *testing.T, errno syscall.Errno, name string, fn func()) {
	t.Helper()
	f := also(errno, 1, name)()
	f.Run(t, t.TempDir(), fn)
	if f.Hit == nil {
		t.Errorf("%s was not called", name)
	}
}

// descriptors returns what this process has open: what each descriptor is of.
func descriptors(t *testing.T) map[string]string {
	t.Helper()
	names, err := filepath.Glob("/proc/self/fd/*")
	must(t, err)
	open := map[string]string{}
	for _, name := range names {
		if of, err := os.Readlink(name); err == nil { // else it is the one by which they were read
			open[name] = of
		}
	}
	return open
}

// stayOpen returns what was opened since and is still open. A test before this one may be
// closing its own meanwhile.
func stayOpen(t *testing.T, before map[string]string) (list []string) {
	t.Helper()
	for name, of := range descriptors(t) {
		if before[name] != of {
			list = append(list, name+" of "+of)
		}
	}
	return list
}

// TestAlarm: it rings at its time, and at once when that has passed, also where the system
// has no timer for it.
func TestAlarm(t *testing.T) {
	rings := func(what string, at time.Time) {
		t.Helper()
		a := newAlarm(at)
		defer a.stop()
		select {
		case <-a.rings:
			if now := time.Now(); now.Before(at) {
				t.Errorf("%s: it rings %v early", what, at.Sub(now))
			}
		case <-time.After(patience):
			t.Errorf("%s: it does not ring", what)
		}
	}
	before := descriptors(t)
	rings("a time to come", time.Now().Add(time.Millisecond))
	rings("a time that has passed", time.Now().Add(-time.Second))
	rings("a time that the system does not take", time.Unix(-10, 0))
	failing(t, syscall.EMFILE, "timerfd_create", func() { rings("no descriptors", time.Now().Add(time.Millisecond)) })
	if list := stayOpen(t, before); list != nil {
		t.Errorf("%q stay open", list)
	}
}

// TestPingFails: a server that cannot be told was not told, and what cannot be listened on is
// an error, and no socket: with a short path and with one too long for a socket.
func TestPingFails(t *testing.T) {
	for _, name := range []string{"t", strings.Repeat("t", maxSocketPath)} {
		th, err := engine.Init(filepath.Join(faults.Dir(t), name))
		must(t, err)
		defer th.Close()
		r := newDispatcher(th, Options{})
		must(t, os.RemoveAll(r.run))
		if p, err := r.listen(); err == nil {
			p.Close()
			t.Error("it listens in no directory")
		}
		must(t, r.prepare())
		socket := filepath.Join(r.run, wakeSocket)
		listens := func(what string, want error) {
			t.Helper()
			p, err := r.listen()
			if p != nil || !errors.Is(err, want) {
				t.Errorf("%s: %v, %v", what, p, err)
			}
		}
		failing(t, syscall.EMFILE, "socket", func() { listens("no descriptors", syscall.EMFILE) })
		failing(t, syscall.EACCES, "bind", func() { listens("no right to bind", syscall.EACCES) })
		// What may not be opened to those who push is not listened on.
		f := faults.Nth(syscall.EPERM, 1, "fchmodat", wakeSocket)
		f.Run(t, th.Dir(), func() { listens("no right to change the mode", syscall.EPERM) })
		p, err := r.listen()
		must(t, err)
		defer p.Close()
		failing(t, syscall.EMFILE, "socket", func() {
			if r.ping(pingPush, "") {
				t.Error("it is told without a descriptor")
			}
		})
		failing(t, syscall.EAGAIN, "sendto", func() {
			if r.ping(pingPush, "") {
				t.Error("it is told through a full socket")
			}
		})
		if name != "t" {
			for _, tell := range []func() bool{func() bool { return r.ping(pingPush, "") }, func() bool { p, err := r.listen(); return p != nil || err == nil }} {
				done := true
				f := faults.Nth(syscall.EMFILE, 1, "openat", "/run")
				f.Run(t, th.Dir(), func() { done = tell() })
				if done || f.Hit == nil {
					t.Errorf("done %v after %v", done, f.Calls)
				}
			}
			// It was removed, in order to be made again.
			must(t, p.file.Close())
			if p, err = r.listen(); err != nil {
				t.Fatal(err)
			}
		}
		if !r.ping(pingPush, "c") {
			t.Fatal("it is not told")
		}
		failing(t, syscall.EINTR, "recvfrom", func() {
			if got, err := p.Next(); err != nil || got != (Ping{Push: true, Author: "c"}) {
				t.Errorf("after a signal: %+v, %v", got, err)
			}
		})
		must(t, p.Close())
		if got, err := p.Next(); err == nil {
			t.Errorf("closed: %+v", got)
		}
		if exists(socket) {
			t.Error("the socket is left")
		}
		if open := faults.Open(t, th.Dir()); open != nil {
			t.Errorf("open are %q", open)
		}
	}
	if got, err := (&Pings{}).Next(); err == nil {
		t.Errorf("no socket: %+v", got)
	}
}

// TestLink: what is sent over a link arrives in order and once, with its files, whatever
// signals come; and what cannot be sent is an error.
func TestLink(t *testing.T) {
	before := descriptors(t)
	failing(t, syscall.EMFILE, "socketpair", func() {
		if _, _, err := newLink(); !errors.Is(err, syscall.EMFILE) {
			t.Errorf("no descriptors: %v", err)
		}
	})
	l, theirs, err := newLink()
	must(t, err)
	file, err := os.CreateTemp(t.TempDir(), "f")
	must(t, err)
	failing(t, syscall.EINTR, "sendmsg", func() { must(t, l.send("first", file)) })
	must(t, l.send("second", nil))
	must(t, file.Close())
	if l.send("third", file) == nil {
		t.Error("a closed file was sent")
	}
	stdin := asStdin(t, theirs)
	failing(t, syscall.EINTR, "recvmsg", func() {
		p := make([]byte, 100)
		n, files, err := readLink(p)
		if got := string(p[:n]); err != nil || len(files) != 1 || got != "first\x00" && got != "first\x00second\x00" {
			t.Errorf("%q, %d files, %v", got, len(files), err)
		}
		for _, f := range files {
			f.Close()
		}
	})
	l.close()
	if p := make([]byte, 100); true {
		n, _, err := readLink(p)
		if n > 0 && string(p[:n]) == "second\x00" {
			n, _, err = readLink(p)
		}
		if n != 0 || err != nil {
			t.Errorf("the end: %d, %v", n, err)
		}
	}
	stdin()
	// One that is killed with words unread has ended.
	l, theirs, err = newLink()
	must(t, err)
	_, err = theirs.Write([]byte("unread"))
	must(t, err)
	stdin = asStdin(t, theirs)
	l.close()
	if n, files, err := readLink(make([]byte, 100)); n != 0 || files != nil || err != nil {
		t.Errorf("reset: %d, %v, %v", n, files, err)
	}
	stdin()
	// A supervisor of an earlier version has a pipe.
	r, w, err := os.Pipe()
	must(t, err)
	_, err = w.Write([]byte{msgStop})
	must(t, err)
	must(t, w.Close())
	stdin = asStdin(t, r)
	if state, stop, err := readState(readLink); !stop || err != nil {
		t.Errorf("over a pipe: %+v, %v, %v", state, stop, err)
	}
	stdin()
	// The other end is closed.
	l, theirs, err = newLink()
	must(t, err)
	must(t, theirs.Close())
	if err := l.sendByte(msgStop); !errors.Is(err, syscall.EPIPE) {
		t.Errorf("no process reads: %v", err)
	}
	l.close()
	if list := stayOpen(t, before); list != nil {
		t.Errorf("%q stay open", list)
	}
}

// asStdin puts f in place of the standard input, and closes it, until the returned function
// is called.
func asStdin(t *testing.T, f *os.File) (restore func()) {
	t.Helper()
	old, err := unix.FcntlInt(0, unix.F_DUPFD_CLOEXEC, 3)
	must(t, err)
	must(t, unix.Dup3(int(f.Fd()), 0, 0))
	must(t, f.Close())
	return func() {
		must(t, unix.Dup3(old, 0, 0))
		must(t, unix.Close(old))
	}
}

// TestStandbyWithoutLink: a standby that cannot read what it is sent takes nothing over.
func TestStandbyWithoutLink(t *testing.T) {
	th := withEvent(t, filepath.Join(faults.Dir(t), "t"), "true")
	defer th.Close()
	dir, err := os.Open(t.TempDir()) // which cannot be read as a file
	must(t, err)
	stdin := asStdin(t, dir)
	err = newDispatcher(th, Options{}).runStandby(t.Context(), 0)
	stdin()
	if !errors.Is(err, syscall.EISDIR) || !unread(t, th) {
		t.Errorf("%v, unread: %v", err, unread(t, th))
	}
}

// TestNoStandby: a supervisor that cannot start its standby says so, and is not held up at
// its end.
func TestNoStandby(t *testing.T) {
	for what, call := range map[string]string{"no link": "socketpair", "no process": "pipe2"} {
		th, err := engine.Init(filepath.Join(faults.Dir(t), "t"))
		must(t, err)
		defer th.Close()
		before := descriptors(t)
		s := newStandby(newDispatcher(th, Options{}))
		var said []string
		s.warn = func(format string, _ ...any) error { said = append(said, format); return nil }
		f := also(syscall.EMFILE, 1, call)()
		var launched any
		f.Run(t, th.Dir(), func() {
			cmd, err := s.launch()
			if launched = cmd; !errors.Is(err, syscall.EMFILE) {
				t.Errorf("%s: %v, %v", what, cmd, err)
			}
			s.restart(cmd, err)
		})
		s.stop()
		if f.Hit == nil || s.link != nil || !slices.Equal(said, []string{"supervise: no standby: %v"}) {
			t.Errorf("%s: said %q, %v", what, said, launched)
		}
		if list := stayOpen(t, before); list != nil {
			t.Errorf("%s: %q stay open", what, list)
		}
	}
}

// TestTurnsFail: without a connection to the server every delivery has its turn, and nothing
// stays open.
func TestTurnsFail(t *testing.T) {
	b := newBench(t)
	long := filepath.Join(t.TempDir(), strings.Repeat("t", maxSocketPath))
	if _, err := dialControl(long); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a directory that is gone: %v", err)
	}
	must(t, b.r.prepare())
	b.fakeServer()
	before := descriptors(t)
	failing(t, syscall.EMFILE, "socket", func() {
		if _, err := dialControl(b.r.run); !errors.Is(err, syscall.EMFILE) {
			t.Errorf("no descriptors: %v", err)
		}
	})
	// The first one is of closing it on exec, the second one reads the flags.
	f := also(syscall.EIO, 2, "fcntl")()
	f.Run(t, b.t.Dir(), func() {
		if _, err := dialControl(b.r.run); !errors.Is(err, syscall.EIO) {
			t.Errorf("it cannot be waited for: %v", err)
		}
	})
	if list := stayOpen(t, before); list != nil {
		t.Errorf("%q stay open", list)
	}
	// What it cannot be asked for is had, once the connection has ended.
	q := &Turns{place: b.t.Dir(), control: b.r.run, consumer: "c", files: map[int]*deliveryFiles{}}
	broken := &deafConn{closed: make(chan struct{})}
	q.conn = &turnConn{ReadWriteCloser: broken, asked: map[int64]*Turn{}}
	go q.receive(q.conn, json.NewDecoder(broken))
	limited, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	turn, err := q.Wait(limited, 0, nil, 1)
	if err != nil || !isClosed(broken.closed) {
		t.Fatalf("%v, %v", turn, err)
	}
	turn.Done("")
	if err := (&turnConn{ReadWriteCloser: broken}).write(func() {}); err == nil || errors.Is(err, syscall.EPIPE) {
		t.Errorf("what is no line: %v", err)
	}
}

// deafConn is a connection over which nothing can be written.
type deafConn struct{ closed chan struct{} }

func (c *deafConn) Read([]byte) (int, error)  { <-c.closed; return 0, io.EOF }
func (c *deafConn) Write([]byte) (int, error) { return 0, syscall.EPIPE }
func (c *deafConn) Close() error {
	if !isClosed(c.closed) {
		close(c.closed)
	}
	return nil
}

// TestDeliveryFiles: what is in the way of a slot's files, or cannot be made, is an error; a
// file that was read before is empty then, and so is the pipe.
func TestDeliveryFiles(t *testing.T) {
	dir := filepath.Join(faults.Dir(t), "0")
	must(t, os.MkdirAll(filepath.Join(dir, "messages", "full"), 0o700))
	f := faults.Nth(syscall.EIO, 1, "openat", ".") // where it is to be removed
	f.Run(t, dir, func() {
		if _, err := newDeliveryFiles(dir); !errors.Is(err, syscall.EIO) {
			t.Errorf("a directory in the way: %v", err)
		}
	})
	failing(t, syscall.EPERM, "mknodat", func() {
		if _, err := newDeliveryFiles(dir); !errors.Is(err, syscall.EPERM) {
			t.Errorf("no pipes: %v", err)
		}
	})
	d, err := newDeliveryFiles(dir)
	must(t, err)
	defer d.close()
	must(t, os.WriteFile(d.state, []byte("of before"), 0o600))
	_, err = d.pipe.Write([]byte("of before"))
	must(t, err)
	f = faults.Nth(syscall.EINTR, 1, "read", "/messages")
	f.Run(t, dir, d.reset)
	if info, err := os.Stat(d.state); err != nil || info.Size() != 0 || f.Hit == nil {
		t.Errorf("%v, %v", info, err)
	}
	must(t, d.pipe.SetReadDeadline(time.Now()))
	if n, err := d.pipe.Read(make([]byte, 9)); n != 0 {
		t.Errorf("%d bytes are left, %v", n, err)
	}
	must(t, os.WriteFile(d.state, []byte("of before"), 0o600))
	(&deliveryFiles{state: d.state}).reset() // it has no pipe
	if info, err := os.Stat(d.state); err != nil || info.Size() != 0 {
		t.Errorf("without a pipe: %v, %v", info, err)
	}
}
