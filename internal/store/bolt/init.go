package bolt

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"syscall"

	"go.etcd.io/bbolt"

	"thread/index"
	"thread/internal/durable"
	"thread/internal/store"
	"thread/internal/store/bolt/disk"
	"thread/lock"
)

// CheckMount is exchanged by tests.
var CheckMount = lock.CheckMount

// checkMount returns ErrNetwork for a mount that is to be refused.
func (t *Store) checkMount() error {
	if t.AnyMount {
		return nil
	}
	return CheckMount(t.Dir)
}

// Init makes dir a thread directory, with its parents where they are missing,
// and returns a store on it. What is in dir already stays, an events.jsonl too.
// The database appears complete or not at all: a crash leaves a directory that
// Init can be run on again.
//
// Init returns ErrExists when dir has an events.db already, whatever that is,
// ErrNotDir when dir or one of its parents is a file, and ErrNetwork, having made
// nothing.
func Init(dir string, o Options) (*Store, error) {
	t, err := New(dir, o)
	if err != nil {
		return nil, err
	}
	if err := t.checkMount(); err != nil {
		return nil, err
	}
	if err := t.makeDirs(); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), t.LockTimeout)
	defer cancel()
	held, err := lock.Open(ctx, t.Path(store.RunName, initLockName), lock.Exclusive)
	if errors.Is(err, lock.ErrHeld) {
		return nil, fmt.Errorf("%w: another init is at work", store.ErrBusy)
	}
	if err != nil {
		return nil, err
	}
	defer held.Close()
	if err := held.Probe(t.Path(store.RunName, initLockName)); err != nil {
		return nil, err
	}
	if _, err := os.Lstat(t.Path(DatabaseName)); err == nil {
		return nil, fmt.Errorf("%w: %s", store.ErrExists, t.Dir)
	}
	f, err := lock.Create(t.Path("events.jsonl"), os.O_WRONLY|os.O_APPEND|OpenNoFollow|OpenNoWait)
	if err != nil {
		return nil, err
	}
	start := disk.LogStart{From: 1}
	if info, serr := f.Stat(); serr == nil {
		start.Skip = info.Size()
	}
	if err := errors.Join(lock.Usable(f), f.Close()); err != nil {
		return nil, err
	}
	// The directory's own name must be durable before there is a database in it.
	if err := durable.SyncDir(filepath.Dir(t.Dir)); err != nil {
		return nil, err
	}
	err = createDatabase(t.Path(DatabaseName), func(b *bbolt.Tx) error {
		return b.Bucket(disk.BucketMeta).Put(disk.KeyLines, start.Encode())
	})
	if err != nil {
		return nil, err
	}
	return t, nil
}

