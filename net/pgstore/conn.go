package pgstore

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"thread/internal/store"
)

const noticeKey = "thread: warning"

// closeTimeout bounds the good-bye to a server.
const closeTimeout = time.Second

func connect(ctx context.Context, config *pgconn.Config) (*pgconn.PgConn, error) {
	c := config.Copy()
	// A warning at COMMIT says that a standby may not have what was stored.
	c.OnNotice = func(p *pgconn.PgConn, n *pgconn.Notice) {
		if n.SeverityUnlocalized == "WARNING" {
			p.CustomData()[noticeKey] = n.Message
		}
	}
	return pgconn.ConnectConfig(ctx, c)
}

func hangUp(c *pgconn.PgConn) {
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	_ = c.Close(ctx)
}

// pool keeps connections that are between transactions.
type pool struct {
	config *pgconn.Config
	wait   time.Duration // for a server that has no place for another connection
	open   chan struct{} // a place for each that is in a transaction

	shared atomic.Bool // sessions are not its connections' own, see prepared

	mu     sync.Mutex
	idle   []*pgconn.PgConn
	closed bool
	users  sync.WaitGroup
}

const (
	maxOpen = 8
	maxIdle = 4
)

func newPool(config *pgconn.Config, wait time.Duration) *pool {
	return &pool{config: config, wait: wait, open: make(chan struct{}, maxOpen)}
}

// take returns a connection, and whether it is one that was idle: the server may have closed it
// since.
func (p *pool) take(ctx context.Context) (c *pgconn.PgConn, used bool, err error) {
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		return nil, false, store.ErrClosed
	}
	p.users.Add(1)
	p.mu.Unlock()
	defer func() {
		if err != nil {
			p.users.Done()
		}
	}()
	select {
	case p.open <- struct{}{}:
	case <-ctx.Done():
		return nil, false, context.Cause(ctx)
	}
	p.mu.Lock()
	if n := len(p.idle); n > 0 {
		c, p.idle = p.idle[n-1], p.idle[:n-1]
	}
	p.mu.Unlock()
	if idle := c; idle != nil {
		if err = settle(ctx, idle); err != nil {
			p.users.Add(1)
			go func() { _ = settle(context.Background(), idle); p.put(idle) }() // within commitTimeout
			return nil, false, err
		}
		return idle, true, nil
	}
	if c, err = p.connect(ctx); err != nil {
		<-p.open
	}
	return c, false, err
}

// connect waits for a place on the server where many processes come at once: most need
// theirs for a moment only. The pauses differ, so that they do not coincide.
func (p *pool) connect(ctx context.Context) (*pgconn.PgConn, error) {
	began := time.Now()
	for pause := 20 * time.Millisecond; ; pause = min(2*pause, 500*time.Millisecond) {
		c, err := connect(ctx, p.config)
		if codeOf(err) != "53300" || time.Since(began) > p.wait { // too_many_connections
			return c, err
		}
		timer := time.NewTimer(pause/2 + rand.N(pause))
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return nil, context.Cause(ctx)
		}
	}
}

// put gives a connection back, and its place. One that is broken, or still in a transaction, is closed.
func (p *pool) put(c *pgconn.PgConn) {
	p.mu.Lock()
	keep := !p.closed && len(p.idle) < maxIdle && !c.IsClosed() && c.TxStatus() == 'I'
	if keep {
		if t := tailOf(c); t != nil {
			go t.read()
		}
		p.idle = append(p.idle, c)
	}
	p.mu.Unlock()
	if !keep {
		if t := tailOf(c); t != nil {
			t.read()
		}
		hangUp(c)
	}
	<-p.open
	p.users.Done()
}

// close waits for those who have a connection.
func (p *pool) close() {
	p.mu.Lock()
	idle := p.idle
	p.closed, p.idle = true, nil
	p.mu.Unlock()
	for _, c := range idle {
		_ = settle(context.Background(), c)
		hangUp(c)
	}
	p.users.Wait()
}

// mayPrepare is told which process of the server has begun a transaction.
func (p *pool) mayPrepare(c *pgconn.PgConn, pid int64) {
	if p.shared.Load() || uint32(pid) != c.PID() {
		delete(c.CustomData(), preparedKey)
	} else if preparedOn(c) == nil {
		c.CustomData()[preparedKey] = prepared{}
	}
}

// isShared reports whether an error says that the session is not the connection's own. No
// connection prepares statements from then on.
func (p *pool) isShared(c *pgconn.PgConn, err error) bool {
	if !slices.Contains(noPrepared, codeOf(err)) {
		return false
	}
	p.shared.Store(true)
	delete(c.CustomData(), preparedKey)
	return true
}

