//go:build linux

package serve

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"thread/engine"
	"thread/event"
)

// eventSource is a client of /events.
type eventSource struct {
	*bench
	body io.ReadCloser
	in   *bufio.Reader
	last int64
}

func (b *bench) follow(query string, header ...string) *eventSource {
	b.Helper()
	return b.followAt("/events"+query, header...)
}

func (b *bench) followAt(query string, header ...string) *eventSource {
	b.Helper()
	r, err := http.DefaultClient.Do(b.request(query, header...))
	if err != nil {
		b.Fatal(err)
	}
	if r.StatusCode != 200 || r.Header.Get("Content-Type") != "text/event-stream; charset=utf-8" {
		text, _ := io.ReadAll(r.Body)
		b.Fatalf("%s: %d %s %s", query, r.StatusCode, r.Header.Get("Content-Type"), text)
	}
	b.Cleanup(func() { r.Body.Close() })
	return &eventSource{b, r.Body, bufio.NewReader(r.Body), 0}
}

// next returns the fields of the next block, a comment as the field "".
func (s *eventSource) next() map[string]string {
	s.Helper()
	got := map[string]string{}
	for {
		line, err := s.in.ReadString('\n')
		if err != nil {
			s.Fatalf("after %v: %v", got, err)
		}
		if line == "\n" {
			return got
		}
		name, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), ":")
		got[name] = strings.TrimPrefix(value, " ")
	}
}

// event returns the next event.
func (s *eventSource) event() event.Event {
	s.Helper()
	for {
		got := s.next()
		if _, comment := got[""]; comment {
			continue
		}
		var e event.Event
		if err := json.Unmarshal([]byte(got["data"]), &e); err != nil || got["id"] != strconv.FormatInt(e.ID, 10) {
			s.Fatalf("%v: %v", got, err)
		}
		s.last = e.ID
		return e
	}
}

// TestStreamNoGap: while events are pushed, clients that come, go and come back
// with the id they had last see every event that matches, once and in order.
func TestStreamNoGap(t *testing.T) {
	b := newBench(t)
	b.listen(Options{})
	const total = 400
	var all sync.WaitGroup
	defer all.Wait()
	all.Go(func() {
		for i := range total {
			if _, err := b.t.Push(t.Context(), event.Draft{Source: fmt.Sprint("s", i%3), Type: "m", Content: "line\nline \u2028 " + fmt.Sprint(i)}); err != nil {
				t.Error(err)
			}
		}
	})
	for i, where := range []string{"", "source = 's1'", "content LIKE '%7'"} {
		all.Go(func() {
			var want []int64 // of those that match, by a plain twin
			for id := int64(1); id <= total; id++ {
				n := id - 1
				if i == 0 || i == 1 && n%3 == 1 || i == 2 && n%10 == 7 {
					want = append(want, id)
				}
			}
			last := int64(0)
			for len(want) > 0 {
				header := []string{"Last-Event-ID", fmt.Sprint(last)}
				if last == 0 {
					header = nil
				}
				s := b.follow("?after=0&filter="+url.QueryEscape(where), header...)
				for range min(50, len(want)) {
					if e := s.event(); e.ID != want[0] || !strings.HasSuffix(e.Content, fmt.Sprint(" ", e.ID-1)) {
						t.Errorf("%q: got event %d, want %d", where, e.ID, want[0])
						return
					}
					want = want[1:]
				}
				last = s.last
				s.body.Close()
			}
		})
	}
}

// pushingWriter is a client during whose first read another event is pushed.
type pushingWriter struct {
	b       *bench
	written strings.Builder
}

func (c *pushingWriter) SetWriteDeadline(time.Time) error { return nil }
func (c *pushingWriter) Flush() error                     { return nil }

func (c *pushingWriter) Write(p []byte) (int, error) {
	if c.written.Len() == 0 {
		if _, err := c.b.t.Push(c.b.Context(), event.Draft{Source: "during", Type: "m"}); err != nil {
			c.b.Error(err)
		}
	}
	return c.written.Write(p)
}

