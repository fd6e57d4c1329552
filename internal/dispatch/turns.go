package dispatch

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"thread/engine"
	"thread/internal/lanes"
	"thread/lock"
)

// OpTurns is the op of that first request, which has the consumer and the run id.
const OpTurns = "turns"

// TurnRequest asks for the turn of a delivery, or gives it back.
type TurnRequest struct {
	Ask   int64   `json:"ask,omitempty"`   // a number of this connection, from 1
	Key   *string `json:"key,omitempty"`   // with Ask; nil: in no session lane
	Event int64   `json:"event,omitempty"` // with Ask: the first one of the delivery
	Slot  int     `json:"slot,omitempty"`  // with Ask: of DeliveryDir
	End   int64   `json:"end,omitempty"`   // the number that was asked with: over, or not wanted any more
	Error string  `json:"error,omitempty"` // with End: what went wrong
}

// TurnAnswer says that a delivery may begin, or is to end.
type TurnAnswer struct {
	Turn  int64  `json:"turn,omitempty"`
	Abort int64  `json:"abort,omitempty"`
	Error string `json:"error,omitempty"` // the server takes nothing more
}

// Limits of keys in a TurnRequest: a longer one is cut, see ShortKey.
const maxKeyBytes = 1 << 10

// ShortKey returns the key of a session lane, or for a long one its beginning and a hash of it all, which
// stands for it in the names of lanes.
func ShortKey(key string) string {
	if len(key) <= maxKeyBytes {
		return key
	}
	name := lock.Name(key)
	return strings.ToValidUTF8(key[:maxKeyBytes-64], "") + name[len(name)-41:]
}

// DeliveryDir is the directory, in the thread directory dir, of the two files by which
// a delivery in the slot can be steered: state and messages.
func DeliveryDir(dir, consumer string, slot int) string {
	return filepath.Join(RunDir(dir, consumer), strconv.Itoa(slot))
}

// RunDir is the directory, in the thread directory dir, of the files of a consumer's run that a
// server started.
func RunDir(dir, consumer string) string {
	return filepath.Join(dir, "run", RunsDir, lock.Name(consumer))
}

// RunsDir holds, in run/, a directory for each consumer that a server runs.
const RunsDir = ".runs"

// The handler's, and the delivery's, side of steering, in its environment. Both are
// paths.
const (
	EnvState    = "THREAD_STATE"    // a file: it says what the handler does
	EnvMessages = "THREAD_MESSAGES" // a named pipe: messages, each a JSON string on a line
)

// ErrEnding says that the server was told to end, and gives no turns any more.
var ErrEnding = errors.New("the server ends")

// rejoinPause is the time between attempts to find a server again.
const rejoinPause = time.Second

// Turns asks the server that runs this handler for the turns of its deliveries. While
// the server is away, as after a kill, there is no process to ask, and every delivery has
// its turn: its limits hold for what one server has started.
type Turns struct {
	place    string // of run/
	control  string // the directory of the server's socket
	consumer string
	files    map[int]*deliveryFiles

	mu     sync.Mutex
	conn   *turnConn // nil: there is none
	tried  time.Time
	number int64
}

type turnConn struct {
	io.ReadWriteCloser
	out   sync.Mutex // held while a line is written
	asked map[int64]*Turn
	ended bool // guarded by Turns.mu, as asked is
}

// Turn is a delivery that has its turn, or waits for it.
type Turn struct {
	t      *Turns
	conn   *turnConn // nil: none was asked
	number int64
	slot   int
	come   chan error
	abort  chan struct{}
}

// TurnsOf is [ConsumerLock.Turns] in a handler of a thread on a server. Several processes of
// this host may serve the thread, so each run has a socket in its directory.
func TurnsOf(t *engine.Thread, consumer string) *Turns {
	return newTurns(t.Dir(), RunDir(t.Dir(), consumer), consumer)
}

func newTurns(place, control, consumer string) *Turns {
	q := &Turns{place: place, control: control, consumer: consumer, files: map[int]*deliveryFiles{}}
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.join() == nil {
		return nil
	}
	return q
}

// join returns the connection to the server, a new one if need be, or nil. q.mu is
// held.
func (q *Turns) join() *turnConn {
	if q.conn != nil || !q.tried.IsZero() && time.Since(q.tried) < rejoinPause {
		return q.conn
	}
	q.tried = time.Now()
	socket, err := dialControl(q.control)
	if err != nil {
		return nil
	}
	c := &turnConn{ReadWriteCloser: socket, asked: map[int64]*Turn{}}
	d := json.NewDecoder(c)
	var first TurnAnswer
	err = c.write(struct {
		Op       string `json:"op"`
		Consumer string `json:"consumer"`
		RunID    string `json:"run_id"`
	}{OpTurns, q.consumer, os.Getenv(envRunID)})
	if err == nil {
		err = d.Decode(&first)
	}
	if err != nil || first.Error != "" {
		c.Close()
		return nil
	}
	q.conn = c
	go q.receive(c, d)
	return c
}

