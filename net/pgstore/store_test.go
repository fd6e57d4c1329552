package pgstore_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"thread/internal/store"
)

// pgStore is one handle on a thread, with connections of its own, as another process
// would have.
type pgStore struct {
	pool   *pgxpool.Pool
	thread string
	logic  store.Logic
	closed atomic.Bool

	lockTimeout time.Duration
}

var _ store.Store = (*pgStore)(nil)

// commitTimeout is how long a COMMIT may take. The caller's context does not end it: the
// outcome would be unknown.
const commitTimeout = 30 * time.Second

const noticeKey = "thread: warning"

// open returns a handle; change may change what its connections are made with.
func open(config *pgxpool.Config, thread string, l store.Logic, change func(*pgxpool.Config)) (*pgStore, error) {
	c := config.Copy()
	c.MaxConns = 4
	// A warning at COMMIT says that a standby may not have what was stored.
	c.ConnConfig.OnNotice = func(p *pgconn.PgConn, n *pgconn.Notice) {
		if n.SeverityUnlocalized == "WARNING" {
			p.CustomData()[noticeKey] = n.Message
		}
	}
	// Of a table that was not analyzed yet it would read and sort all, for each page.
	c.ConnConfig.RuntimeParams["enable_bitmapscan"] = "off"
	if change != nil {
		change(c)
	}
	pool, err := pgxpool.NewWithConfig(context.Background(), c)
	if err != nil {
		return nil, err
	}
	return &pgStore{pool: pool, thread: thread, logic: l, lockTimeout: 4 * time.Second}, nil
}

// Close implements store.Store. It waits for the calls under way, and must not be called
// from inside one.
func (s *pgStore) Close() error {
	if !s.closed.Swap(true) {
		s.pool.Close()
	}
	return nil
}

// failure returns what an error of PostgreSQL or of the connection is called here. It is
// never nil, and never an answer.
func failure(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	var p *pgconn.PgError
	if errors.As(err, &p) && p.Code == "55P03" { // lock_not_available
		return store.ErrBusy
	}
	return fmt.Errorf("PostgreSQL: %w", err)
}

// run runs fn in a transaction, and commits when it is for writing.
func (s *pgStore) run(ctx context.Context, o pgx.TxOptions, fn func(tx *tx) error) error {
	if s.closed.Load() {
		return store.ErrClosed
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	conn, err := s.pool.Acquire(ctx)
	if err != nil {
		if s.closed.Load() {
			return store.ErrClosed
		}
		return failure(ctx, err)
	}
	defer conn.Release() // closes one that is broken, or in a transaction
	b, err := conn.BeginTx(ctx, o)
	if err != nil {
		return failure(ctx, err)
	}
	// After a panic of fn too, and whatever has become of the context.
	defer func() {
		ended, cancel := context.WithTimeout(context.WithoutCancel(ctx), commitTimeout)
		defer cancel()
		_ = b.Rollback(ended)
	}()
	tx := &tx{ctx: ctx, pg: b, store: s, began: time.Now()}
	write := o.AccessMode != pgx.ReadOnly
	if err := tx.begin(write); err != nil {
		return err
	}
	if err := fn(tx); err != nil {
		return err
	}
	if write {
		tx.flush()
	}
	// fn may have passed over an error, and some methods cannot return one.
	if tx.failed != nil {
		return tx.failed
	}
	if !write {
		return nil
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return commit(ctx, b)
}

func commit(ctx context.Context, b pgx.Tx) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), commitTimeout)
	defer cancel()
	data := b.Conn().PgConn().CustomData()
	delete(data, noticeKey)
	err := b.Commit(ctx)
	var p *pgconn.PgError
	switch {
	case errors.Is(err, pgx.ErrTxCommitRollback), errors.As(err, &p) && p.SeverityUnlocalized == "ERROR":
		return failure(ctx, err) // the server says that nothing was stored
	case err != nil:
		return fmt.Errorf("%w: PostgreSQL: %w", store.ErrUnknownOutcome, err)
	}
	if w, ok := data[noticeKey]; ok {
		return fmt.Errorf("%w: PostgreSQL at COMMIT: %v", store.ErrUnknownOutcome, w)
	}
	return nil
}

// View implements store.Store.
func (s *pgStore) View(ctx context.Context, fn func(tx store.Tx) error) error {
	o := pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}
	return s.run(ctx, o, func(tx *tx) error { return fn(tx) })
}

// locked runs fn with the thread's row locked. Every statement sees what was committed
// before it, so that all behind the lock see the same.
func (s *pgStore) locked(ctx context.Context, fn func(tx *tx) error) error {
	return s.run(ctx, pgx.TxOptions{IsoLevel: pgx.ReadCommitted, AccessMode: pgx.ReadWrite}, fn)
}

// Update implements store.Store.
func (s *pgStore) Update(ctx context.Context, fn func(s store.Session) error) error {
	return s.write(ctx, func(_ *tx, u store.Session) error { return fn(u) })
}

func (s *pgStore) write(ctx context.Context, fn func(tx *tx, u store.Session) error) error {
	var over store.Session
	defer func() {
		if over != nil {
			over.Ended()
		}
	}()
	return s.locked(ctx, func(tx *tx) error {
		u := s.logic.Begin(tx)
		if err := u.Before(); err != nil {
			return err
		}
		if err := fn(tx, u); err != nil {
			return err
		}
		over = u
		return u.After()
	})
}

// Prune implements store.Store. It asks and drops in one transaction.
func (s *pgStore) Prune(ctx context.Context, d store.Dropping) (c store.Compaction, err error) {
	err = s.locked(ctx, func(tx *tx) error {
		tx.readOnly = true
		through, err := d.Through(tx)
		if err == nil && through > 0 {
			err = d.May(tx, through)
		}
		if err != nil {
			return err
		}
		c.Before = tx.Size()
		if through = min(through, tx.last); through > tx.floor {
			c.Through, c.Dropped = through, through-tx.floor
			tx.exec("DELETE FROM events WHERE thread = $1 AND id <= $2", s.thread, through)
			tx.exec("UPDATE threads SET floor = $2 WHERE thread = $1", s.thread, through)
			tx.floor = through
		}
		c.Kept, c.Size = tx.last-tx.floor, tx.Size()
		return nil
	})
	return c, err
}

// Compact implements store.Store. The server gives space back by itself.
func (s *pgStore) Compact(ctx context.Context) (c store.Compaction, err error) {
	err = s.View(ctx, func(tx store.Tx) error {
		c.Kept, c.Size = tx.State().Stored, tx.Size()
		c.Before = c.Size
		return nil
	})
	return c, err
}
