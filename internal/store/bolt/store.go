package bolt

import (
	"context"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"time"

	"thread/internal/store"
	"thread/lock"
)

// DefaultLockTimeout is how long a call waits for the database when other processes
// use it. The known clients give up after 5 s (T-30).
const DefaultLockTimeout = 4 * time.Second

// Store keeps a thread in a directory: its truth is one bbolt file, which no call
// keeps open. It is safe for concurrent use.
type Store struct {
	store.Place
	Options

	// Writes in this process stand in one queue before the database's lock, and
	// what waits together is committed together. See queue.go.
	mu      sync.Mutex
	closed  bool
	waiting []*write
	writing bool

	kept *keeper // see keepopen.go
}

var _ store.Store = (*Store)(nil)

// Options are what a store is opened with. Zero values have defaults.
type Options struct {
	// Logic is what runs in the store's own transactions. A store that no process writes to
	// needs none.
	Logic store.Logic
	// LockTimeout is how long a call waits for the database before it returns ErrBusy.
	LockTimeout time.Duration
	// Now is the clock that stamps events.
	Now func() time.Time
	// CheckFile is shown the open events.db before a call uses it, and the call returns
	// its error. An account that can write the directory can put another file there at any time;
	// what was checked by its path may be another one by then.
	CheckFile func(os.FileInfo) error
	// AnyMount accepts a directory on a network file system, too.
	AnyMount bool
	// KeepOpen keeps the database open between calls, unlocked, on systems where other
	// processes can use it all the same.
	KeepOpen bool
	// MaxGroup is how many drafts go into one transaction; less in tests.
	MaxGroup int
}

// New returns a store on dir, of which nothing is read yet.
func New(dir string, o Options) (*Store, error) {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	if o.LockTimeout == 0 {
		o.LockTimeout = DefaultLockTimeout
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.MaxGroup == 0 {
		o.MaxGroup = MaxGroup
	}
	t := &Store{Place: store.Place{Dir: abs}, Options: o}
	if t.keeps() {
		t.kept = &keeper{}
		runtime.AddCleanup(t, (*keeper).close, t.kept)
	}
	return t, nil
}

// Close marks the store as closed, and closes what Options.KeepOpen has kept.
func (t *Store) Close() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.closed = true
	if t.kept != nil {
		t.kept.close()
	}
	return nil
}

func (t *Store) isClosed() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.closed
}

// View implements store.Store.
func (t *Store) View(ctx context.Context, fn func(tx store.Tx) error) error {
	return t.read(ctx, func(tx *Tx) error { return fn(tx) })
}

// Update implements store.Store. A panic of fn continues to the caller, and
// runtime.Goexit in fn ends the goroutine; nothing is stored then.
func (t *Store) Update(ctx context.Context, fn func(s store.Session) error) error {
	return t.write(ctx, &write{fn: fn})
}

func (t *Store) read(ctx context.Context, fn func(tx *Tx) error) error {
	if t.kept != nil {
		return t.readKept(ctx, fn)
	}
	db, err := t.open(ctx, lock.Shared)
	if err != nil {
		return err
	}
	return t.view(db, func(tx *Tx) error {
		tx.ctx = ctx
		return fn(tx)
	})
}