// TestStreamPushDuringRead: what is pushed while a read is under way belongs to
// the next one.
func TestStreamPushDuringRead(t *testing.T) {
	b := newBench(t)
	b.serve(Options{})
	for range 2 {
		if _, err := b.t.Push(t.Context(), event.Draft{Source: "s", Type: "m", Content: strings.Repeat("x", flushBytes)}); err != nil {
			t.Fatal(err)
		}
	}
	to := &pushingWriter{b: b}
	f := &follower{t: b.s.all()[0], read: b.s.all()[0].t, changed: b.s.all()[0].changed, to: to}
	for n, ids := range []string{"id: 1\nid: 2\n", "id: 1\nid: 2\nid: 3\n"} {
		if err := f.advance(t.Context()); err != nil {
			t.Fatal(err)
		}
		got := ""
		for line := range strings.Lines(to.written.String()) {
			if strings.HasPrefix(line, "id:") {
				got += line
			}
		}
		if got != ids {
			t.Errorf("after read %d: %q, want %q", n+1, got, ids)
		}
	}
}

// TestStreamBegins: without a place, a stream begins with the next event.
func TestStreamBegins(t *testing.T) {
	b := newBench(t)
	b.listen(Options{heartbeat: 20 * time.Millisecond})
	b.push("old")
	s := b.follow("?thread=" + url.QueryEscape(b.t.Dir()))
	if got := s.next(); len(got) != 1 || got[""] != "" {
		t.Errorf("before the first event comes %v, want a heartbeat", got)
	}
	b.push("new")
	if e := s.event(); e.Source != "new" || e.ID != 2 {
		t.Errorf("%+v", e)
	}
}

// TestStreamRefused: a stream that cannot begin has a status and no events.
func TestStreamRefused(t *testing.T) {
	b := newBench(t)
	other, err := engine.Init(b.path("other"))
	if err != nil {
		t.Fatal(err)
	}
	b.listen(Options{Threads: []string{other.Dir()}})
	one := "/events?thread=" + url.QueryEscape(b.t.Dir())
	for path, want := range map[string]int{
		"/events": 400, "/events?thread=/nowhere": 404, one + "&after=x": 400, one + "&after=-1": 400,
		one + "&filter=" + url.QueryEscape("nonsense ="): 400,
	} {
		if status, typ, body := b.get(path); status != want || !strings.HasPrefix(typ, "text/plain") || body == "" {
			t.Errorf("%s: %d %s %q, want %d", path, status, typ, body, want)
		}
	}
	if status, _, _ := b.get(one, "Last-Event-ID", "1e3"); status != 400 {
		t.Errorf("Last-Event-ID: %d", status)
	}
}

// TestStreamFails: a filter that fails on an event ends the stream with words, in
// an event that no EventSource has already.
func TestStreamFails(t *testing.T) {
	b := newBench(t)
	b.listen(Options{})
	s := b.follow("?filter=" + url.QueryEscape("json_extract(content, '$.a') = 1"))
	b.push("s") // its content is not JSON
	if got := s.next(); got["event"] != "problem" || got["data"] == "" {
		t.Errorf("%v", got)
	}
	if _, err := s.in.ReadByte(); err != io.EOF {
		t.Errorf("after it: %v", err)
	}
}

