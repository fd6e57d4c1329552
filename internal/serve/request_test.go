//go:build linux

package serve

import (
	"bufio"
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

// TestRequests: what is refused, byte for byte as it comes, and with which status. A
// refused request is the last one of its connection.
func TestRequests(t *testing.T) {
	b := newBench(t)
	b.listen(Options{})
	const auth = "Authorization: Bearer " + testToken + "\r\n"
	const end = "Host: localhost\r\n" + auth + "\r\n"
	const events = "GET /events?thread=/nowhere HTTP/1.1\r\n" // 404, once it is understood
	for _, tt := range []struct {
		request string
		status  int
	}{
		{"GET /healthz HTTP/1.1\r\nhOST:  localhost \r\nX:\r\n\r\n", 200},
		{"GET /healthz HTTP/1.0\r\n\r\n", 200},
		{"GET /healthz HTTP/1.1\r\nContent-Length: 0\r\n" + end, 200},
		{"HEAD /healthz HTTP/1.1\r\n" + end, 200},
		{"GET / HTTP/1.1\r\n" + end, 404},
		{"GET /healthz/ HTTP/1.1\r\n" + end, 404},
		{events + end, 404},
		{"HEAD /events HTTP/1.1\r\n" + end, 200},
		{"GET /events?a=%zz HTTP/1.1\r\n" + end, 400},
		{"GET /events?a;b HTTP/1.1\r\n" + end, 400},
		{"GET /healthz HTTP/1.1\r\n\r\n", 400},                        // no Host
		{"GET /healthz HTTP/1.1\r\nHost: localhost\r\n" + end, 400},   // two
		{"GET /healthz HTTP/1.1\r\nHost: a b\r\n\r\n", 400},           //
		{"GET / HTTP/1.1\r\n" + auth + end, 401},                      // two tokens
		{"GET  /healthz HTTP/1.1\r\n" + end, 400},                     // two spaces
		{"GET /healthz\r\n" + end, 400},                               // HTTP/0.9
		{"GET /healthz HTTP/3.0\r\n" + end, 505},                      //
		{"G@T /healthz HTTP/1.1\r\n" + end, 400},                      //
		{"GET /%zz HTTP/1.1\r\n" + end, 400},                          //
		{"GET /\x00 HTTP/1.1\r\n" + end, 400},                         //
		{"GET /healthz HTTP/1.1\r\nA : b\r\n" + end, 400},             // space before the colon
		{"GET /healthz HTTP/1.1\r\nA\r\n" + end, 400},                 //
		{"GET /healthz HTTP/1.1\r\n: b\r\n" + end, 400},               //
		{"GET /healthz HTTP/1.1\r\nA: b\x00\r\n" + end, 400},          //
		{"GET /healthz HTTP/1.1\r\nContent-Length: 3\r\n" + end, 400}, // no process waits for the body
		{"GET /healthz HTTP/1.1\r\nTransfer-Encoding: chunked\r\n" + end, 400},
		{"POST /healthz HTTP/1.1\r\nContent-Length: 1000000\r\n" + end, 405},
		{"POST /nowhere HTTP/1.1\r\n" + end, 405},
		{"PUT /metrics HTTP/1.1\r\n" + end, 405},
		{"OPTIONS * HTTP/1.1\r\n" + end, 400},
		{"CONNECT localhost:80 HTTP/1.1\r\n" + end, 405},
		{"get /healthz HTTP/1.1\r\n" + end, 405}, // methods have a case
		{"GET /" + strings.Repeat("x", 2*maxHeaderBytes) + " HTTP/1.1\r\n" + end, 431},
		{"GET / HTTP/1.1\r\n" + strings.Repeat("A: b\r\n", maxHeaderBytes/3) + end, 431},
		{strings.Repeat("x", 2*maxHeaderBytes), 431},
	} {
		conn := b.dial()
		if _, err := io.WriteString(conn, tt.request); err != nil {
			t.Fatal(err)
		}
		in := bufio.NewReader(conn)
		r, err := http.ReadResponse(in, &http.Request{Method: strings.Fields(tt.request)[0]})
		if err != nil || r.StatusCode != tt.status {
			t.Errorf("%.60q: %+v %v, want %d", tt.request, r, err, tt.status)
			continue
		}
		if !r.Close {
			if r.StatusCode != 200 && r.StatusCode != 405 {
				t.Errorf("%.60q: the connection goes on", tt.request)
			}
			continue
		}
		if _, err := io.Copy(io.Discard, in); err != nil {
			t.Errorf("%.60q: no end comes: %v", tt.request, err)
		}
		conn.Close()
	}
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

// TestSites: a page of another site, in a browser on this host, learns and does
// nothing, also when its name is made to lead here.
func TestSites(t *testing.T) {
	b := newBench(t)
	b.listen(Options{})
	_, port, _ := net.SplitHostPort(b.s.web.listener.Addr().String())
	for _, tt := range []struct {
		host, method, path string
		header             []string
		want               int
	}{
		{"evil.example", "GET", "/healthz", []string{"Authorization", ""}, 421},
		{"evil.example:" + port, "GET", "/metrics", []string{"Authorization", ""}, 421},
		{"localhost.evil.example", "GET", "/healthz", []string{"Authorization", ""}, 421},
		{"127.0.0.1.evil.example", "GET", "/healthz", []string{"Authorization", ""}, 421},
		{"localhost:" + port, "GET", "/healthz", []string{"Authorization", ""}, 200},
		{"LOCALHOST", "GET", "/healthz", []string{"Authorization", ""}, 200},
		{"192.0.2.7", "GET", "/healthz", []string{"Authorization", ""}, 200},
		{"[::1]:" + port, "GET", "/healthz", []string{"Authorization", ""}, 200},
		{"[fe80::1]", "GET", "/healthz", []string{"Authorization", ""}, 200},
		{"behind.proxy.example", "GET", "/metrics", nil, 200}, // no browser knows the token
		{"localhost", "POST", "/healthz", []string{"Sec-Fetch-Site", "cross-site"}, 403},
		{"localhost", "POST", "/events", []string{"Sec-Fetch-Site", "same-site"}, 403},
		{"localhost", "POST", "/healthz", []string{"Origin", "https://evil.example"}, 403},
		{"localhost", "POST", "/healthz", []string{"Origin", "null"}, 403},
		{"localhost", "POST", "/healthz", []string{"Sec-Fetch-Site", "same-origin"}, 405},
		{"localhost", "POST", "/healthz", nil, 405},
	} {
		q := b.request(tt.path, tt.header...)
		q.Method, q.Host = tt.method, tt.host
		r, err := http.DefaultClient.Do(q)
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(r.Body)
		r.Body.Close()
		if r.StatusCode != tt.want || r.Header.Get("Cache-Control") != "no-store" || r.Header.Get("Access-Control-Allow-Origin") != "" || len(body) == 0 {
			t.Errorf("%s %s at %s with %q: %d %q, want %d", tt.method, tt.path, tt.host, tt.header, r.StatusCode, body, tt.want)
		}
	}
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
