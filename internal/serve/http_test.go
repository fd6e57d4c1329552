//go:build linux

package serve

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"thread/engine"
	"thread/internal/socket"
)

const testToken = "secret-of-the-tests-0123456789"

var testClients = []Client{{Name: "token", Rights: "admin", Token: testToken}}

// listen serves with HTTP on a free port of this host.
func (b *bench) listen(o Options) {
	b.Helper()
	if o.Listen == "" {
		o.Listen = "127.0.0.1:0"
		if o.Clients == nil {
			o.Clients = testClients
		}
	}
	b.serve(o)
}

// request is a GET with the token, unless the header says otherwise.
func (b *bench) request(path string, header ...string) *http.Request {
	b.Helper()
	q, err := http.NewRequest("GET", b.url(path), nil)
	if err != nil {
		b.Fatal(err)
	}
	q.Header.Set("Authorization", "Bearer "+testToken)
	for i := 0; i+1 < len(header); i += 2 {
		q.Header.Set(header[i], header[i+1])
	}
	return q
}

func (b *bench) url(path string) string {
	return "http://" + b.s.web.listener.Addr().String() + path
}

func (b *bench) get(path string, header ...string) (status int, contentType, body string) {
	b.Helper()
	r, err := http.DefaultClient.Do(b.request(path, header...))
	if err != nil {
		b.Fatal(err)
	}
	defer r.Body.Close()
	text, err := io.ReadAll(r.Body)
	if err != nil {
		b.Fatal(err)
	}
	return r.StatusCode, r.Header.Get("Content-Type"), string(text)
}

func TestHealth(t *testing.T) {
	b := newBench(t)
	b.listen(Options{})
	if status, typ, body := b.get("/healthz"); status != 200 || typ != "text/plain; charset=utf-8" || body != "ok\n" {
		t.Errorf("%d %s %q", status, typ, body)
	}
	if status, _, _ := b.get("/"); status != 404 {
		t.Errorf("/: %d", status)
	}
	if r, err := http.Post(b.url("/healthz"), "text/plain", strings.NewReader("body")); err != nil || r.StatusCode != 405 || r.Header.Get("Allow") != "GET, HEAD" {
		t.Errorf("POST: %+v %v", r, err)
	}
	// The refusal arrives although most of the request was not read.
	if r, err := http.Post(b.url("/"+strings.Repeat("x", 3*maxHeaderBytes)), "text/plain", nil); err != nil || r.StatusCode != 431 {
		t.Errorf("a long request: %+v %v", r, err)
	}
}

// TestToken: whatever is about a thread needs the token, on loopback too; whether
// the process is well does not.
func TestToken(t *testing.T) {
	b := newBench(t)
	b.listen(Options{})
	for auth, want := range map[string]int{"": 401, testToken: 401, "Basic " + testToken: 401, "Bearer": 401, "Bearer " + testToken[1:]: 401, "Bearer " + testToken + "2": 401, "Bearer " + testToken: 200, "bearer " + testToken: 200} {
		for _, path := range []string{"/healthz", "/metrics", "/events"} {
			if want == 200 && path == "/events" {
				continue // a stream does not end
			}
			want := want
			if path == "/healthz" {
				want = 200
			}
			if status, _, body := b.get(path, "Authorization", auth); status != want || want == 401 && strings.Contains(body, b.t.Dir()) {
				t.Errorf("%s with %q: %d %q, want %d", path, auth, status, body, want)
			}
		}
	}
}

