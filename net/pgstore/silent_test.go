package pgstore

import (
	"context"
	"errors"
	"net"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
)

// silent is a connection on which nothing is answered any more once it is stopped.
type silent struct {
	net.Conn
	stopped *atomic.Bool
	closed  chan struct{}
}

func (c *silent) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if c.stopped.Load() {
		<-c.closed
		return 0, net.ErrClosed
	}
	return n, err
}

func (c *silent) Close() error {
	if c.stopped.Swap(false) {
		close(c.closed)
	}
	return c.Conn.Close()
}

// SetDeadline ends what waits, as the deadline of a connection does.
func (c *silent) SetDeadline(t time.Time) error {
	if !t.IsZero() && t.Before(time.Now()) && c.stopped.Swap(false) {
		close(c.closed)
	}
	return c.Conn.SetDeadline(t)
}

// newSilenced returns a store whose first connection is silent once it is stopped.
func newSilenced(t *testing.T) (s *Store, stopped *atomic.Bool) {
	t.Helper()
	a := *newThread(t, newSchema(t))
	a.config = a.config.Copy()
	dial := a.config.DialFunc
	a.config.TLSConfig, a.config.Fallbacks = nil, nil
	stopped = new(atomic.Bool)
	var dials atomic.Int64
	a.config.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
		c, err := dial(ctx, network, addr)
		if dials.Add(1) > 1 || err != nil {
			return c, err
		}
		return &silent{c, stopped, make(chan struct{})}, err
	}
	s = opened(t, &a, plain{})
	if _, err := s.Push(context.Background(), drafts); err != nil {
		t.Fatal(err)
	}
	return s, stopped
}

// A push on a connection that was idle, and whose server says nothing any more, goes to
// the server that answers.
func TestSilentServer(t *testing.T) {
	s, stopped := newSilenced(t)
	s.answerTimeout = time.Second - s.lockTimeout
	stopped.Store(true)
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	for { // a busy server may be as late, once it is another one
		if _, err := s.Push(ctx, drafts); err == nil {
			break
		} else if ctx.Err() != nil {
			t.Fatalf("the push waits for the server that says nothing: %v", err)
		}
	}
}

// A server that says nothing any more in the midst of a transaction is not waited for
// without end: that is an error, and what comes next goes to the server that answers.
func TestSilentMidway(t *testing.T) {
	s, stopped := newSilenced(t)
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	err := s.run(ctx, true, nil, func(tx *tx) error {
		if tx.limit != statementTimeout {
			t.Errorf("the limit is %v", tx.limit)
		}
		tx.limit = 100 * time.Millisecond
		stopped.Store(true)
		return tx.exec("SELECT 1")
	})
	if err == nil || ctx.Err() != nil || !strings.Contains(err.Error(), "no answer came in 100ms, and nothing was stored") {
		t.Fatal(err)
	}
	if _, err := s.Push(ctx, drafts); err != nil {
		t.Fatal(err)
	}
}

// A call whose context ends does not wait for what an idle connection is still to read. That
// connection is used again once it has read it.
func TestTailOfAnother(t *testing.T) {
	s := opened(t, newThread(t, newSchema(t)), plain{})
	raw(t, s, sql("SELECT 1")) // its tail is read
	idle := func() []*pgconn.PgConn {
		s.pool.mu.Lock()
		defer s.pool.mu.Unlock()
		return slices.Clone(s.pool.idle)
	}
	for ; len(idle()) == 0; runtime.Gosched() {
	}
	c, done := idle()[0], make(chan struct{})
	c.CustomData()[tailKey] = &tail{done: done}
	errMine := errors.New("mine")
	ctx, cancel := context.WithCancelCause(t.Context())
	taken := make(chan error, 1)
	go func() {
		_, _, err := s.pool.take(ctx)
		taken <- err
	}()
	for ; len(idle()) > 0; runtime.Gosched() {
	}
	cancel(errMine)
	if err := <-taken; !errors.Is(err, errMine) {
		t.Error(err)
	}
	raw(t, s, sql("SELECT 1")) // on another one
	close(done)
	for ; !slices.Contains(idle(), c); runtime.Gosched() {
	}
}
