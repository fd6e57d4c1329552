package pgstore

import (
	"context"
	"crypto/rand"
	"errors"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"thread/internal/store"
)

// turn is a consumer's turn that this handle has, or had.
type turn struct {
	consumer string
	fence    int64
}

// Store is one handle on a thread.
type Store struct {
	address *Address
	thread  string
	logic   store.Logic
	pool    *pool
	closed  atomic.Bool

	restoring bool                 // it is for a thread that is not whole yet
	turn      atomic.Pointer[turn] // nil: it has none

	lockTimeout    time.Duration
	resolveTimeout time.Duration
	answerTimeout  time.Duration
	idleTimeout    time.Duration
	series         seriesCache
}

var _ interface {
	store.Store
	store.Whole
} = (*Store)(nil)

// Options are the settings of a handle.
type Options struct {
	Logic       store.Logic
	LockTimeout time.Duration // how long a call waits for others; less than a millisecond is 15 s
}

const (
	// defaultLockTimeout is longer than in a directory: there is no group commit across
	// hosts, so that three hundred pushes at once take some seconds.
	defaultLockTimeout = 15 * time.Second
	// resolveTimeout is how long a call tries to learn what became of a broken COMMIT.
	resolveTimeout = 10 * time.Second
	// idleTimeout is how long the server waits for a host in the middle of a write.
	idleTimeout = 10 * time.Second
)

// Open returns a handle. It does not connect: that there is no such thread shows with the
// first call.
func Open(a *Address, o Options) *Store {
	s := &Store{address: a, thread: a.Thread, logic: o.Logic, lockTimeout: o.LockTimeout, resolveTimeout: resolveTimeout, answerTimeout: commitTimeout, idleTimeout: idleTimeout}
	if s.lockTimeout < time.Millisecond {
		s.lockTimeout = defaultLockTimeout
	}
	s.pool = newPool(a.config, s.lockTimeout)
	return s
}

// Close implements store.Store. It waits for the calls under way, and must not be called
// from inside one.
func (s *Store) Close() error {
	if !s.closed.Swap(true) {
		s.pool.close()
	}
	return nil
}

// begun returns a transaction that has begun. A connection that was idle and is broken is
// replaced: nothing was done with it. So is one that the server has ended with a message, as
// before a restart or after idle_session_timeout.
func (s *Store) begun(ctx context.Context, write bool, digests [][]byte) (*tx, error) {
	for {
		c, used, err := s.pool.take(ctx)
		if err != nil {
			return nil, failure(ctx, err)
		}
		if !used {
			s.series.forget()
		}
		tx := &tx{ctx: ctx, conn: c, store: s, began: time.Now(), epoch: s.series.now()}
		if err = tx.begin(write, digests); err == nil {
			return tx, nil
		}
		broken := c.IsClosed() || errors.Is(err, errLostIdle)
		tx.end()
		if !used || !broken || ctx.Err() != nil {
			return nil, err
		}
	}
}

// errNotStored says that a COMMIT whose connection broke stored nothing.
var errNotStored = errors.New("nothing was stored")

// run runs fn in a transaction, and commits when it is for writing. digests is what begin
// takes.
func (s *Store) run(ctx context.Context, write bool, digests [][]byte, fn func(tx *tx) error) error {
	if s.closed.Load() {
		return store.ErrClosed
	}
	for {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		err := s.runOnce(ctx, write, digests, fn)
		if !errors.Is(err, errNotStored) {
			return err
		}
	}
}