// makeDirs creates the directory, its parents, run/ and logs/.
func (t *Store) makeDirs() error {
	if _, err := os.Lstat(t.Path(DatabaseName)); err == nil {
		return fmt.Errorf("%w: %s", store.ErrExists, t.Dir)
	}
	for _, dir := range []string{t.Dir, t.Path(store.RunName), t.Path(store.LogsName)} {
		err := makeDir(dir)
		if errors.Is(err, syscall.ENOTDIR) {
			return fmt.Errorf("%w: %s", store.ErrNotDir, dir)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// beginFold begins a write transaction on events.db with the overlay folded.
func (t *Store) beginFold(db *database) (*Tx, error) {
	b, err := index.Begin(db.DB, true)
	if err != nil {
		return nil, err
	}
	if db.over != nil {
		if err := db.over.Fold(b, fillOf); err != nil {
			return nil, errors.Join(err, b.Rollback())
		}
	}
	tx, err := newTx(t, b, nil)
	if err != nil {
		return rolledBack(nil, err)(b)
	}
	if !db.over.Empty() {
		tx.dict().SetWritten()
	}
	return tx, nil
}

// fillOf returns how full the pages of a table are left.
func fillOf(name []byte) float64 {
	switch t := store.Table(name); t {
	case store.Events, store.Columns, store.SeriesByID, store.TypeBlocks, store.Pieces:
		return 1
	default:
		if !store.Reserved(t) {
			return fillOthers
		}
		return bbolt.DefaultFillPercent
	}
}

// makeDir creates a directory with its parents, 0700 whatever the umask. The names of the
// parents are durable then; the directory dir is for the caller to make so.
func makeDir(dir string) error {
	info, err := os.Stat(dir)
	if err == nil && !info.IsDir() {
		return &os.PathError{Op: "mkdir", Path: dir, Err: syscall.ENOTDIR}
	}
	if err == nil || !errors.Is(err, os.ErrNotExist) {
		return err
	}
	above := filepath.Dir(dir)
	if _, err := os.Stat(above); errors.Is(err, os.ErrNotExist) {
		if err := errors.Join(makeDir(above), durable.SyncDir(filepath.Dir(above))); err != nil {
			return err
		}
	}
	return lock.Mkdir(dir) // another process may be faster
}

// createDatabase writes an empty database, lets fill, if there is one, add to it,
// and gives it its name when it is durable. The caller holds a lock that keeps
// others from creating the same one.
func createDatabase(path string, fill func(b *bbolt.Tx) error) (err error) {
	tmp := path + ".new"
	if err := os.Remove(tmp); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err // what a crashed init left
	}
	defer func() {
		if err != nil {
			os.Remove(tmp)
		}
	}()
	db, err := bbolt.Open(tmp, FileMode, &bbolt.Options{PageSize: disk.PageBytes, NoStatistics: true,
		OpenFile: func(path string, flag int, _ os.FileMode) (*os.File, error) {
			return lock.Create(path, flag&^os.O_CREATE|os.O_EXCL|OpenNoFollow)
		}})
	if err != nil {
		return err
	}
	if err := os.Chmod(tmp, FileMode); err != nil { // a umask may take bits away
		return errors.Join(err, db.Close())
	}
	err = db.Update(func(b *bbolt.Tx) error {
		if err := createBuckets(b); err != nil || fill == nil {
			return err
		}
		return fill(b)
	})
	if cerr := db.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		return err
	}
	// bbolt syncs data; the file's size may need a full sync before the rename.
	f, err := os.OpenFile(tmp, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	err = f.Sync()
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		return err
	}
	return publish(tmp, path)
}

// createBuckets puts what every database has into an empty one.
func createBuckets(b *bbolt.Tx) error {
	for _, name := range store.FirstTables {
		if _, err := index.CreateBucket(b, nil, []byte(name)); err != nil {
			return err
		}
	}
	meta := index.Wrap(b.Bucket(disk.BucketMeta))
	if err := meta.Put(disk.KeyFormat, disk.EncodeFormat(disk.FormatVersion)); err != nil {
		return err
	}
	return meta.Put(disk.KeyState, new(disk.State).Encode())
}

// publish gives a durable file its name, in the place of what had it. The file
// is there or not when the directory cannot be synced: ErrUnknownOutcome.
func publish(tmp, path string) error {
	renamed, err := durable.Rename(tmp, path, os.Rename)
	if renamed && err != nil {
		return fmt.Errorf("%w: %w", store.ErrUnknownOutcome, err)
	}
	return err
}

// Open returns a store on the thread directory dir. See engine.Open for its errors.
func Open(dir string, o Options) (*Store, error) {
	t, err := New(dir, o)
	if err != nil {
		return nil, err
	}
	f, err := os.OpenFile(t.Path(DatabaseName), os.O_RDONLY|OpenNoFollow|OpenNoWait, 0)
	switch {
	case errors.Is(err, os.ErrNotExist), errors.Is(err, syscall.ENOTDIR):
		return nil, fmt.Errorf("%w: %s", store.ErrNotThread, t.Dir)
	case err != nil:
		return nil, err
	}
	defer f.Close()
	if err := disk.CheckMagic(f); err != nil {
		return nil, err
	}
	if err := t.checkMount(); err != nil {
		return nil, err
	}
	return t, nil
}

// table returns the bucket of a table, which may be nil in a read transaction: a table
// comes with its first use.
func (tx *Tx) table(t store.Table) (*index.Bucket, error) {
	for i := range tx.opened {
		if tx.opened[i].name == t {
			return tx.opened[i].Bucket, nil
		}
	}
	open := tx.bucket
	if t == store.Progress || t == store.Subscriptions {
		open = tx.own
	}
	b, err := open([]byte(t))
	if b != nil || err == nil && !tx.Writable() { // one that is missing stays so while no process can make it
		tx.opened = append(tx.opened, openTable{t, b})
	}
	return b, err
}

// fillOthers is how full a page of a table that is not the engine's own is left when it
// is split.
const fillOthers = 0.9

// later is table for one that is about to be written to.
func (tx *Tx) later(t store.Table) (*index.Bucket, error) {
	b, err := tx.table(t)
	if b == nil && err == nil {
		b, err = index.CreateBucket(tx.b, tx.over, []byte(t))
	}
	if b != nil && !store.Reserved(t) {
		// Most of what others keep is numbered: pages that are left half full are twice as
		// many to write.
		b.SetFill(fillOthers)
	}
	return b, err
}

// Get implements store.Records.
func (tx *Tx) Get(t store.Table, key []byte) ([]byte, error) {
	b, err := tx.table(t)
	if b == nil {
		return nil, err
	}
	return index.Get(b, key)
}

// Put implements store.Records.
func (tx *Tx) Put(t store.Table, key, value []byte) error {
	b, err := tx.later(t)
	if err != nil {
		return err
	}
	if slices.Contains(comparedTables, t) {
		if is, err := index.Get(b, key); err != nil || is != nil && bytes.Equal(is, value) {
			return err
		}
	}
	return index.Put(b, key, value)
}

// comparedTables are those in which a record is often put as it is. A transaction that
// changes nothing is not committed.
var comparedTables = []store.Table{store.Subscriptions, store.Deliveries, store.Schedules, store.LimitsTable}

// Delete implements store.Records.
func (tx *Tx) Delete(t store.Table, key []byte) error {
	b, err := tx.table(t)
	if b == nil {
		return err
	}
	return index.Delete(b, key)
}

// Ascend implements store.Records.
func (tx *Tx) Ascend(t store.Table, from []byte, fn func(key, value []byte) (bool, error)) error {
	b, err := tx.table(t)
	if b == nil {
		return err
	}
	return index.Range(b, from, records(t, fn))
}

// Descend implements store.Records.
func (tx *Tx) Descend(t store.Table, before []byte, fn func(key, value []byte) (bool, error)) error {
	b, err := tx.table(t)
	if b == nil {
		return err
	}
	return index.RangeDown(b, before, records(t, fn))
}

// records is fn without the buckets that older versions let other packages make in
// tables of theirs. In one of our own they are damage, which fn will find.
func records(t store.Table, fn func(key, value []byte) (bool, error)) func(key, value []byte) (bool, error) {
	return func(k, v []byte) (bool, error) {
		if v == nil && !store.Reserved(t) {
			return true, nil
		}
		return fn(k, v)
	}
}

// Sequence implements store.Records.
func (tx *Tx) Sequence(t store.Table) (uint64, error) {
	b, err := tx.table(t)
	if b == nil {
		return 0, err
	}
	return b.Sequence(), nil
}

// SetSequence implements store.Records.
func (tx *Tx) SetSequence(t store.Table, n uint64) error {
	b, err := tx.later(t)
	if err != nil || b.Sequence() == n {
		return err // it would write the table's root again
	}
	return b.SetSequence(n)
}

// Drop implements store.Records.
func (tx *Tx) Drop(t store.Table) error {
	if b, err := tx.table(t); b == nil {
		return err
	}
	tx.opened = slices.DeleteFunc(tx.opened, func(o openTable) bool { return o.name == t })
	return index.DropBucket(tx.b, tx.over, []byte(t))
}

// missing returns dir and its parents that do not exist, the outermost
// first.
func missing(dir string) (dirs []string) {
	for ; ; dir = filepath.Dir(dir) {
		if _, err := os.Lstat(dir); !errors.Is(err, os.ErrNotExist) {
			slices.Reverse(dirs)
			return dirs
		}
		dirs = append(dirs, dir)
	}
}
