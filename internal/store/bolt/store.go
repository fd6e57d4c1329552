package bolt

import (
	"context"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"time"

	"thread/event"
	"thread/internal/store"
)

// DefaultLockTimeout is how long a call waits for the database when other processes
// use it. The known clients give up after 5 s (T-30).
const DefaultLockTimeout = 4 * time.Second

// keeper holds what a store keeps open. It does not know the store, so that a store that
// no caller has any more can be collected, and what it kept closed.
type keeper struct {
	mu      sync.Mutex
	closed  bool
	readers []*keptDatabase
	writer  *keptDatabase

	text []byte // of the latest write's lines, empty; of the one who writes now
}

// turn is the turn of the first request in the queue. It carries it out, and with
// it the pushes right behind it.
type turn struct {
	t     *Store
	first *write
	group []*write           // taken out of the queue
	stop  context.CancelFunc // ends the turn's waits

	pending *pendingWrite // what other processes can take
	others  pendingWrites // what they left
}

// write is one request in the queue of a handle: either drafts to push or a
// function to run. Exactly one goroutine, the leader, has the database; when it
// is done it makes the first of those who came meanwhile the next leader. A
// leader takes all pushes at the head of the queue into its own transaction, so
// that they share its two syncs, and the syncs of other processes that wait (pendingwrite.go).
//
// The end of a context ends the call that it was given to, and no other: until a
// transaction has begun, the call leaves the queue or its group, and the rest of
// the group waits on under the next leader. A transaction that has begun is
// brought to its end, and its outcome returned.
type write struct {
	drafts []event.Draft
	fn     func(s store.Session) error

	ctx   context.Context
	until time.Time     // when the wait has ended; zero before the first turn that waits for it
	turn  *turn         // that has taken it out of the queue, or nil
	lead  chan struct{} // closed: you are the leader
	done  chan struct{} // closed: the fields below are set

	pushed store.Pushed
	err    error
}

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

// The bounds of one transaction: drafts, and bytes of content.
const (
	MaxGroup      = 10000
	maxGroupBytes = 32 << 20
)

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

const (
	DatabaseName = "events.db"
	initLockName = ".init" // in run/, like all names of ours with a dot that lock.Name does not give out
	DirMode      = 0o700
	FileMode     = 0o600
)

// # Cross-process group commit
//
// Processes that push at the same time share their syncs, too. A push that has to
// wait for its turn leaves its drafts as a pending write in run/.offers, and keeps
// waiting. The process that gets the database next commits the pending writes of all
// who wait in its own transaction, with a receipt for each. When its own turn comes, a
// push first looks for its receipt, and is done if there is one.
//
// The database alone decides: a pending write was stored if and only if it has a
// receipt. The file names make that decidable whichever process is killed. They, and
// the directory's name, stay as they are, since older programs share them:
//
//	TOKEN        being written
//	TOKEN.new    may be taken, by renaming it, or withdrawn, by removing it
//	TOKEN.taken  was taken
//
// Pending writes are taken, stored and given their receipts under the database's
// lock. So, under that lock, one without a receipt was not stored and will not be,
// unless its owner allows it. A receipt is kept as long as the file has its name and
// the owner holds the lock on it, which dies with the owner. run/ may be deleted at any
// time (T-19): a pending write that was taken and whose name is gone is the one case in
// which a missing receipt says nothing.
//
// The file is never synced: its owner has promised nothing yet. But a receipt can be
// visible before it would survive a loss of power, if the process that committed it was
// killed, or got an error, in the middle of its syncs. So that process records in the
// first byte of the file how its commit ended, and an owner that finds no such record
// syncs for itself.
const (
	pendingName  = ".offers"
	pendingNew   = ".new"
	pendingTaken = ".taken"
	tokenBytes   = 16

	// The first byte of the file.
	stateFree    = 'f'
	stateTaken   = 't'
	stateDurable = 'd' // it is stored, and that was synced
	stateUnknown = 'u' // the commit failed, and how much of it is on the disk is unknown

	// maxPendingBytes bounds one pending write, maxPending how many one transaction
	// takes: a push next to many others must not wait for megabytes of theirs.
	maxPendingBytes = 64 << 10
	maxPending      = 256
)

// pendingWrite is one of this process.
type pendingWrite struct {
	token [tokenBytes]byte
	path  string // without ending
	f     *os.File
}

type takenWrite struct {
	f      *os.File
	token  []byte
	drafts []event.Draft
}

// pendingWrites are the writes of other processes, as seen under the database's lock.
type pendingWrites struct {
	taken   []takenWrite
	waiting map[string]bool // tokens taken earlier, whose owners are still there, or may be
	all     bool            // no name was missed
}