func (c *turnConn) write(line any) error {
	text, err := json.Marshal(line)
	if err != nil {
		return err
	}
	c.out.Lock()
	defer c.out.Unlock()
	_, err = c.Write(append(text, '\n'))
	return err
}

// receive passes on what the server says. When it has gone, all that waits has its
// turn.
func (q *Turns) receive(c *turnConn, d *json.Decoder) {
	for {
		var a TurnAnswer
		err := d.Decode(&a)
		q.mu.Lock()
		switch {
		case err != nil:
			for _, t := range c.asked {
				t.has(nil)
			}
			c.asked = nil
			if q.conn == c {
				q.conn = nil
			}
		case a.Error != "":
			c.ended = true
			for _, t := range c.asked {
				t.has(ErrEnding)
			}
		case a.Turn != 0 && c.asked[a.Turn] != nil:
			c.asked[a.Turn].has(nil)
		case a.Abort != 0 && c.asked[a.Abort] != nil:
			c.asked[a.Abort].end()
		}
		q.mu.Unlock()
		if err != nil {
			c.Close()
			return
		}
	}
}

// has ends the wait, for the first time it is called. q.mu is held.
func (t *Turn) has(err error) {
	select {
	case t.come <- err:
	default:
	}
}

// end aborts the delivery. q.mu is held.
func (t *Turn) end() {
	select {
	case <-t.abort:
	default:
		close(t.abort)
	}
}

// Wait returns when a delivery of events with the key, nil for none, has its turn; or
// with an error when ctx ends before, and ErrEnding.
func (q *Turns) Wait(ctx context.Context, slot int, key *string, event int64) (*Turn, error) {
	t := &Turn{t: q, slot: slot, come: make(chan error, 1), abort: make(chan struct{})}
	if key != nil {
		short := ShortKey(lanes.Session(*key))
		key = &short
	}
	q.mu.Lock()
	c := q.join()
	if c == nil {
		q.mu.Unlock()
		return t, ctx.Err()
	}
	if c.ended {
		q.mu.Unlock()
		return nil, ErrEnding
	}
	q.number++
	t.conn, t.number = c, q.number
	c.asked[t.number] = t
	q.mu.Unlock()
	if c.write(TurnRequest{Ask: t.number, Key: key, Event: event, Slot: slot}) != nil {
		c.Close() // then receive tells everybody
	}
	select {
	case err := <-t.come:
		if err != nil {
			t.Done("")
			return nil, err
		}
		return t, nil
	case <-ctx.Done():
		t.Done("")
		return nil, ctx.Err()
	}
}

// Abort is closed when the delivery is to end.
func (t *Turn) Abort() <-chan struct{} { return t.abort }

// Done gives the turn back, with what went wrong in it, "" for nothing.
func (t *Turn) Done(failure string) {
	if t.conn == nil {
		return
	}
	t.t.mu.Lock()
	gone := t.conn.asked == nil
	delete(t.conn.asked, t.number)
	t.t.mu.Unlock()
	if !gone {
		if t.conn.write(TurnRequest{End: t.number, Error: short(failure)}) != nil {
			t.conn.Close()
		}
	}
}

// maxFailureBytes bounds what the server is told of a failure.
const maxFailureBytes = 1 << 10

func short(text string) string { return text[:min(len(text), maxFailureBytes)] }

// Environment makes the two files of the turn's slot again, for a process that is about
// to be started in it, and returns what it is to find in its environment; nothing where
// that fails, and then it cannot be sent messages.
func (t *Turn) Environment() []string {
	dir := DeliveryDir(t.t.place, t.t.consumer, t.slot)
	t.t.mu.Lock()
	defer t.t.mu.Unlock()
	f := t.t.files[t.slot]
	if f == nil || !f.usable() {
		if f != nil {
			f.close()
		}
		_, err := os.Stat(t.t.place) // a deleted thread is not brought back
		if err == nil {
			f, err = newDeliveryFiles(dir)
		}
		if err != nil {
			delete(t.t.files, t.slot)
			return []string{EnvState + "=", EnvMessages + "="}
		}
		t.t.files[t.slot] = f
	}
	f.reset()
	return []string{EnvState + "=" + filepath.Join(dir, "state"), EnvMessages + "=" + filepath.Join(dir, "messages")}
}
