//go:build !windows

package main

import (
	"bufio"
	"io"
	"net"
	"net/url"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// wire is a way to a server on which nothing comes through while it is cut: no answer, and no
// end of a connection.
type wire struct {
	listener net.Listener
	to       string
	delay    time.Duration // of all that passes, as on a long way

	mu  sync.Mutex
	cut chan struct{} // nil: it is whole; closed when it is whole again
}

func newWire(t *testing.T, to string) *wire {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w := &wire{listener: l, to: to}
	t.Cleanup(func() { _ = l.Close(); w.set(false) })
	go func() {
		for c, err := l.Accept(); err == nil; c, err = l.Accept() {
			go w.carry(c)
		}
	}()
	return w
}

func (w *wire) set(cut bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if cut == (w.cut != nil) {
		return
	}
	if cut {
		w.cut = make(chan struct{})
		return
	}
	close(w.cut)
	w.cut = nil
}

func (w *wire) wait() {
	time.Sleep(w.delay)
	w.mu.Lock()
	cut := w.cut
	w.mu.Unlock()
	if cut != nil {
		<-cut
	}
}

func (w *wire) carry(c net.Conn) {
	defer c.Close()
	w.wait()
	s, err := net.Dial("tcp", w.to)
	if err != nil {
		return
	}
	defer s.Close()
	half := func(to, from net.Conn) {
		buf := make([]byte, 32<<10)
		for {
			n, err := from.Read(buf)
			w.wait()
			if _, werr := to.Write(buf[:n]); err != nil || werr != nil {
				_ = to.Close()
				return
			}
		}
	}
	go half(s, c)
	half(c, s)
}

// through is the URL of the same thread behind w, whose server must be reached over TCP.
func (h *host) through(w *wire) string {
	h.t.Helper()
	u, err := url.Parse(h.url)
	if err != nil {
		h.t.Fatal(err)
	}
	q := u.Query()
	_, port, _ := net.SplitHostPort(w.listener.Addr().String())
	q.Set("host", "127.0.0.1")
	q.Set("port", port)
	u.RawQuery = q.Encode()
	return u.String()
}

// TestTopFar: top counts at a server whose answers take longer than a page waits.
func TestTopFar(t *testing.T) {
	h := newFleet(t)
	u, err := url.Parse(h.url)
	if err != nil {
		t.Fatal(err)
	}
	if strings.HasPrefix(u.Query().Get("host"), "/") {
		t.Skip("the server is not reached over TCP")
	}
	w := newWire(t, net.JoinHostPort(u.Query().Get("host"), u.Query().Get("port")))
	w.delay = 60 * time.Millisecond
	h.run("subscribe", "--consumer", "c", "--pull")
	h.push(2)
	if out := h.run("top", "--json", "--thread", h.through(w)); !strings.Contains(out, `"pending_count":2`) {
		t.Error(out)
	}
}

// TestServeSeveral: serve has the threads of every --thread, those whose server is cut off are
// logged while they are, with the handler that is ended, and when they are back.
func TestServeSeveral(t *testing.T) {
	h := newFleet(t)
	u, err := url.Parse(h.url)
	if err != nil {
		t.Fatal(err)
	}
	q := u.Query()
	host, port := q.Get("host"), q.Get("port")
	if strings.HasPrefix(host, "/") {
		t.Skip("the server is not reached over TCP")
	}
	w := newWire(t, net.JoinHostPort(host, port))
	_, port, _ = net.SplitHostPort(w.listener.Addr().String())
	q.Set("thread", "far")
	far := *u
	far.RawQuery = q.Encode()
	h.run("init", far.String())
	q.Set("host", "127.0.0.1")
	q.Set("port", port)
	q.Set("connect_timeout", "2")
	far.RawQuery = q.Encode()
	dir := t.TempDir()
	for _, c := range []struct{ thread, consumer, handler string }{
		{h.url, "near", "cd " + dir + "; thread-net consume -- sh -c 'echo x >>near'"},
		{far.String(), "far", "cd " + dir + "; echo begun >>far; sleep 600"},
	} {
		h.run("subscribe", "--thread", c.thread, "--consumer", c.consumer, "--handler", c.handler)
		h.run("push", "--thread", c.thread, "--source", "s", "--type", "t", "--content", "x")
	}
	cmd := h.command("serve", "--thread", h.url, "--thread", far.String(), "--thread", h.url)
	cmd.Env = append(cmd.Env, envLease+"=3s")
	r, out := io.Pipe()
	cmd.Stderr = out
	lines := make(chan string, 1000)
	go func() {
		for s := bufio.NewScanner(r); s.Scan(); {
			lines <- s.Text()
		}
	}()
	expect := func(words ...string) {
		t.Helper()
		for late := time.After(patience); ; {
			select {
			case line := <-lines:
				if os.Getenv("THREAD_TEST_LOG") != "" {
					t.Log(line)
				}
				found := 0
				for _, word := range words {
					if strings.Contains(line, word) {
						found++
					}
				}
				if found == len(words) {
					return
				}
			case <-late:
				t.Fatalf("%q is not logged", words)
			}
		}
	}
	h.start(cmd)
	awaitLong(dir+"/near", 1)
	awaitLong(dir+"/far", 1)
	if awaitLines(dir+"/near", 1) != 1 || awaitLines(dir+"/far", 1) != 1 {
		t.Fatal("not every thread is served")
	}
	w.set(true)
	expect("its turn is lost", "thread=far", "consumer=far", "level=WARN")
	expect("the thread cannot be read", "thread=far", "level=ERROR")
	h.run("push", "--thread", h.url, "--source", "s", "--type", "t", "--content", "y")
	awaitLong(dir+"/near", 2) // the other one is served all the time
	w.set(false)
	expect("the thread can be read again", "thread=far")
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
}
