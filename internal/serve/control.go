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

	"thread/engine"
	"thread/internal/dispatch"
	"thread/internal/lanes"
	"thread/internal/steer"
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
	Op        string  `json:"op"` // "runs", "lanes", "clear", "send", "abort" or "wait"; or dispatch.OpTurns
	Consumer  string  `json:"consumer,omitempty"`
	All       string  `json:"all,omitempty"`        // abort, wait: AllRuns or AllCompacting in place of a consumer
	Lane      string  `json:"lane,omitempty"`       // clear
	Key       *string `json:"key,omitempty"`        // of a delivery; nil: the handler
	RunID     string  `json:"run_id,omitempty"`     // turns
	Message   string  `json:"message,omitempty"`    // send
	TimeoutMS int64   `json:"timeout_ms,omitempty"` // wait; 0: lane.DefaultEndTimeout
}

// The values of Request.All: what runs of the thread, or only what compacts.
const (
	AllRuns       = "runs"
	AllCompacting = "compacting"
)

// Answer is what it says.
type Answer struct {
	Error string `json:"error,omitempty"` // "" for success; a lane.Refusal, or words
	Count int    `json:"count,omitempty"` // clear, and abort with All: of how many
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

// The words of the state file, which the handler writes. Anything else says neither.
const (
	wordStreaming  = "streaming"
	wordCompacting = "compacting"
)

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
	slices.SortFunc(list, Run.compare)
	return list
}

// deliveries returns what the run has out, or waits for its turn.
func (r *run) deliveries() []Run {
	r.turnsMu.Lock()
	s := r.turns
	r.turnsMu.Unlock()
	if s == nil {
		return nil
	}
	return s.list()
}

// compare puts a handler before its deliveries.
func (a Run) compare(b Run) int {
	return cmp.Or(strings.Compare(a.Consumer, b.Consumer), cmp.Compare(a.Event, b.Event), a.Since.Compare(b.Since))
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
		err = t.s.runs.Send(t.asked(q)[0], q.Message)
	case "clear":
		a.Count = t.s.clear(lanes.Global(q.Lane))
	case "abort":
		for _, session := range t.asked(q) {
			if t.s.runs.Abort(session) {
				a.Count++
			}
		}
		if a.Count == 0 && q.All == "" {
			err = lane.NoActiveRun
		}
	case "wait":
		a.Ended = t.s.runs.WaitEnds(ctx, t.asked(q), waitTime(q))
	default:
		err = errors.New("unknown op " + q.Op)
	}
	if err != nil {
		a.Error = err.Error()
	}
	return a
}

// asked returns under what the registry has what q is about: one session, or with All
// any number. A handler stands for its deliveries, unless only these compact.
func (t *thread) asked(q Request) (sessions []string) {
	if q.All == "" || q.Op == "send" {
		return []string{t.registered(q.Consumer, q.Key)}
	}
	for _, r := range t.list(nil) {
		if q.All == AllRuns && r.Event == 0 || r.Activity == wordCompacting && (r.Event == 0 || r.Key != nil) {
			sessions = append(sessions, t.registered(r.Consumer, r.Key))
		}
	}
	return sessions
}

// registered returns under what the registry has a consumer's handler, or its delivery
// with a key.
func (t *thread) registered(consumer string, key *string) string {
	if key != nil {
		return t.delivery(consumer, sessionKey(*key))
	}
	return t.session(consumer)
}

// sessionKey is the key of a session lane as users see it: without the prefix of the
// lane's name, which they may give or not.
func sessionKey(key string) string {
	return dispatch.ShortKey(lanes.Session(key))[len("session:"):]
}

// maxWait bounds a wait, so that adding to it overflows nothing.
const maxWait = 1000 * time.Hour

// deliverTime is how long a message waits for room in the pipe, which holds
// 64 KiB of what the handler has not read.
const deliverTime = time.Second

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

// ErrNobody says that no process serves the thread, ErrSilent that none of those on other hosts
// has answered.
var (
	ErrNobody = steer.ErrNobody
	ErrSilent = steer.ErrSilent
)

// answerText is answer for a request from another host.
func (t *thread) answerText(ctx context.Context, request []byte) []byte {
	var q Request
	var a Answer
	if err := json.Unmarshal(request, &q); err != nil {
		a.Error = "not a request: " + err.Error()
	} else {
		a = t.answer(ctx, q)
	}
	text, _ := json.Marshal(a) // strings and numbers
	return text
}

// Ask asks the server of a thread, or the servers on all hosts. It returns ErrNobody when
// there is none. An Answer with an Error is not an error.
func Ask(ctx context.Context, t *engine.Thread, q Request) (a Answer, err error) {
	if t.URL() == "" {
		return askDirectory(t.Dir(), q)
	}
	text, err := json.Marshal(q)
	if err != nil {
		return a, err
	}
	first := true
	err = steer.Ask(ctx, t, text, waitTime(q)+2*requestTime, func(answer []byte) (enough bool) {
		var next Answer
		if err := json.Unmarshal(answer, &next); err != nil {
			next.Error = err.Error()
		}
		if first {
			a, first = next, false
		} else {
			a = a.with(&next)
		}
		return a.Error == "" && (q.Op == "send" || q.Op == "abort" && q.All == "")
	})
	return a, err
}

// with returns the answer of two hosts. A host that could do it counts more than one that could
// not, and a handler that runs more than none. Lists are in the order in which one host has them.
func (a Answer) with(b *Answer) Answer {
	if a.Error != "" && (b.Error == "" || b.Error != string(lane.NoActiveRun)) {
		a.Error = b.Error
	}
	a.Count, a.Ended, a.Runs = a.Count+b.Count, a.Ended && b.Ended, append(a.Runs, b.Runs...)
	for _, l := range b.Lanes {
		i := slices.IndexFunc(a.Lanes, func(o Lane) bool { return o.Name == l.Name })
		if i < 0 {
			a.Lanes = append(a.Lanes, l)
			continue
		}
		o := &a.Lanes[i]
		o.Limit, o.Active, o.Queued, o.OldestMS = o.Limit+l.Limit, o.Active+l.Active, o.Queued+l.Queued, max(o.OldestMS, l.OldestMS)
	}
	slices.SortFunc(a.Runs, Run.compare)
	slices.SortFunc(a.Lanes, func(a, b Lane) int { return strings.Compare(a.Name, b.Name) })
	return a
}

func askDirectory(dir string, q Request) (a Answer, err error) {
	conn, err := dial(dir)
	if err != nil {
		return a, err
	}
	defer conn.Close()
	// A server that is stopped answers no process.
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