// TestStreamSlow: a client that takes nothing is dropped, and others do not wait
// for it.
func TestStreamSlow(t *testing.T) {
	b := newBench(t)
	b.listen(Options{writeTime: time.Second})
	slow, err := net.Dial("tcp", b.s.web.listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer slow.Close()
	if err := slow.(*net.TCPConn).SetReadBuffer(4096); err != nil {
		t.Fatal(err)
	}
	if _, err := fmt.Fprint(slow, "GET /events?after=0 HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer "+testToken+"\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	quick := b.follow("?after=0")
	// More than the kernel keeps for one connection.
	content := strings.Repeat("x", 1<<20)
	const events = 16
	for i := range events {
		if _, err := b.t.Push(t.Context(), event.Draft{Source: "s", Type: "m", Content: content}); err != nil {
			t.Fatal(err)
		}
		if e := quick.event(); e.ID != int64(i+1) || len(e.Content) != len(content) {
			t.Fatalf("event %d", e.ID)
		}
	}
	// What the kernel kept can still be read, then comes the end.
	slow.SetReadDeadline(time.Now().Add(20 * time.Second))
	n, err := io.Copy(io.Discard, slow)
	if nerr, ok := err.(net.Error); ok && nerr.Timeout() || n >= events<<20 {
		t.Errorf("it was not dropped: %d bytes, %v", n, err)
	}
}

// fewDescriptors leave about 64 streams.
const fewDescriptors = 1200

// TestStreamGone: a stream ends when its client goes, and when its thread is not
// served any more.
func TestStreamGone(t *testing.T) {
	b := newBench(t)
	b.listen(Options{Sweep: 20 * time.Millisecond, maxDescriptors: fewDescriptors})
	s := b.follow("")
	for range 2 * b.s.descriptors.streams { // would not be let in
		b.until("admitted", func() bool {
			q, err := http.DefaultClient.Do(b.request("/events?after=0"))
			if err != nil {
				t.Fatal(err)
			}
			q.Body.Close()
			return q.StatusCode == 200
		})
	}
	b.s.drop(b.s.all()[0])
	if _, err := s.in.ReadByte(); err != io.EOF {
		t.Errorf("the stream: %v", err)
	}
}

// TestStreamCrowd: streams keep only other streams out.
func TestStreamCrowd(t *testing.T) {
	b := newBench(t)
	b.listen(Options{maxDescriptors: fewDescriptors})
	streams := b.s.descriptors.streams
	var idle []*eventSource
	for range streams {
		idle = append(idle, b.follow(""))
	}
	for path, want := range map[string]int{"/healthz": 200, "/metrics": 200, "/events": 503} {
		if status, _, body := b.get(path); status != want {
			t.Errorf("beside %d streams, %s: %d %s", streams, path, status, body)
		}
	}
	idle[0].body.Close()
	b.until("admitted", func() bool {
		r, err := http.DefaultClient.Do(b.request("/events"))
		if err != nil {
			t.Fatal(err)
		}
		r.Body.Close()
		return r.StatusCode == 200
	})
}

// TestStreamsOfOne: one of several clients does not take the places of the others, and is
// told so.
func TestStreamsOfOne(t *testing.T) {
	b := newBench(t)
	b.listen(Options{maxDescriptors: fewDescriptors, Clients: []Client{{Name: "many", Rights: "read", Token: "token-many"}, {Name: "few", Rights: "read", Token: "token-few"}}})
	ask := func(token string) *http.Response {
		t.Helper()
		q := b.request("/events")
		q.Header.Set("Authorization", "Bearer "+token)
		r, err := http.DefaultClient.Do(q)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { r.Body.Close() })
		return r
	}
	var idle []*http.Response
	for {
		r := ask("token-many")
		if r.StatusCode != 200 {
			text, _ := io.ReadAll(r.Body)
			if r.StatusCode != 429 || !strings.Contains(string(text), "client many has too many streams") || r.Header.Get("Retry-After") == "" {
				t.Errorf("%d %s", r.StatusCode, text)
			}
			break
		}
		idle = append(idle, r)
	}
	if len(idle) != b.s.descriptors.streams/2 {
		t.Errorf("one client has %d streams", len(idle))
	}
	if r := ask("token-few"); r.StatusCode != 200 {
		t.Errorf("the other client: %d", r.StatusCode)
	}
	idle[0].Body.Close()
	b.until("admitted", func() bool { return ask("token-many").StatusCode == 200 })
}

// TestStreamWaitsForAPlace: a stream that waits to read leaves with its client, and one whose
// place comes reads.
func TestStreamWaitsForAPlace(t *testing.T) {
	f := &follower{t: &thread{reads: make(chan struct{}, 1)}}
	other := &follower{t: f.t}
	if !other.hold(t.Context()) {
		t.Fatal("no place where none is taken")
	}
	gone, leave := context.WithCancel(t.Context())
	held := make(chan bool)
	go func() { held <- f.hold(gone) }()
	leave()
	if <-held {
		t.Error("a second place of one")
	}
	go func() { held <- f.hold(t.Context()) }()
	other.release()
	if !<-held {
		t.Error("no place after one was given back")
	}
	if directory := (&follower{t: &thread{}}); !directory.hold(gone) {
		t.Error("a stream of a directory waits for a place")
	}
}