// TestListenRefused: what is not a place to listen at.
func TestListenRefused(t *testing.T) {
	b := newBench(t)
	if err := os.WriteFile(b.path("file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for listen, token := range map[string]string{"0.0.0.0:0": "", "[::]:0": "", "192.0.2.1:80": "", "127.0.0.1:0": "", "[::1]:0": "", "localhost:0": "", ":0": "", "localhost": "", "::1": "", "host:80": "t", "host": "t", "8080": "t", "127.0.0.1:": "t", "127.0.0.1:http": "t", "127.0.0.1:99999": "t", "127.0.0.1:-1": "t", "1.2.3:80": "t", "unix:" + b.path("file"): "", "unix:": ""} {
		clients := map[string][]Client{"t": testClients}
		s, err := New(Options{Threads: []string{b.t.Dir()}, Listen: listen, Clients: clients[token]})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.Run(t.Context()); !errors.Is(err, ErrListen) {
			t.Errorf("%s: %v", listen, err)
		}
	}
	b.listen(Options{})
	s, err := New(Options{Threads: []string{b.t.Dir()}, Listen: b.s.web.listener.Addr().String(), Clients: testClients})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Run(t.Context()); !errors.Is(err, ErrAddress) || errors.Is(err, ErrListen) {
		t.Errorf("an address in use: %v", err)
	}
}

// TestListenPath: a unix socket, of mode 0600, in place of a stale one but not of
// one in use.
func TestListenPath(t *testing.T) {
	b := newBench(t)
	path := b.path("http.sock")
	if err := os.Chmod(b.dir, 0o700); err != nil { // whatever the umask
		t.Fatal(err)
	}
	stale, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	stale.SetUnlinkOnClose(false)
	stale.Close()
	b.listen(Options{Listen: "unix:" + path})
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v %v", info, err)
	}
	client := http.Client{Transport: &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) { return net.Dial("unix", path) }}}
	// The mode of the socket says who comes, but another process may forward it to a port, for a
	// browser.
	for at, want := range map[string]int{"localhost/metrics": 200, "127.0.0.1/metrics": 200, "any.name/healthz": 200, "any.name/metrics": 421, "any.name/events": 421} {
		r, err := client.Get("http://" + at)
		if err != nil || r.StatusCode != want {
			t.Errorf("%s: %+v %v", at, r, err)
			continue
		}
		r.Body.Close()
	}
	if _, err := socket.Listen(path); err == nil {
		t.Error("a second one listens there")
	}
}

