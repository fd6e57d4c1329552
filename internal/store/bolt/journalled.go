package bolt

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"

	"go.etcd.io/bbolt"

	"thread/index"
	"thread/internal/durable"
	"thread/internal/store"
	"thread/internal/store/bolt/disk"
	"thread/internal/store/bolt/journal"
	"thread/lock"
)

// # A commit is one record of the journal
//
//	push ──> Tx ──> overlay ──> events.journal   one page, one sync
//	                  │ 64 slots, or too long
//	                  └──────> events.db         the pages of all of them, two syncs
//
// A write transaction reads events.db through the overlay and writes to the overlay. Its
// commit appends the changes to events.journal. Where they do not fit, it folds: one
// transaction of bbolt takes the whole overlay, and gives the database a new epoch and
// salt, which leave the records of the journal to an earlier base.
//
// The mark in run/.synced vouches for the last record, too. Without it, a writer writes
// the last record again and syncs it before it appends.

// JournalName is the name of the journal in a thread directory.
const JournalName = "events.journal"

// baseOf returns what the journal's records continue in a database.
func baseOf(b *bbolt.Tx) (disk.Base, error) {
	meta, err := index.OpenBucket(b, nil, disk.BucketMeta)
	if meta == nil || err != nil {
		return disk.Base{}, err
	}
	return baseIn(meta)
}

func baseIn(meta *index.Bucket) (disk.Base, error) {
	v, err := index.Get(meta, disk.KeyJournal)
	if err != nil {
		return disk.Base{}, err
	}
	return disk.DecodeBase(v)
}

func newBase(epoch uint64, used bool) disk.Base {
	return disk.Base{Epoch: epoch, Salt: rand.Uint64(), Used: used}
}

// Journal is events.journal as far as it was read. The lock of events.db is held.
type Journal struct {
	journal  *journal.File // nil until it is needed
	identity os.FileInfo   // of the file
	over     *index.Overlay
	base     disk.Base
	known    bool                    // base belongs to the newest commit of events.db
	all      bool                    // of it was read under the exclusive lock, and nothing written since
	check    func(os.FileInfo) error // of the file, before it is used; nil: none
}

// database is events.db, locked and open.
type database struct {
	*bbolt.DB
	file *os.File // bbolt's

	Journal

	// A panic came out of bbolt, as damage makes it. It may have left bbolt's own
	// locks held, so that its Close would wait for ever.
	broken bool

	// Of a writer; see synced.go.
	markPath string
	mark     *os.File // open from settle to leaveMark, or nil
	synced   bool     // The newest transaction is on the disk.
	marked   bool     // The mark vouches for it.
}

// overlay returns the changes that the journal has for the database, nil where it was
// never used.
func (db *database) overlay(b *bbolt.Tx) (*index.Overlay, error) {
	base := db.base
	if !db.known {
		var err error
		if base, err = checkedBase(b); err != nil {
			return nil, err
		}
	}
	flag := os.O_RDWR
	if b.DB().IsReadOnly() {
		flag = os.O_RDONLY
	}
	over, err := db.read(db.journalPath(), flag, base, false, index.Stored(b))
	db.known = err == nil
	return over, err
}

// checkedBase is baseOf for a database that was not looked at yet.
func checkedBase(b *bbolt.Tx) (base disk.Base, err error) {
	if err := index.CheckTree(index.Root(b)); err != nil { // before the first small bucket is read
		return base, err
	}
	meta, err := index.OpenBucket(b, nil, disk.BucketMeta)
	if meta == nil || err != nil {
		return base, err
	}
	format, err := index.Get(meta, disk.KeyFormat)
	if err != nil {
		return base, err
	}
	if _, err := disk.DecodeFormat(format); err != nil {
		return base, err // a later format may have another journal
	}
	return baseIn(meta)
}

// readAll reads the journal under the exclusive lock.
func (db *database) readAll() error {
	return db.View(func(b *bbolt.Tx) error {
		_, err := db.overlay(b)
		db.all = err == nil
		return err
	})
}

// read continues to read the journal at path, of that base.
func (j *Journal) read(path string, flag int, base disk.Base, all bool, stored func(name, key []byte) ([]byte, error)) (*index.Overlay, error) {
	if !base.Used {
		j.over, j.base = nil, base
		return nil, nil
	}
	if j.journal == nil {
		if err := j.open(path, flag); err != nil {
			return nil, err
		}
	}
	if j.over == nil || j.base != base {
		j.rebase(base)
	} else if there, more := j.journal.Look(); !there {
		j.rebase(base) // an older copy was put in its place
	} else if !more && flag == os.O_RDONLY && !all {
		return j.over, nil
	}
	err := j.journal.Read(all, func(changes []byte) error { return j.over.Apply(changes, stored) })
	if errors.Is(err, journal.ErrDamaged) || errors.Is(err, journal.ErrOlder) {
		err = fmt.Errorf("%w: %s: %w", store.ErrCorrupt, JournalName, err)
	}
	return j.over, err
}

func (j *Journal) rebase(base disk.Base) {
	j.over, j.base, j.all = new(index.Overlay), base, false
	j.journal.Rebase(journal.Base{Epoch: base.Epoch, Salt: base.Salt})
}

