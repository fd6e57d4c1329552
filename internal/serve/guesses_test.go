//go:build linux

package serve

import (
	"bufio"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"testing"
	"time"

	"thread/engine"
)

// TestGuesses: an address that gives wrong tokens waits longer each time, others do not,
// and after too many from everywhere everybody waits for a moment.
func TestGuesses(t *testing.T) {
	var g guesses
	now := time.Now()
	a, neighbour := netip.MustParseAddr("2001:db8::1"), netip.MustParseAddr("2001:db8::2")
	other := netip.MustParseAddr("192.0.2.1")
	for range freeGuesses - 1 {
		if wait, _ := g.wrong(a, now); wait != 0 {
			t.Fatalf("waits %v for one of the first", wait)
		}
	}
	for i, want := range []time.Duration{1, 2, 4, 8, 16, 32, 60, 60} {
		wait, first := g.wrong(a, now)
		if wait != want*time.Second || first != (i == 0) {
			t.Fatalf("%d: waits %v, first %v", i, wait, first)
		}
		if got := g.pause(neighbour, now); got != wait {
			t.Errorf("its neighbour waits %v", got)
		}
		if again, _ := g.wrong(a, now); again != wait {
			t.Errorf("%d: one that did not wait counts: %v", i, again)
		}
		now = now.Add(wait)
	}
	if got := g.pause(other, now); got != 0 {
		t.Errorf("another address waits %v", got)
	}
	if got := g.pause(a, now.Add(guessesKept)); got != 0 {
		t.Errorf("long after it waits %v", got)
	}
	if wait, _ := g.wrong(a, now.Add(2*guessesKept)); wait != 0 {
		t.Errorf("what was long ago counts: %v", wait)
	}
	now = now.Add(3 * guessesKept)
	for i := range 2 * maxGuessing {
		g.wrong(netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)}), now)
	}
	if len(g.of) > maxGuessing {
		t.Errorf("%d addresses are kept", len(g.of))
	}
	if got := g.pause(other, now); got == 0 {
		t.Error("after a flood from everywhere another address does not wait")
	}
	if got := g.pause(other, now.Add(time.Minute)); got != 0 {
		t.Errorf("a minute after it waits %v", got)
	}
}

// TestGuessing: wrong tokens are answered with 429 after some, as a form and as a
// header, while a strong token comes in from the same address; a weak one has to wait.
func TestGuessing(t *testing.T) {
	b := newBench(t)
	weak := "0123456789abcdef"
	b.browse(Options{Clients: append(testClients, Client{Name: "weak", Rights: "read", Token: weak})})
	ask := func(token string) *http.Response {
		r, err := http.DefaultClient.Do(b.request("/metrics", "Authorization", "Bearer "+token))
		if err != nil {
			t.Fatal(err)
		}
		r.Body.Close()
		return r
	}
	if r := ask(weak); r.StatusCode != 200 {
		t.Fatalf("a weak token: %d", r.StatusCode)
	}
	seen := map[int]int{}
	for i := range 100 {
		r := ask(fmt.Sprint("wrong", i))
		seen[r.StatusCode]++
		if r.StatusCode == 429 && r.Header.Get("Retry-After") == "" {
			t.Fatal("no Retry-After")
		}
	}
	if seen[401] > 10 || seen[401]+seen[429] != 100 {
		t.Errorf("%v", seen)
	}
	if r := ask(weak); r.StatusCode != 429 {
		t.Errorf("the weak token after them: %d", r.StatusCode)
	}
	if r := ask(testToken); r.StatusCode != 200 {
		t.Errorf("the strong token after them: %d", r.StatusCode)
	}
	q, _ := http.NewRequest("POST", b.url("/login"), strings.NewReader(url.Values{"token": {"wrong"}}.Encode()))
	q.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	q.Header.Set("Origin", b.url(""))
	r, err := http.DefaultClient.Do(q)
	if err != nil {
		t.Fatal(err)
	}
	r.Body.Close()
	if r.StatusCode != 429 || r.Header.Get("Retry-After") == "" {
		t.Errorf("the form: %d", r.StatusCode)
	}
	if r, err := http.Get(b.url("/healthz")); err != nil || r.StatusCode != 200 {
		t.Errorf("/healthz: %v %v", r, err)
	}
}