func (s *Store) runOnce(ctx context.Context, write bool, digests [][]byte, fn func(tx *tx) error) error {
	tx, err := s.begun(ctx, write, digests)
	if err != nil {
		return err
	}
	defer func() { tx.end() }() // after a panic of fn too
	if err := fn(tx); err != nil {
		return err
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
	nonce := make([]byte, 16)
	_, _ = rand.Read(nonce) // never fails
	err = commit(ctx, tx.conn, tx.notice(), append(tx.rest(), s.nonce(nonce)...)...)
	if w := (*warningError)(nil); errors.Is(err, store.ErrUnknownOutcome) && !errors.As(err, &w) {
		tx.end()
		err = s.resolve(ctx, nonce, err)
	}
	if err != nil {
		return err
	}
	s.series.learn(tx.newSeries, tx.epoch)
	return nil
}

// nonce are the statements by which a transaction is found again. One in 256 forgets some that
// are older than an hour.
func (s *Store) nonce(nonce []byte) []statement {
	list := []statement{often("INSERT INTO commits (thread, nonce) VALUES ($1, $2)", text(s.thread), bytea(nonce))}
	if nonce[0] == 0 {
		list = append(list, s.sweep(nonce[1:]))
	}
	return list
}

// mostSwept is how many commits a sweep looks at. The thread is locked meanwhile, and there may
// be millions: a sweep begins at a random one, in the order of the primary key, upwards or
// downwards so that the ends have their part as well. At one sweep in 256 writes that is 8
// for each write, of which one is new.
const mostSwept = 2048

// sweep takes 15 random bytes.
func (s *Store) sweep(random []byte) statement {
	from, order := ">=", "ASC"
	if random[0]&1 == 0 {
		from, order = "<=", "DESC"
	}
	return sql(`DELETE FROM commits WHERE ctid = ANY (ARRAY(SELECT s.at FROM
		(SELECT ctid AS at, at < clock_timestamp() - interval '1 hour' AS old FROM commits WHERE thread = $1 AND nonce `+from+` $2 ORDER BY nonce `+order+
		` LIMIT `+strconv.Itoa(mostSwept)+`) s WHERE s.old))`, text(s.thread), bytea(random[1:]))
}

// resolve returns what became of a COMMIT whose connection broke: nil, errNotStored, or
// unknown. Behind the lock it is decided, and what is committed then comes from the
// primary.
func (s *Store) resolve(ctx context.Context, nonce []byte, unknown error) error {
	limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.resolveTimeout)
	defer cancel()
	for pause := 10 * time.Millisecond; ; pause = min(2*pause, time.Second) {
		if stored, err := s.lookUp(limited, nonce); err == nil && stored {
			return nil
		} else if err == nil {
			return errNotStored
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-limited.Done():
			timer.Stop()
			return unknown
		}
	}
}

func (s *Store) lookUp(ctx context.Context, nonce []byte) (stored bool, err error) {
	c, err := connect(ctx, s.pool.config)
	if err != nil {
		return false, err
	}
	defer hangUp(c)
	r, err := pipeline(ctx, c, nil,
		sql(beginWrite), s.settings(true),
		sql("SELECT 1 FROM threads WHERE thread = $1 FOR UPDATE", text(s.thread)),
		sql("SELECT 1 FROM commits WHERE thread = $1 AND nonce = $2", text(s.thread), bytea(nonce)))
	if err != nil {
		return false, err
	}
	mine := make([]byte, 16)
	_, _ = rand.Read(mine)
	return len(r[3].rows) > 0, commit(ctx, c, nil, s.nonce(mine)...)
}

// View implements store.Store.
func (s *Store) View(ctx context.Context, fn func(tx store.Tx) error) error {
	return s.run(ctx, false, nil, func(tx *tx) error { return fn(tx) })
}

// Update implements store.Store.
func (s *Store) Update(ctx context.Context, fn func(s store.Session) error) error {
	_, err := s.write(ctx, nil, func(_ *tx, u store.Session) error { return fn(u) })
	return err
}

// write runs fn in a write transaction and reports whether there is anybody to be told of
// what it pushed.
func (s *Store) write(ctx context.Context, digests [][]byte, fn func(tx *tx, u store.Session) error) (subscribed bool, err error) {
	var w store.Written
	defer func() {
		if w.Ended != nil {
			w.Ended()
		}
	}()
	err = s.run(ctx, true, digests, func(tx *tx) (err error) {
		w, err = s.logic.Write(tx, false, func(u store.Session) error { return fn(tx, u) })
		return err
	})
	return w.Subscribed, err
}

