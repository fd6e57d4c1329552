//go:build linux

package serve

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"thread/engine"
	"thread/internal/api"
)

// TestIdempotency: a request that is sent again with its key gets the first answer and
// changes nothing; another body, client, path or key is another request.
func TestIdempotency(t *testing.T) {
	b := newBench(t)
	const other = "another-token-of-the-tests-0123"
	b.listen(Options{Clients: append([]Client{{Name: "other", Rights: "admin", Token: other}}, testClients...)})
	b.subscribe(engine.Subscription{Consumer: "w", Pull: true})
	const at = "/threads/thread/"
	post := func(path, body, key string, header ...string) (int, string) {
		t.Helper()
		status, a := b.exchange("POST", at+path, oneType, body, append([]string{"Idempotency-Key", key}, header...)...)
		return status, fmt.Sprint(a)
	}
	planned := func() int64 {
		t.Helper()
		info, err := b.t.Info(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return info.Scheduled
	}
	const later = `{"delay":"1h","event":{"source":"s","type":"t","content":"x"}}`
	if status, a := post("schedules", `{"delay":"1h"}`, "k"); status != 400 {
		t.Errorf("refused: %d %s", status, a)
	}
	status, first := post("schedules", later, "k") // a refusal does not use up the key
	if status != 200 || planned() != 1 {
		t.Fatalf("first: %d %s, %d planned", status, first, planned())
	}
	if status, a := post("schedules", later, "k"); status != 200 || a != first || planned() != 1 {
		t.Errorf("again: %d %s, %d planned", status, a, planned())
	}
	if status, a := post("schedules", strings.Replace(later, "1h", "2h", 1), "k"); status != 422 || planned() != 1 {
		t.Errorf("another body: %d %s, %d planned", status, a, planned())
	}
	for i, differs := range [][]string{{"k2"}, {"k", "Authorization", "Bearer " + other}} {
		if status, a := post("schedules", later, differs[0], differs[1:]...); status != 200 || a == first || planned() != int64(i+2) {
			t.Errorf("%v: %d %s, %d planned", differs, status, a, planned())
		}
	}
	if status, a := post("sessions", `{"id":"S"}`, "k"); status != 200 {
		t.Errorf("another path: %d %s", status, a)
	}
	if status, a := post("sessions", `{"id":"S"}`, "k"); status != 200 || !strings.Contains(a, "id:S") {
		t.Errorf("another path, again: %d %s", status, a)
	}

	// A request that is in progress is not started a second time.
	answers := make(chan string)
	for range 2 {
		go func() {
			status, a := post("consumers/w/next", `{"timeout":"2m"}`, "n")
			answers <- fmt.Sprint(status, " ", a)
		}()
	}
	if a := <-answers; !strings.HasPrefix(a, "409 ") {
		t.Errorf("in progress: %s", a)
	}
	b.push("one")
	got := <-answers
	if status, a := post("consumers/w/next", `{"timeout":"2m"}`, "n"); fmt.Sprint(status, " ", a) != got || !strings.HasPrefix(got, "200 map[attempt:1 delivery:1") {
		t.Errorf("%d %s, and before %s", status, a, got)
	}
	_, delivery, _ := strings.Cut(got, "delivery:")
	delivery, _, _ = strings.Cut(delivery, " ")
	if status, a := post("consumers/w/ack", `{"delivery":"`+delivery+`"}`, "a"); status != 200 {
		t.Errorf("ack: %d %s", status, a)
	}
	if status, a := post("consumers/w/ack", `{"delivery":"`+delivery+`"}`, "a"); status != 200 || !strings.Contains(a, "settled:true") {
		t.Errorf("ack again: %d %s", status, a)
	}
}

// TestIdempotencyEverywhere: each POST is described with the key, and takes one.
func TestIdempotencyEverywhere(t *testing.T) {
	b := newBench(t)
	b.listen(Options{})
	long := strings.Repeat("k", 256)
	for _, route := range api.Routes() {
		method, pattern, _ := strings.Cut(route, " ")
		if method != "POST" {
			continue
		}
		path := strings.NewReplacer("{name}", "thread", "{consumer}", "nobody", "{session}", "s", "{run}", "r").Replace(pattern)
		described := false
		list, _ := operation(method, path)["parameters"].([]any)
		for _, p := range list {
			described = described || at(p)["name"] == "Idempotency-Key"
		}
		if !described {
			t.Errorf("%s: the key is not described", route)
		}
		if path == eventsAt {
			continue // a dedupe key: TestHistoryAPI
		}
		if status, a := b.exchange(method, path, oneType, `{}`, "Idempotency-Key", long); status != 400 || !strings.Contains(fmt.Sprint(a["detail"]), "Idempotency-Key") {
			t.Errorf("%s takes no key: %d %v", route, status, a)
		}
	}
}

// TestIdempotencyBounds: with a key, too, no more of a body is read than the endpoint takes.
func TestIdempotencyBounds(t *testing.T) {
	b := newBench(t)
	b.listen(Options{bodyTime: time.Second})
	for path, want := range map[string]string{"schedules": "413 ", "dead/drop": "413 ", "outbox/retry": "413 ", "sessions": "408 "} {
		for _, key := range []string{"", "Idempotency-Key: k\r\n"} {
			conn := b.dial()
			_, err := fmt.Fprintf(conn, "POST /threads/thread/%s HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %s\r\nContent-Type: %s\r\n%sContent-Length: %d\r\n\r\n%s",
				path, testToken, oneType, key, 16<<20, strings.Repeat(" ", 64<<10+1)) // more never comes
			if err != nil {
				t.Fatal(err)
			}
			if answer, _ := io.ReadAll(conn); !strings.HasPrefix(string(answer), "HTTP/1.1 "+want) {
				t.Errorf("%s with %q: %.200q, want %s", path, key, answer, want)
			}
		}
	}
}

// memory is a journal that outlives a server.
type memory struct{ text []byte }

func (m *memory) Load() []byte               { return m.text }
func (m *memory) Save(text []byte)           { m.text = bytes.Clone(text) }
func (m *memory) Append(line []byte, _ bool) { m.text = append(m.text, line...) }

// TestIdempotencyRestart: a request that is repeated at the next server changes nothing.
func TestIdempotencyRestart(t *testing.T) {
	b := newBench(t)
	o := Options{Answers: new(memory), Listen: "127.0.0.1:0", Clients: testClients}
	var first string
	for i := range 2 {
		s, stop, left := b.untilStopped(o)
		b.s = s
		status, a := b.exchange("POST", "/threads/thread/schedules", oneType, `{"delay":"1h","event":{"source":"s","type":"t","content":"x"}}`, "Idempotency-Key", "k")
		if i == 0 {
			first = fmt.Sprint(a)
		}
		if status != 200 || fmt.Sprint(a) != first {
			t.Errorf("server %d: %d %v", i, status, a)
		}
		stop()
		<-left
		s.standby.Stop()
	}
	if info, err := b.t.Info(t.Context()); err != nil || info.Scheduled != 1 {
		t.Errorf("%d are planned, %v", info.Scheduled, err)
	}
}