// TestScopes: a token for some threads, for some consumers, for pushing alone, and until a
// time, is good for nothing else.
func TestScopes(t *testing.T) {
	b := newBench(t)
	for _, c := range []string{"w", "other"} {
		b.subscribe(engine.Subscription{Consumer: c, Pull: true})
	}
	b.browse(Options{Clients: append(testClients,
		Client{Name: "here", Rights: "write", Token: tokenOf("h"), Threads: []string{"thr*"}},
		Client{Name: "elsewhere", Rights: "admin", Token: tokenOf("e"), Threads: []string{"x*"}},
		Client{Name: "one", Rights: "write", Token: tokenOf("o"), Consumers: []string{"w"}},
		Client{Name: "chief", Rights: "admin", Token: tokenOf("c"), Consumers: []string{"w"}},
		Client{Name: "push", Rights: "push", Token: tokenOf("p")},
		Client{Name: "past", Rights: "admin", Token: tokenOf("o2"), Until: time.Now().Add(-time.Second)},
		Client{Name: "future", Rights: "read", Token: tokenOf("f"), Until: time.Now().Add(time.Hour)},
	)})
	const draft = `{"source":"s","type":"t","content":"x"}`
	for _, tt := range []struct {
		method, path, body string
		want               map[string]int
	}{
		{"GET", eventsAt, "", map[string]int{"h": 200, "e": 403, "o": 200, "p": 403, "o2": 401, "f": 200}},
		{"POST", eventsAt, draft, map[string]int{"h": 200, "e": 403, "o": 200, "p": 200, "o2": 401, "f": 403}},
		{"POST", "/threads/thread/consumers/w/next", "{}", map[string]int{"h": 200, "e": 403, "o": 200, "p": 403, "o2": 401, "f": 403}},
		{"POST", "/threads/thread/consumers/other/next", "{}", map[string]int{"h": 200, "e": 403, "o": 403, "p": 403, "o2": 401, "f": 403}},
		{"POST", "/threads/thread/consumers/w%2Fx/next", "{}", map[string]int{"o": 403}},
		{"GET", "/threads/" + url.PathEscape(b.t.Dir()) + "/events", "", map[string]int{"h": 200, "e": 403}},
		{"GET", "/threads/thread/dead", "", map[string]int{"h": 200, "e": 403, "o": 403, "c": 403, "f": 200}},
		{"GET", "/threads/thread/dead?consumer=w", "", map[string]int{"h": 200, "o": 200, "c": 200}},
		{"GET", "/threads/thread/dead?consumer=other", "", map[string]int{"h": 200, "o": 403, "c": 403}},
		{"POST", "/threads/thread/dead/drop?consumer=w", `{"consumer":"other"}`, map[string]int{"h": 403, "c": 403}},
		{"GET", "/metrics", "", map[string]int{"h": 403, "e": 403, "o": 403, "p": 403, "o2": 401, "f": 200}},
		{"GET", "/threads.json", "", map[string]int{"h": 401, "e": 401, "o": 401, "p": 401, "o2": 401, "f": 200}},
		{"GET", "/openapi.json", "", map[string]int{"h": 200, "e": 200, "o": 200, "p": 200, "o2": 200, "f": 200}},
		{"GET", "/healthz", "", map[string]int{"h": 200, "e": 200, "o": 200, "p": 200, "o2": 200, "f": 200}},
	} {
		for who, want := range tt.want {
			q := b.request(tt.path, "Authorization", "Bearer "+tokenOf(who), "Content-Type", "application/json", "Accept", "application/json")
			q.Method = tt.method
			if tt.body != "" {
				q.Body, q.ContentLength = http.NoBody, 0
				q, _ = http.NewRequest(tt.method, q.URL.String(), strings.NewReader(tt.body))
				q.Header.Set("Authorization", "Bearer "+tokenOf(who))
				q.Header.Set("Content-Type", "application/json")
			}
			r, err := http.DefaultClient.Do(q)
			if err != nil {
				t.Fatal(err)
			}
			r.Body.Close()
			got := r.StatusCode
			switch {
			case got == 204: // nothing to be given
				got = 200
			case tt.path == "/threads.json" && got == 403:
				got = 401
			}
			if got != want {
				t.Errorf("%s %s by %s: %d, want %d", tt.method, tt.path, who, r.StatusCode, want)
			}
		}
	}
}

// TestReadOnly: --read-only binds programs, too.
func TestReadOnly(t *testing.T) {
	b := newBench(t)
	b.subscribe(engine.Subscription{Consumer: "w", Pull: true})
	b.listen(Options{ReadOnly: true})
	for _, path := range []string{"events", "consumers/w/next", "consumers/w/pause"} {
		if status, _ := b.ask2(path, `{}`); status != 403 {
			t.Errorf("%s: %d", path, status)
		}
	}
	if status, _, _ := b.get(eventsAt); status != 200 {
		t.Errorf("reading: %d", status)
	}
}

