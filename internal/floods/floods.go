// Package floods has clients that flood and attack a server over HTTP from outside, for the tests of
// thread serve and of thread-net serve. It has no other purpose.
package floods

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// Server is the server under test. Its only thread is empty, and Push stores an event.
type Server struct {
	Address string // host:port
	Token   string // with the right admin
	PID     int
	Path    string // of the events of its thread, as /threads/inbox/events
	Push    func(content string)
	// Idle is for how long a client reads nothing after the flood, more than the server waits for it.
	Idle time.Duration
}

// Counts are the sizes of the floods, and the bound for the answers of other requests.
type Counts struct {
	Idle, Guesses, Streams int
	Within                 time.Duration
}

// Sizes returns the full sizes with THREAD_FLOODS=full, else a sample: the machine may be
// busy with other tests.
func Sizes() Counts {
	if os.Getenv("THREAD_FLOODS") == "full" {
		return Counts{10_000, 100_000, 1_000, time.Second}
	}
	return Counts{500, 2_000, 200, 5 * time.Second}
}

// Run floods the server, and has it answer others meanwhile.
func Run(t *testing.T, s *Server, n Counts) {
	s.Push("first")
	t.Run("idle", func(t *testing.T) { s.idle(t, n) })
	t.Run("guesses", func(t *testing.T) { s.guesses(t, n) })
	t.Run("streams", func(t *testing.T) { s.streams(t, n) })
}

// others asks as a client with a token and as a probe until the flood ends, and checks
// how long the answers take.
func (s *Server) others(t *testing.T, n Counts, flood func()) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	var probes sync.WaitGroup
	for _, path := range []string{"/healthz", s.Path + "?limit=1"} {
		probes.Go(func() {
			var longest time.Duration
			asked := 0
			for ; ctx.Err() == nil || asked == 0; asked++ {
				begin := time.Now()
				q, err := http.NewRequest("GET", "http://"+s.Address+path, nil)
				if err != nil {
					t.Error(err)
					return
				}
				q.Header.Set("Authorization", "Bearer "+s.Token)
				q.Close = true
				r, err := http.DefaultClient.Do(q)
				if err != nil {
					t.Errorf("%s: %v", path, err)
					return
				}
				_, _ = io.Copy(io.Discard, r.Body) // the status counts
				r.Body.Close()
				longest = max(longest, time.Since(begin))
				if r.StatusCode != http.StatusOK {
					t.Errorf("%s: %d", path, r.StatusCode)
					return
				}
			}
			t.Logf("%s: %d answers, the longest after %v; %s", path, asked, longest.Round(time.Millisecond), s.memory())
			if longest > n.Within {
				t.Errorf("%s: an answer after %v", path, longest)
			}
		})
	}
	flood()
	stop()
	probes.Wait()
}

// memory returns how much the server has in memory.
func (s *Server) memory() string {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", s.PID)) // only logged
	for line := range strings.Lines(string(text)) {
		if rest, found := strings.CutPrefix(line, "VmRSS:"); found {
			return "server in memory: " + strings.TrimSpace(rest)
		}
	}
	return ""
}

// idle opens connections that send nothing.
func (s *Server) idle(t *testing.T, n Counts) {
	open := make([]net.Conn, 0, n.Idle)
	defer func() {
		for _, c := range open {
			_ = c.Close()
		}
	}()
	s.others(t, n, func() {
		for range n.Idle {
			c, err := net.Dial("tcp", s.Address)
			if err != nil {
				t.Error(err)
				return
			}
			open = append(open, c)
		}
	})
}

// guesses tries tokens, on connections that are kept.
func (s *Server) guesses(t *testing.T, n Counts) {
	var mu sync.Mutex
	seen := map[string]int{}
	s.others(t, n, func() {
		const workers = 8
		var all sync.WaitGroup
		for w := range workers {
			all.Go(func() {
				for i := w; i < n.Guesses; i += workers {
					status := s.guess(i)
					mu.Lock()
					seen[status]++
					mu.Unlock()
				}
			})
		}
		all.Wait()
	})
	t.Logf("%v", seen)
	if seen["200"] > 0 || seen["401"] > 200 || seen["429"] < n.Guesses/2 {
		t.Errorf("%v", seen)
	}
}

