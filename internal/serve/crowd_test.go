//go:build linux

package serve

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	"thread/event"
)

// pipes is a listener whose connections no process reads from.
type pipes struct{ net.Listener }

func (pipes) Accept() (net.Conn, error) {
	ours, _ := net.Pipe()
	return ours, nil
}

// TestNeverRead: when all places are taken, one that has waited for its client for too long
// makes room, the oldest first; one that has not stays.
func TestNeverRead(t *testing.T) {
	for _, patience := range []time.Duration{0, time.Hour} {
		l := newCountedListener(pipes{}, 3, patience, nil)
		written := make(chan int)
		accept := func() *countedConn {
			t.Helper()
			conn, err := l.Accept()
			if err != nil {
				t.Fatal(err)
			}
			return conn.(*countedConn)
		}
		var conns []*countedConn
		for i := range 3 {
			c := accept()
			l.state(c, http.StateActive)
			conns = append(conns, c)
			go func() {
				_, _ = c.Write([]byte("x"))
				written <- i
			}()
			for n := 0; n <= i; { // until it is under way
				l.mu.Lock()
				n = 0
				for c := range l.open {
					if !c.writes.IsZero() {
						n++
					}
				}
				l.mu.Unlock()
			}
		}
		for i := range 3 {
			more := accept()
			l.state(more, http.StateActive)
			if more.over != (patience > 0) {
				t.Errorf("patience %v: one more is over: %v", patience, more.over)
			}
			if patience > 0 {
				_ = more.Close()
				continue
			}
			if got := <-written; got != i {
				t.Errorf("%d was closed, not %d", got, i)
			}
		}
		if patience > 0 {
			for _, c := range conns {
				_ = c.Close()
				<-written
			}
		}
		if n := len(l.open); patience == 0 && n != 3 || patience > 0 && n != 0 {
			t.Errorf("patience %v: %d are open", patience, n)
		}
	}
}

// TestNeverReadCost: clients that ask for much and never read it cost the others nothing:
// a stream gets each event, and a program is answered. THREAD_SOAK makes them 500.
func TestNeverReadCost(t *testing.T) {
	n := 20
	if os.Getenv("THREAD_SOAK") != "" {
		n = 500
	}
	b := newBench(t)
	for range 4 {
		if _, err := b.t.Push(t.Context(), event.Draft{Source: "s", Type: "large", Content: strings.Repeat("x", 4<<20)}); err != nil {
			t.Fatal(err)
		}
	}
	b.listen(Options{})
	stream := b.follow("?filter=" + url.QueryEscape("type = 'message'"))
	for i := range n {
		path := []string{"/events?after=0", "/threads/thread/events?after=0", "/threads/thread/events?after=0&limit=1000"}[i%3]
		conn, err := net.Dial("tcp", b.s.web.listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		if _, err := fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %s\r\nAccept: application/json\r\n\r\n", path, testToken); err != nil {
			continue // it was told to come back
		}
	}
	worst := time.Duration(0)
	for i := range 20 {
		begin := time.Now()
		id := b.push(fmt.Sprint(i))
		if e := stream.event(); e.ID != id {
			t.Fatalf("event %d, want %d", e.ID, id)
		}
		worst = max(worst, time.Since(begin))
		for _, path := range []string{"/healthz", "/threads/thread/events?after=4&limit=1"} {
			b.until("answered", func() bool {
				r, err := http.DefaultClient.Do(b.request(path, "Accept", "application/json"))
				if err != nil {
					return false // its connection made room: it is new
				}
				defer r.Body.Close()
				_, err = io.Copy(io.Discard, r.Body)
				return err == nil && r.StatusCode == 200
			})
		}
	}
	t.Logf("beside %d clients that never read, an event was with the stream after %v at most", n, worst)
	if worst > 5*time.Second { // of which there is no trace; the host may be at work
		t.Errorf("an event took %v", worst)
	}
}