// TestForwarded: what a proxy says of its client counts only where it is trusted.
func TestForwarded(t *testing.T) {
	w := &web{s: &Server{opts: Options{Proxies: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("10.0.0.1/32")}}}}
	for _, tt := range []struct{ remote, forwarded, want string }{
		{"192.0.2.9:1", "198.51.100.1", "192.0.2.9"}, {"127.0.0.1:1", "198.51.100.1", "198.51.100.1"},
		{"127.0.0.1:1", "198.51.100.1, 198.51.100.2", "198.51.100.2"}, {"127.0.0.1:1", "198.51.100.1,10.0.0.1", "198.51.100.1"},
		{"127.0.0.1:1", "", "127.0.0.1"}, {"127.0.0.1:1", "unknown", "127.0.0.1"}, {"127.0.0.1:1", "x, 198.51.100.3", "198.51.100.3"},
		{"[::ffff:127.0.0.1]:1", "198.51.100.4", "198.51.100.4"},
	} {
		q, _ := http.NewRequest("GET", "/", nil)
		q.RemoteAddr = tt.remote
		q.Header.Set("X-Forwarded-For", tt.forwarded)
		if got := w.address(q).String(); got != tt.want {
			t.Errorf("%s for %q: %s, want %s", tt.remote, tt.forwarded, got, tt.want)
		}
	}
}

// TestIdleFlood: connections that send nothing keep no process out: programs, /healthz and
// those without a token are answered while more and more come.
func TestIdleFlood(t *testing.T) {
	b := newBench(t)
	b.listen(Options{})
	at := b.s.web.listener.Addr().String()
	var flood []net.Conn
	defer func() {
		for _, c := range flood {
			c.Close()
		}
	}()
	for i := range 1000 {
		c, err := net.Dial("tcp", at)
		if err != nil {
			t.Fatal(err)
		}
		flood = append(flood, c)
		if i%50 != 49 {
			continue
		}
		for path, want := range map[string]int{"/healthz": 200, "/metrics": 401, eventsAt: 200} {
			q := b.request(path)
			if want == 401 {
				q.Header.Del("Authorization")
			}
			q.Close = true
			r, err := http.DefaultClient.Do(q)
			if err != nil {
				t.Fatalf("after %d: %s: %v", i, path, err)
			}
			r.Body.Close()
			if r.StatusCode != want {
				t.Fatalf("after %d: %s: %d", i, path, r.StatusCode)
			}
		}
	}
	l := b.s.web.listener
	l.mu.Lock()
	n := len(l.open)
	l.mu.Unlock()
	if n > 2*l.most {
		t.Errorf("%d are open", n)
	}
}

// TestReserved: when every place is taken by requests under way, a known client and
// /healthz still have one, and others are told to come back.
func TestReserved(t *testing.T) {
	b := newBench(t)
	b.listen(Options{})
	l := b.s.web.listener
	l.mu.Lock()
	l.most, l.each = 1, 1
	l.mu.Unlock()
	at := l.Addr().String()
	c, err := net.Dial("tcp", at)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := fmt.Fprintf(c, "GET /events HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %s\r\n\r\n", testToken); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(c).ReadString('\n'); err != nil || !strings.Contains(line, "200") {
		t.Fatalf("%q %v", line, err)
	}
	for path, want := range map[string]int{"/healthz": 200, eventsAt: 200, "/metrics": 503} {
		q := b.request(path)
		if want == 503 {
			q.Header.Del("Authorization")
		}
		q.Close = true
		r, err := http.DefaultClient.Do(q)
		if err != nil {
			t.Fatal(err)
		}
		r.Body.Close()
		if r.StatusCode != want {
			t.Errorf("%s: %d, want %d", path, r.StatusCode, want)
		}
		b.until("closed", func() bool {
			l.mu.Lock()
			defer l.mu.Unlock()
			return len(l.open) == 1
		})
	}
}

// TestAudit: each change has a line: who, from where, what and how it ended.
func TestAudit(t *testing.T) {
	b := newBench(t)
	b.subscribe(engine.Subscription{Consumer: "w", Pull: true})
	var log logged
	b.listen(Options{Log: slog.New(slog.NewTextHandler(&log, nil))})
	for path, status := range map[string]int{"consumers/w/pause": 204, "consumers/none/pause": 404, "consumers/w/next": 409} {
		if got, _ := b.ask2(path, "{}"); got != status && path != "consumers/w/next" {
			t.Errorf("%s: %d", path, got)
		}
	}
	for _, want := range []string{
		`msg=change by=token address=127.0.0.1 verb="POST /threads/{name}/consumers/{consumer}/pause" thread=thread consumer=w result=done`,
		`thread=thread consumer=none result="no such subscription`,
	} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("%s is not in\n%s", want, log.String())
		}
	}
}