// tail is what a connection has not read yet: what came of a statement that was for later. No
// caller waits for it.
type tail struct {
	p     *pgconn.Pipeline
	ended func()
	done  chan struct{}
}

const tailKey = "thread: tail"

func tailOf(c *pgconn.PgConn) *tail {
	t, _ := c.CustomData()[tailKey].(*tail)
	return t
}

func (t *tail) read() {
	_ = t.p.Close()
	t.ended()
	close(t.done)
}

// settle waits for the tail of a connection that was put back, until ctx ends.
func settle(ctx context.Context, c *pgconn.PgConn) error {
	t := tailOf(c)
	if t == nil {
		return nil
	}
	select {
	case <-t.done:
		delete(c.CustomData(), tailKey)
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// failure returns what an error of PostgreSQL or of the connection is called here. It is
// never nil, and never an answer.
func failure(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	switch codeOf(err) {
	case "55P03": // lock_not_available
		return store.ErrBusy
	case "42P01", "3F000": // there is no such table, or schema
		return fmt.Errorf("%w: the schema is missing", store.ErrNotThread)
	}
	for _, known := range []error{store.ErrClosed, store.ErrNotThread, store.ErrCorrupt} {
		if errors.Is(err, known) {
			return err
		}
	}
	return fmt.Errorf("PostgreSQL: %w", err)
}

// codeOf is the code of an error of the server, "" for any other.
func codeOf(err error) string {
	if p := (*pgconn.PgError)(nil); errors.As(err, &p) {
		return p.Code
	}
	return ""
}

// commitTimeout is how long a COMMIT may take. The caller's context does not end it: the
// outcome would be unknown.
const commitTimeout = 30 * time.Second

// commit does the last statements of a transaction and ends it, in one round trip. Then
// it does what is for later, whose outcome does not count: the connection is to be put back.
func commit(ctx context.Context, c *pgconn.PgConn, later *statement, last ...statement) error {
	limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), commitTimeout)
	data := c.CustomData()
	delete(data, noticeKey)
	results, err := pipeline(limited, c, later, append(last, sql("COMMIT"))...)
	if t := tailOf(c); t != nil {
		t.ended = cancel
	} else {
		cancel()
	}
	refused := (*pgconn.PgError)(nil)
	switch {
	case errors.As(err, &refused) && refused.SeverityUnlocalized == "ERROR":
		return failure(ctx, err) // the server says that nothing was stored
	case err != nil:
		return fmt.Errorf("%w: PostgreSQL: %w", store.ErrUnknownOutcome, err)
	case results[len(results)-1].tag != "COMMIT":
		return errors.New("PostgreSQL: the transaction was rolled back")
	}
	if w, ok := data[noticeKey]; ok {
		return &warningError{fmt.Sprint(w)}
	}
	return nil
}

// pipeline sends all statements at once and returns what each returned. Those behind an
// error were not done. A statement for later is done after the others were settled, and
// its outcome does not count: where the others did well, it is the connection's tail.
func pipeline(ctx context.Context, c *pgconn.PgConn, later *statement, list ...statement) ([]rowset, error) {
	p := c.StartPipeline(ctx)
	on, asked := preparedOn(c), map[string]bool{}
	for i := range list {
		list[i].send(p, on, asked)
	}
	p.SendPipelineSync()
	if later != nil {
		later.send(p, nil, nil)
		p.SendPipelineSync()
	}
	err := p.Flush()
	var results []rowset
	for err == nil && len(results) < len(list) {
		var r any
		if r, err = p.GetResults(); err != nil {
			break
		}
		switch r := r.(type) {
		case *pgconn.StatementDescription: // comes before the rows
			r.SQL = list[len(results)].sql
			r.Name, on[r.SQL] = nameOf(r.SQL), r
		case *pgconn.ResultReader:
			read := r.Read()
			results, err = append(results, rowset{read.Rows, read.CommandTag.String()}), read.Err
		default:
			err = fmt.Errorf("an answer of kind %T", r)
		}
	}
	if err == nil && later != nil {
		_, err = p.GetResults() // the others are settled
	}
	if err == nil && later != nil {
		c.CustomData()[tailKey] = &tail{p: p, done: make(chan struct{})}
		return results, nil
	}
	if cerr := p.Close(); err == nil {
		err = cerr
	}
	return results, err
}

// warningError is a COMMIT that came with a warning: it is committed here, and perhaps
// not on the standby.
type warningError struct{ text string }

func (e *warningError) Error() string {
	return store.ErrUnknownOutcome.Error() + ": PostgreSQL at COMMIT: " + e.text
}

func (e *warningError) Unwrap() error { return store.ErrUnknownOutcome }