// TestMetrics: what is shown, in the form that Prometheus reads.
func TestMetrics(t *testing.T) {
	b := newBench(t)
	at := b.fifo("at")
	b.fifo("go")
	b.subscribe(engine.Subscription{Consumer: `a"b\`, Lane: "slow", Handler: `echo ran > "$D/at"; [ -e "$D/again" ] || { : > "$D/again"; exit 3; }; read x < "$D/go"; ` + drain})
	b.listen(Options{})
	b.push("s")
	b.line(at)
	// It stays so: the second run does not end by itself. But the answer that first says so
	// may have looked at the other metrics before.
	b.until("failed", func() bool {
		_, _, text := b.get("/metrics")
		return strings.Contains(text, `thread_retries_total{lane="slow"} 1`)
	})
	status, typ, text := b.get("/metrics")
	if status != 200 || !strings.HasPrefix(typ, "text/plain; version=0.0.4; charset=utf-8") {
		t.Errorf("%d %s", status, typ)
	}
	labels := fmt.Sprintf(`{consumer="a\"b\\",thread="%s"}`, b.t.Dir())
	for _, want := range []string{
		"thread_served_threads 1",
		`thread_events_total{thread="` + b.t.Dir() + `"} 1`,
		`thread_pushes_total{thread="` + b.t.Dir() + `"} 1`,
		"thread_consumer_lag_events" + labels + " 1",
		"thread_consumer_dead_letters" + labels + " 0",
		`thread_runs_total{lane="slow",result="failed"} 1`,
		`thread_runs_total{lane="slow",result="ok"} 0`,
		`thread_retries_total{lane="slow"} 1`,
		`thread_run_duration_seconds_count{lane="slow"} 1`,
		`thread_run_duration_seconds_bucket{lane="slow",le="+Inf"} 1`,
		`thread_lane_wait_seconds_count{lane="slow"} 1`,
	} {
		if !strings.Contains(text, "\n"+want+"\n") {
			t.Errorf("there is no line %s in\n%s", want, text)
		}
	}
	if age := sampleOf(t, text, "thread_consumer_oldest_seconds"+labels); age <= 0 || age > 60 {
		t.Errorf("the oldest event is %v s old", age)
	}
	if n := sampleOf(t, text, "process_open_fds"); n < 3 {
		t.Errorf("%v descriptors are open", n)
	}
	if n := sampleOf(t, text, "go_goroutines"); n < 2 {
		t.Errorf("%v goroutines", n)
	}
	wellFormed(t, text)
	b.line(at)
	_, _, text = b.get("/metrics")
	for name, want := range map[string]float64{"thread_lane_limit": 1, "thread_lane_active": 1, "thread_lane_queued": 0, "thread_lane_oldest_wait_seconds": 0} {
		if got := sampleOf(t, text, name+`{lane="slow"}`); got != want {
			t.Errorf("%s is %v, want %v", name, got, want)
		}
	}
	if err := os.WriteFile(b.path("go"), []byte("go\n"), 0); err != nil {
		t.Fatal(err)
	}
	b.idle()
	_, _, text = b.get("/metrics")
	if lag := sampleOf(t, text, "thread_consumer_lag_events"+labels); lag != 0 {
		t.Errorf("lag %v at the end", lag)
	}
	if ok := sampleOf(t, text, `thread_runs_total{lane="slow",result="ok"}`); ok != 1 {
		t.Errorf("%v runs ended well", ok)
	}
}

func sampleOf(t *testing.T, text, series string) float64 {
	t.Helper()
	for line := range strings.Lines(text) {
		if value, ok := strings.CutPrefix(line, series+" "); ok {
			v, err := strconv.ParseFloat(strings.TrimSpace(value), 64)
			if err != nil {
				t.Fatal(err)
			}
			return v
		}
	}
	t.Fatalf("there is no %s", series)
	return 0
}

// wellFormed checks the text format: every sample follows the TYPE line of its
// family, and none comes twice.
func wellFormed(t *testing.T, text string) {
	t.Helper()
	sample := regexp.MustCompile(`^([a-z_]+)(\{[a-z]+="(?:[^"\\\n]|\\.)*"(?:,[a-z]+="(?:[^"\\\n]|\\.)*")*\})? [-+0-9.eInf]+$`)
	family, seen, families := "", map[string]bool{}, map[string]bool{}
	in := bufio.NewScanner(strings.NewReader(text))
	for in.Scan() {
		line := in.Text()
		if f := strings.Fields(line); f[0] == "#" {
			if f[1] == "TYPE" {
				if family = f[2]; families[family] {
					t.Errorf("%s comes twice", family)
				}
				families[family] = true
			}
			continue
		}
		m := sample.FindStringSubmatch(line)
		if m == nil {
			t.Errorf("not a sample: %s", line)
			continue
		}
		name := strings.TrimSuffix(strings.TrimSuffix(strings.TrimSuffix(m[1], "_bucket"), "_sum"), "_count")
		if m[1] != family && name != family || seen[m[1]+m[2]] {
			t.Errorf("%s in %s, or twice", line, family)
		}
		seen[m[1]+m[2]] = true
	}
}

// TestHealthWhileDraining: who asks is told that it ends, and streams end.
func TestHealthWhileDraining(t *testing.T) {
	b := newBench(t)
	at := b.fifo("at")
	b.fifo("go")
	b.subscribe(engine.Subscription{Consumer: "c", Handler: `echo started > "$D/at"; read x < "$D/go"; ` + drain})
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	ready := make(chan struct{})
	s, err := New(Options{Threads: []string{b.t.Dir()}, Listen: "127.0.0.1:0", Clients: testClients, Drain: 20 * time.Second, Ready: func() { close(ready) }})
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() {
		_, err := s.Run(ctx)
		ended <- err
	}()
	<-ready
	b.s = s
	stream, err := http.DefaultClient.Do(b.request("/events"))
	if err != nil {
		t.Fatal(err)
	}
	b.push("s")
	b.line(at)
	stop()
	if _, err := io.ReadAll(stream.Body); err != nil {
		t.Errorf("the stream: %v", err)
	}
	if status, _, body := b.get("/healthz"); status != 503 || body != "draining\n" {
		t.Errorf("%d %q", status, body)
	}
	if status, _, _ := b.get("/events"); status != 503 {
		t.Errorf("/events: %d", status)
	}
	if status, _, _ := b.get("/metrics"); status != 200 {
		t.Errorf("/metrics: %d", status)
	}
	if err := os.WriteFile(b.path("go"), []byte("go\n"), 0); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
	s.standby.Stop()
}