func (s *Server) guess(i int) (status string) {
	q, err := http.NewRequest("GET", "http://"+s.Address+"/metrics", nil)
	if err != nil {
		return err.Error()
	}
	q.Header.Set("Authorization", fmt.Sprintf("Bearer guess-%d", i))
	r, err := http.DefaultClient.Do(q)
	if err != nil {
		return "cut off"
	}
	_, _ = io.Copy(io.Discard, r.Body) // the status counts
	r.Body.Close()
	return strconv.Itoa(r.StatusCode)
}

// stream is a client of server-sent events.
type stream struct {
	conn net.Conn
	in   *bufio.Reader
	last int64
}

// follow opens a stream after the event last.
func (s *Server) follow(last int64) (*stream, error) {
	c, err := net.Dial("tcp", s.Address)
	if err != nil {
		return nil, err
	}
	_, err = fmt.Fprintf(c, "GET %s HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\nLast-Event-ID: %d\r\nAuthorization: Bearer %s\r\n\r\n", s.Path, last, s.Token)
	f := &stream{c, bufio.NewReader(c), last}
	if err == nil {
		var line string
		if line, err = f.in.ReadString('\n'); err == nil && !strings.Contains(line, " 200 ") {
			err = fmt.Errorf("the stream: %q", line)
		}
	}
	if err != nil {
		_ = c.Close()
		return nil, err
	}
	return f, nil
}

// until reads events, which come in order and without a gap, up to the id.
func (f *stream) until(id int64) error {
	for f.last < id {
		line, err := f.in.ReadString('\n')
		if err != nil {
			return err
		}
		text, found := strings.CutPrefix(strings.TrimSpace(line), "id: ")
		if !found {
			continue
		}
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil || n != f.last+1 {
			return fmt.Errorf("event %q after %d", text, f.last)
		}
		f.last = n
	}
	return nil
}

// The events of the flood of streams: many large ones are more than the kernel keeps for
// a client that reads nothing.
const (
	large      = 1 << 20
	largeOnes  = 24
	streamTime = 2 * time.Minute
)

// streams opens streams and pushes. One client reads nothing, is cut off, and continues
// after the last event that it has.
func (s *Server) streams(t *testing.T, n Counts) {
	first := int64(1) // of Run
	all := make([]*stream, 0, n.Streams)
	defer func() {
		for _, f := range all {
			_ = f.conn.Close()
		}
	}()
	for range n.Streams {
		f, err := s.follow(first)
		if err != nil {
			t.Fatalf("stream %d: %v", len(all), err)
		}
		all = append(all, f)
		_ = f.conn.SetDeadline(time.Now().Add(streamTime))
	}
	t.Logf("%d streams; %s", n.Streams, s.memory())
	slow, quick := all[0], all[1:]
	s.others(t, n, func() {
		s.Push("small")
		receive(t, quick, first+1)
		// Of the others only a few read on: the slow one is what counts.
		for _, f := range quick[4:] {
			_ = f.conn.Close()
		}
		for i := range int64(largeOnes) {
			s.Push(strings.Repeat("x", large))
			receive(t, quick[:4], first+2+i)
		}
	})
	time.Sleep(s.Idle)
	// It reads what the kernel has kept, then comes the end.
	const last = largeOnes + 2
	if err := slow.until(last); err == nil {
		t.Fatal("the slow client was not cut off")
	}
	t.Logf("the slow client was cut off after event %d of %d", slow.last, last)
	again, err := s.follow(slow.last)
	if err != nil {
		t.Fatal(err)
	}
	defer again.conn.Close()
	if err := again.until(last); err != nil {
		t.Errorf("after it came back: %v", err)
	}
}

// receive reads all streams up to the id.
func receive(t *testing.T, list []*stream, id int64) {
	var all sync.WaitGroup
	for _, f := range list {
		all.Go(func() {
			if err := f.until(id); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
}