// Prune implements store.Store. It asks and drops in one transaction.
func (s *Store) Prune(ctx context.Context, d store.Dropping) (c store.Compaction, err error) {
	err = s.run(ctx, true, nil, func(tx *tx) error {
		tx.readOnly, c = true, store.Compaction{}
		tx.limit = 0 // to delete may take long
		through, err := d.Through(tx)
		if err == nil && through > 0 {
			err = d.May(tx, through)
		}
		if err != nil {
			return err
		}
		c.Before = tx.Size()
		if through = min(through, tx.head); through > tx.floor {
			stored := tx.stored()
			if err := tx.dropThrough(through); err != nil {
				return err
			}
			c.Through, c.Dropped = through, stored-tx.stored()
		}
		c.Kept, c.Size = tx.stored(), tx.Size()
		return nil
	})
	return c, err
}

// Size implements store.Tx: of the contents and the records of the thread.
func (tx *tx) Size() int64 {
	_ = tx.flush()
	rows, err := tx.rows(`SELECT coalesce((SELECT sum(octet_length(content)) FROM events WHERE thread = $1), 0)::bigint +
		coalesce((SELECT sum(octet_length(key) + octet_length(value)) FROM records WHERE thread = $1), 0)::bigint`, text(tx.store.thread))
	if err != nil {
		return 0
	}
	return number(rows[0][0])
}

// Compact implements store.Store. The server gives space back by itself.
func (s *Store) Compact(ctx context.Context) (c store.Compaction, err error) {
	err = s.View(ctx, func(tx store.Tx) error {
		c.Kept, c.Size = tx.State().Stored, tx.Size()
		c.Before = c.Size
		return nil
	})
	return c, err
}

// apart runs statements in a separate transaction that compares no fence, and returns the rows
// of the first. Nothing of it has to be kept over a fail-over.
func (s *Store) apart(ctx context.Context, list ...statement) (rowset, error) {
	for {
		c, used, err := s.pool.take(ctx)
		if err != nil {
			return rowset{}, failure(ctx, err)
		}
		r, err := pipeline(ctx, c, nil, append(append([]statement{often(beginWrite), s.settings(true)}, list...), sql("COMMIT"))...)
		if err == nil {
			s.pool.mayPrepare(c, number(r[1].rows[0][settingPID]))
			s.pool.put(c)
			return r[2], nil
		}
		broken := c.IsClosed() || s.pool.isShared(c, err)
		s.pool.put(c)
		if !used || !broken || ctx.Err() != nil {
			return rowset{}, failure(ctx, err)
		}
	}
}

// seriesCache keeps the ids of series that are committed. They never change on one server,
// and what a new connection leads to may be another one: a standby that has taken over, or
// the database from a backup, in which the same id is the id of another series.
type seriesCache struct {
	mu    sync.Mutex
	ids   map[digest]int64
	epoch int64 // how often all was forgotten
}

// maxCached bounds the memory of a process that pushes for ever.
const maxCached = 100_000

func (c *seriesCache) now() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.epoch
}

func (c *seriesCache) forget() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ids = nil
	c.epoch++
}

// anyEpoch is for who only wants to know what to ask for.
const anyEpoch = -1

// get looks for what was learnt in this epoch.
func (c *seriesCache) get(d digest, epoch int64) (id int64, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if epoch != anyEpoch && epoch != c.epoch {
		return 0, false
	}
	id, ok = c.ids[d]
	return id, ok
}

func (c *seriesCache) learn(ids map[digest]int64, epoch int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if epoch != c.epoch {
		return
	}
	if c.ids == nil || len(c.ids) > maxCached {
		c.ids = map[digest]int64{}
	}
	for d, id := range ids {
		c.ids[d] = id
	}
}
