//go:build linux

package serve

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"
)

// dial connects to the HTTP server.
func (b *bench) dial() net.Conn {
	b.Helper()
	conn, err := net.Dial("tcp", b.s.web.listener.Addr().String())
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { conn.Close() })
	conn.SetDeadline(time.Now().Add(20 * time.Second))
	return conn
}

// TestKeepAlive: a connection takes one request after the other, HEAD has the header
// of GET, and a crowd is a reason not to keep connections.
func TestKeepAlive(t *testing.T) {
	b := newBench(t)
	b.listen(Options{maxDescriptors: 2000})
	var from []string
	client := http.Client{Transport: &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) {
		conn := b.dial()
		from = append(from, conn.LocalAddr().String())
		return conn, nil
	}}}
	ask := func(method, path string) *http.Response {
		t.Helper()
		q := b.request(path)
		q.Method = method
		r, err := client.Do(q)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.Copy(io.Discard, r.Body); err != nil {
			t.Fatal(err)
		}
		r.Body.Close()
		return r
	}
	for _, method := range []string{"GET", "HEAD"} {
		if r := ask(method, "/healthz"); r.StatusCode != 200 || r.ContentLength != 3 || r.Header.Get("Content-Type") != "text/plain; charset=utf-8" {
			t.Errorf("%s /healthz: %+v", method, r)
		}
		if r := ask(method, "/metrics"); r.StatusCode != 200 || !strings.HasPrefix(r.Header.Get("Content-Type"), "text/plain; version=0.0.4") {
			t.Errorf("%s /metrics: %+v", method, r)
		}
	}
	if len(from) != 1 {
		t.Errorf("%d connections for 4 requests", len(from))
	}
	if r := ask("HEAD", "/events"); r.StatusCode != 200 || r.Header.Get("Content-Type") != "text/event-stream; charset=utf-8" {
		t.Errorf("HEAD /events: %+v", r)
	}
	for range b.s.web.listener.each + 1 {
		b.dial()
	}
	b.until("crowded", func() bool { return ask("GET", "/healthz").Close })
}

// TestListenForms: which addresses a --listen means.
func TestListenForms(t *testing.T) {
	for where, want := range map[string]string{
		"127.0.0.1:80": "127.0.0.1:80", "127.0.0.1": "127.0.0.1:9464", "localhost": "127.0.0.1:9464", "localhost:0": "127.0.0.1:0",
		":80": ":80", "::1": "[::1]:9464", "[::1]": "[::1]:9464", "[::1]:80": "[::1]:80", "0.0.0.0": "0.0.0.0:9464", "[::]:80": "[::]:80",
	} {
		if at, ok := tcpAddress(where); !ok || at.String() != want {
			t.Errorf("%s: %v %v, want %s", where, at, ok, want)
		}
	}
	b := newBench(t)
	b.listen(Options{Listen: ":0", Clients: testClients})
	_, port, _ := net.SplitHostPort(b.s.web.listener.Addr().String())
	if r, err := http.Get("http://127.0.0.1:" + port + "/healthz"); err != nil || r.StatusCode != 200 {
		t.Errorf("%+v %v", r, err)
	}
}

// lockedBuffer is a log that a test reads while it is written.
type lockedBuffer struct {
	mu sync.Mutex
	bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.Buffer.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.Buffer.String()
}

// failingListener fails as often as it says, as where descriptors are short.
type failingListener struct {
	net.Listener
	times int
}

type shortage struct{}

func (shortage) Error() string   { return "too many open files" }
func (shortage) Timeout() bool   { return false }
func (shortage) Temporary() bool { return true }

func (l *failingListener) Accept() (net.Conn, error) {
	if l.times--; l.times >= 0 {
		return nil, shortage{}
	}
	return l.Listener.Accept()
}

// TestHTTPErrors: what net/http has to say goes to the server's log, and a shortage
// ends nothing.
func TestHTTPErrors(t *testing.T) {
	var log lockedBuffer
	s, err := New(Options{Log: slog.New(slog.NewTextHandler(&log, nil)), Listen: "127.0.0.1:0", Clients: testClients})
	if err != nil {
		t.Fatal(err)
	}
	if s.web, err = s.listenWeb(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.web.listener.Listener = &failingListener{s.web.listener.Listener, 2}
	go s.web.serve()
	defer s.web.close()
	b := &bench{TB: t, s: s}
	if status, _, _ := b.get("/healthz"); status != 200 {
		t.Errorf("%d", status)
	}
	if text := log.String(); !strings.Contains(text, "level=WARN msg=http") || !strings.Contains(text, "too many open files") {
		t.Errorf("the log has %q", text)
	}
}

// TestScrapes: that many at once look at the threads, and more are told to come back.
func TestScrapes(t *testing.T) {
	b := newBench(t)
	b.listen(Options{})
	got := make(chan int, maxScrapes+1)
	b.s.mu.Lock() // each waits for this at first
	for range maxScrapes + 1 {
		go func() {
			r, err := http.DefaultClient.Do(b.request("/metrics"))
			if err != nil {
				t.Error(err)
				got <- 0
				return
			}
			r.Body.Close()
			got <- r.StatusCode
		}()
	}
	first := <-got
	b.s.mu.Unlock()
	if first != 503 {
		t.Errorf("one more: %d", first)
	}
	for range maxScrapes {
		if status := <-got; status != 200 {
			t.Errorf("one of those: %d", status)
		}
	}
}