func (j *Journal) open(path string, flag int) error {
	f, err := os.OpenFile(path, flag|OpenNoFollow|OpenNoWait, 0)
	if errors.Is(err, os.ErrNotExist) {
		dir := filepath.Dir(path)
		if _, err := os.Lstat(filepath.Join(dir, DatabaseName)); errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("%w: %s", store.ErrNotThread, dir)
		}
		return fmt.Errorf("%w: %s is missing, which may hold the newest events", store.ErrCorrupt, JournalName)
	}
	if err != nil {
		return err
	}
	if err := j.usable(f); err != nil {
		return errors.Join(err, f.Close())
	}
	return nil
}

// usable makes f the journal, if it may be used.
func (j *Journal) usable(f *os.File) error {
	if err := lock.Usable(f); err != nil {
		return err
	}
	info, err := f.Stat()
	if err == nil && j.check != nil {
		err = j.check(info)
	}
	if err != nil {
		return err
	}
	j.journal, j.identity = journal.New(f, journal.Base{}), info
	return nil
}

// Read reads the whole journal of t for a database that is read without bbolt. Record is
// its journal record, nil for none, and stored returns its values. What could be read is
// returned with an error, too.
func (j *Journal) Read(t *Store, record []byte, stored func(name, key []byte) ([]byte, error)) ([]index.Changed, error) {
	base, err := disk.DecodeBase(record)
	if err != nil {
		return nil, err
	}
	over, err := j.read(t.Path(JournalName), os.O_RDONLY, base, true, stored)
	if j.over != nil {
		over = j.over
	}
	if over == nil {
		return nil, err
	}
	return over.Changed(), err
}

// Sound returns the changes of all sound records of a journal that Read has found damaged.
// A value may be put together of parts that do not belong together: its sum says so.
func (j *Journal) Sound(stored func(name, key []byte) ([]byte, error)) []index.Changed {
	if j.journal == nil {
		return nil
	}
	over := new(index.Overlay)
	journal.Sound(j.journal.File(), func(changes []byte) { _ = over.Apply(changes, stored) })
	return over.Changed()
}

// Alone is Sound for the journal of a database that is lost. Zeros stand for what that had.
func (j *Journal) Alone(t *Store) []index.Changed {
	if err := j.open(t.Path(JournalName), os.O_RDONLY); err != nil {
		return nil
	}
	zeros := make([]byte, journal.MaxChanges)
	return j.Sound(func(_, _ []byte) ([]byte, error) { return zeros, nil })
}

// Close closes the file.
func (j *Journal) Close() {
	if j.journal != nil {
		j.journal.Close()
		j.journal = nil
	}
}

func (db *database) journalPath() string {
	return filepath.Join(filepath.Dir(db.Path()), JournalName)
}

// makeJournal makes the file before the first commit that needs it.
func (db *database) makeJournal() error {
	f, err := lock.Create(db.journalPath(), os.O_RDWR|OpenNoFollow|OpenNoWait)
	if err != nil {
		return err
	}
	if err := db.fill(f); err != nil {
		return errors.Join(err, f.Close())
	}
	return nil
}

// fill makes f an empty journal, durably.
func (db *database) fill(f *os.File) error {
	if err := lock.Usable(f); err != nil {
		return err
	}
	if err := db.likeDatabase(f); err != nil {
		return err
	}
	info, err := f.Stat()
	if err == nil {
		err = journal.Make(f)
	}
	if err != nil {
		return err
	}
	if err := errors.Join(f.Sync(), durable.SyncDir(filepath.Dir(db.Path()))); err != nil {
		return err
	}
	db.journal, db.identity = journal.New(f, journal.Base{}), info
	return nil
}

// likeDatabase gives a journal the owner, the group and the mode of events.db: any account
// that may write the one may write the other.
func (db *database) likeDatabase(f *os.File) error {
	info, err := f.Stat()
	if err != nil {
		return err
	}
	of, err := db.file.Stat()
	if err != nil {
		return err
	}
	if info.Size() > 0 && foreign(f, of) {
		return fmt.Errorf("%w: %s is another account's file", store.ErrOwner, JournalName)
	}
	return keepOwner(f, of)
}

// nextBase puts the base of the commit of b into it.
func (db *database) nextBase(b *bbolt.Tx) (next disk.Base, err error) {
	base, err := baseOf(b)
	if err != nil {
		return next, err
	}
	if db.journal == nil {
		if err := db.makeJournal(); err != nil {
			return next, err
		}
	}
	epoch := base.Epoch
	if !base.Used { // a copy, in the place of what was written for longer
		epoch = max(epoch, journal.Epoch(db.journal.File()))
	}
	next = newBase(epoch+1, true)
	return next, b.Bucket(disk.BucketMeta).Put(disk.KeyJournal, next.Encode())
}

// rolledBack ends the transaction of bbolt if there is an error.
func rolledBack(tx *Tx, err error) func(b *bbolt.Tx) (*Tx, error) {
	return func(b *bbolt.Tx) (*Tx, error) {
		if err != nil {
			_ = b.Rollback()
		}
		return tx, err
	}
}
