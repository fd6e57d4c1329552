package bolt

import (
	"context"
	"math"
	"time"

	"go.etcd.io/bbolt"

	"thread/event"
	"thread/index"
	"thread/internal/store"
	"thread/internal/store/bolt/disk"
	"thread/lock"
)

// What the tests in package bolt_test, which may import engine, see of this one.
const (
	CanLeaveWrites  = canLeaveWrites
	GrowBytes       = growBytes
	MaxPendingBytes = maxPendingBytes
	PendingNew      = pendingNew
	PendingTaken    = pendingTaken
	PendingName     = pendingName
	SliceBytes      = sliceBytes
	StateDurable    = stateDurable
	StateUnknown    = stateUnknown
	YieldEvery      = yieldEvery
)

var CreateDatabase = createDatabase

// Write runs fn in a write transaction.
func Write(ctx context.Context, t *Store, fn func(tx *Tx, s store.Session) error) error {
	return t.lockedWrite(ctx, nil, 0, func() {}, fn, func(bool, error, error) {})
}

func (tx *Tx) Insert(e *event.Event) error     { return tx.insert(e) }
func (tx *Tx) Dictionary() *index.Dictionary   { return tx.dict() }
func (tx *Tx) Bolt() Buckets                   { return Raw(tx) }
func (tx *Tx) DiskState() *disk.State          { return &tx.st }
func (tx *Tx) TimeOf(r *disk.Record) string    { return tx.timeOf(r) }
func (tx *Tx) FlushGroups() error              { return tx.groups.flush() }
func NewTx(t *Store, b *bbolt.Tx) (*Tx, error) { return newTx(t, b, nil) }

// Waiting returns how many writes wait in the queue.
func (t *Store) WaitingWrites() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.waiting)
}

// OpenExclusive opens the database until it is closed.
func (t *Store) OpenExclusive(ctx context.Context) (interface{ Close() error }, error) {
	return t.open(ctx, lock.Exclusive)
}

// OpenExclusiveNow is OpenExclusive without the gate.
func (t *Store) OpenExclusiveNow(ctx context.Context) (interface{ Close() error }, error) {
	return t.openNow(ctx, lock.Exclusive, 0)
}

// UpdateRawNow is UpdateRaw without the gate.
func (t *Store) UpdateRawNow(ctx context.Context, fn func(b *bbolt.Tx) error) error {
	db, err := t.openNow(ctx, lock.Exclusive, 0)
	if err != nil {
		return err
	}
	defer db.Close()
	tx, err := t.beginWrite(db, true)
	if err != nil {
		return err
	}
	defer tx.b.Rollback()
	if err := fn(tx.b); err != nil {
		return err
	}
	return db.commit(tx.b)
}

// LastTransaction returns bbolt's number of the last one, without the gate.
func (t *Store) LastTransaction(ctx context.Context) (id int, err error) {
	db, err := t.openNow(ctx, lock.Shared, 0)
	if err != nil {
		return 0, err
	}
	return id, t.view(db, func(tx *Tx) error { id = tx.b.ID(); return nil })
}

// RunFor searches for so long, unless a writer waits.
func (tx *Tx) RunFor(d time.Duration, sel *store.Selection) (int64, error) {
	s := tx.search(sel)
	s.deadline = time.Now().Add(d)
	return s.run(0, math.MaxInt64, func(*hit) (bool, error) { return true, nil })
}

// StorePending stores the drafts of a pending write of another process.
func (tx *Tx) StorePending(s store.Session, token []byte, ds []event.Draft, createdAt string) error {
	return tx.storePending(s, &pendingWrites{taken: []takenWrite{{token: token, drafts: ds}}}, createdAt)
}

// Receipt reports whether there is a receipt for a pending write of these drafts.
func (tx *Tx) Receipt(token []byte, ds []event.Draft) (bool, error) {
	return tx.receipt(token, []*write{{drafts: ds}})
}

// LeavesWrite reports whether drafts would be left as a pending write.
func (t *Store) LeavesWrite(ds []event.Draft) bool {
	o := t.leave([]*write{{drafts: ds}})
	if o != nil {
		o.close()
	}
	return o != nil
}

// TakePending takes the pending writes of others, stores them unless gone returns an error, and
// notes a state.
func (t *Store) TakePending(ctx context.Context, state byte, createdAt string, gone func() error) error {
	var taken pendingWrites
	return t.lockedWrite(ctx, &gate{}, 0, func() { taken = t.takePending() }, func(tx *Tx, s store.Session) error {
		if err := gone(); err != nil {
			return err
		}
		return tx.storePending(s, &taken, createdAt)
	}, func(bool, error, error) { taken.note(state) })
}

// Vouched reports whether a writer that opens the database now needs no sync.
func (t *Store) Vouched(ctx context.Context) (bool, error) {
	db, err := t.open(ctx, lock.Exclusive)
	if err != nil {
		return false, err
	}
	defer db.Close()
	return db.marked, nil
}

// SyncCopy exchanges how a copy is synced before it gets its name.
func SyncCopy(with func(db *bbolt.DB) error) (back func()) {
	was := syncCopy
	syncCopy = with
	return func() { syncCopy = was }
}
