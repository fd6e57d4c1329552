package serve

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"slices"
	"strings"
	"time"

	"thread/internal/dispatch"
	"thread/internal/lanes"
	"thread/lane"
)

// controlSocket, in run/, is where a server is asked and steered: one request, a
// line of JSON, and one answer, a line of JSON, for each connection. The socket
// has the mode 0600, in a directory of mode 0700.
const controlSocket = dispatch.ControlSocket

// maxRequestBytes bounds a request, and so a message.
const maxRequestBytes = 1 << 20

// Request is what a server is asked.
type Request struct {
	Op        string  `json:"op"` // "runs", "lanes", "send", "abort" or "wait"; or dispatch.OpTurns
	Consumer  string  `json:"consumer,omitempty"`
	Key       *string `json:"key,omitempty"`        // of a delivery; nil: the handler
	RunID     string  `json:"run_id,omitempty"`     // turns
	Message   string  `json:"message,omitempty"`    // send
	TimeoutMS int64   `json:"timeout_ms,omitempty"` // wait; 0: lane.DefaultEndTimeout
}

// Answer is what it says.
type Answer struct {
	Error string `json:"error,omitempty"` // "" for success; a lane.Refusal, or words
	Runs  []Run  `json:"runs,omitempty"`
	Lanes []Lane `json:"lanes,omitempty"`
	Ended bool   `json:"ended,omitempty"` // wait: false when the time was over first
}

// Run is a consumer that is on its way, or a delivery of one.
type Run struct {
	Consumer string    `json:"consumer_id"`
	Event    int64     `json:"event_id,omitempty"` // the first one of the delivery
	Key      *string   `json:"key,omitempty"`      // of the delivery, if it has one
	State    string    `json:"state"`              // "queued", "running", or "waiting" for a retry
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

// list returns the consumers that are on their way, by name, each followed by its
// deliveries in the order of their events; or only the deliveries with a key.
func (t *thread) list(key *string) []Run {
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
	for _, run := range runs {
		if run != nil {
			list = append(list, run.deliveries()...)
		}
	}
	if key != nil {
		of := sessionKey(*key)
		list = slices.DeleteFunc(list, func(r Run) bool { return r.Key == nil || *r.Key != of })
	}
	slices.SortFunc(list, func(a, b Run) int {
		return cmp.Or(strings.Compare(a.Consumer, b.Consumer), cmp.Compare(a.Event, b.Event))
	})
	return list
}

// sessionLane returns the session lane of a key.
func (t *thread) sessionLane(key string) Lane {
	key = sessionKey(key)
	shown := Lane{Name: lanes.Session(key), Limit: 1}
	for _, l := range t.s.queue.Lanes() {
		if l.Name == t.keyLane(key) {
			shown.Active, shown.Queued, shown.OldestMS = l.Active, l.Queued, l.Oldest.Milliseconds()
		}
	}
	return shown
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
		a.Runs = t.list(q.Key)
	case "lanes":
		if q.Key != nil {
			a.Lanes = []Lane{t.sessionLane(*q.Key)}
		} else {
			a.Lanes = t.s.lanes()
		}
	case "send":
		err = t.s.runs.Send(t.asked(q), q.Message)
	case "abort":
		if !t.s.runs.Abort(t.asked(q)) {
			err = lane.NoActiveRun
		}
	case "wait":
		a.Ended = t.s.runs.WaitEnd(ctx, t.asked(q), waitTime(q))
	default:
		err = errors.New("unknown op " + q.Op)
	}
	if err != nil {
		a.Error = err.Error()
	}
	return a
}

// asked is under what the registry has what q is about.
func (t *thread) asked(q Request) string {
	if q.Key != nil {
		return t.delivery(q.Consumer, sessionKey(*q.Key))
	}
	return t.session(q.Consumer)
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

// handleConn reads a request from conn and answers it. It calls keep for a connection
// that stays.
func (t *thread) handleConn(conn net.Conn, keep func()) {
	conn.SetReadDeadline(time.Now().Add(requestTime))
	var q Request
	var a Answer
	bound := &io.LimitedReader{R: conn, N: maxRequestBytes}
	d := json.NewDecoder(bound)
	if err := d.Decode(&q); err != nil {
		a.Error = "not a request: " + err.Error()
	} else if q.Op == dispatch.OpTurns {
		keep()
		t.serveTurns(conn, bound, d, q)
		return
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
func refuseConn(conn net.Conn, _ func()) { writeAnswer(conn, Answer{Error: "too many requests"}) }

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
