package serve

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"slices"
	"strings"
	"time"

	"thread/lane"
)

// controlSocket, in run/, is where a server is asked and steered: one request, a
// line of JSON, and one answer, a line of JSON, for each connection. The socket
// has the mode 0600, in a directory of mode 0700.
const controlSocket = ".control"

// maxRequestBytes bounds a request, and so a message.
const maxRequestBytes = 1 << 20

// Request is what a server is asked.
type Request struct {
	Op        string `json:"op"` // "runs", "lanes", "send", "abort" or "wait"
	Consumer  string `json:"consumer,omitempty"`
	Message   string `json:"message,omitempty"`    // send
	TimeoutMS int64  `json:"timeout_ms,omitempty"` // wait; 0: lane.DefaultEndTimeout
}

// Answer is what it says.
type Answer struct {
	Error string `json:"error,omitempty"` // "" for success; a lane.Refusal, or words
	Runs  []Run  `json:"runs,omitempty"`
	Lanes []Lane `json:"lanes,omitempty"`
	Ended bool   `json:"ended,omitempty"` // wait: false when the time was over first
}

// Run is a consumer that is on its way.
type Run struct {
	Consumer string    `json:"consumer_id"`
	State    string    `json:"state"` // "queued", "running", or "waiting" for a retry
	Lane     string    `json:"lane"`
	Since    time.Time `json:"since"`    // of the state
	RunID    string    `json:"run_id"`   // "" unless the handler has started
	PID      int       `json:"pid"`      // 0 then too
	Activity string    `json:"activity"` // "streaming", "compacting" or ""
	RetryAt  time.Time `json:"retry_at,omitzero"`
}

// Lane is a lane of the server, which it has in common for all threads.
type Lane struct {
	Name     string `json:"name"`
	Limit    int    `json:"limit"`
	Active   int    `json:"active"`
	Queued   int    `json:"queued"`
	OldestMS int64  `json:"oldest_ms"` // how long the first in the queue has waited
}

// list returns the consumers that are on their way, by name.
func (t *thread) list() []Run {
	t.mu.Lock()
	list := make([]Run, 0, len(t.consumers))
	runs := make([]*run, 0, len(t.consumers)) // nil for a consumer that has none
	for _, c := range t.consumers {
		r := Run{Consumer: c.name, State: c.state, Lane: lane.GlobalLane(c.lane), Since: c.since}
		if c.retry != nil {
			r.RetryAt = c.retry.At
		}
		list, runs = append(list, r), append(runs, c.run)
	}
	t.mu.Unlock()
	// Without the lock, as a handler that just starts is waited for.
	for i, run := range runs {
		if r := &list[i]; run != nil {
			r.RunID, r.PID = run.started()
			// Before, it is the word of a handler of a killed server.
			if w := run.word(); r.PID != 0 && (w == wordStreaming || w == wordCompacting) {
				r.Activity = w
			}
		}
	}
	slices.SortFunc(list, func(a, b Run) int { return strings.Compare(a.Consumer, b.Consumer) })
	return list
}

// lanes returns the global lanes: a session lane has at most one run, which is in
// the list of its thread.
func (s *Server) lanes() []Lane {
	var list []Lane
	for _, l := range s.queue.Lanes() {
		if !strings.HasPrefix(l.Name, "session:") {
			list = append(list, Lane{l.Name, l.Limit, l.Active, l.Queued, l.Oldest.Milliseconds()})
		}
	}
	return list
}

// answer carries out a request about t.
func (t *thread) answer(ctx context.Context, q Request) (a Answer) {
	var err error
	switch q.Op {
	case "runs":
		a.Runs = t.list()
	case "lanes":
		a.Lanes = t.s.lanes()
	case "send":
		err = t.s.runs.Send(t.session(q.Consumer), q.Message)
	case "abort":
		if !t.s.runs.Abort(t.session(q.Consumer)) {
			err = lane.NoActiveRun
		}
	case "wait":
		a.Ended = t.s.runs.WaitEnd(ctx, t.session(q.Consumer), waitTime(q))
	default:
		err = errors.New("unknown op " + q.Op)
	}
	if err != nil {
		a.Error = err.Error()
	}
	return a
}

// maxWait bounds a wait, so that adding to it overflows nothing.
const maxWait = 1000 * time.Hour

// waitTime is how long the answer to q may take.
func waitTime(q Request) time.Duration {
	switch {
	case q.Op == "wait" && q.TimeoutMS <= 0:
		return lane.DefaultEndTimeout
	case q.Op == "wait":
		return time.Duration(min(q.TimeoutMS, maxWait.Milliseconds())) * time.Millisecond
	}
	return deliverTime
}

// handleConn reads a request from conn and answers it.
func (t *thread) handleConn(conn net.Conn) {
	conn.SetReadDeadline(time.Now().Add(requestTime))
	var q Request
	var a Answer
	if err := json.NewDecoder(io.LimitReader(conn, maxRequestBytes)).Decode(&q); err != nil {
		a.Error = "not a request: " + err.Error()
	} else {
		conn.SetReadDeadline(time.Time{})
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		go func() { // who does not wait for the answer any more closes the connection
			_, _ = io.Copy(io.Discard, conn)
			cancel()
		}()
		a = t.answer(ctx, q)
	}
	writeAnswer(conn, a)
}

// refuseConn answers who comes while too many requests are under way.
func refuseConn(conn net.Conn) { writeAnswer(conn, Answer{Error: "too many requests"}) }

func writeAnswer(conn net.Conn, a Answer) {
	text, err := json.Marshal(a)
	if err != nil {
		return
	}
	conn.SetWriteDeadline(time.Now().Add(requestTime))
	_, _ = conn.Write(append(text, '\n')) // who asked may be gone
}

// maxRequests bounds how many requests about one thread are under way.
const maxRequests = 64

// requestTime bounds the reading of a request and the writing of an answer.
const requestTime = 5 * time.Second

// ErrNobody says that no process serves the thread.
var ErrNobody = errors.New("no process serves the thread")

// Ask asks the server of the thread directory dir, given by its absolute path. It
// returns ErrNobody when there is none. An Answer with an Error is not an error.
func Ask(dir string, q Request) (a Answer, err error) {
	conn, err := dial(dir)
	if err != nil {
		return a, err
	}
	defer conn.Close()
	// A server that is stopped answers nobody.
	conn.SetDeadline(time.Now().Add(waitTime(q) + 2*requestTime))
	text, err := json.Marshal(q)
	if err != nil {
		return a, err
	}
	if _, err := conn.Write(append(text, '\n')); err != nil {
		return a, err // a request that is too long is answered before its end
	}
	err = json.NewDecoder(conn).Decode(&a)
	if errors.Is(err, io.EOF) {
		err = ErrNobody // it ended
	}
	return a, err
}
