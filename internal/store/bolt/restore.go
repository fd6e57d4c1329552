package bolt

import (
	"bufio"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"

	"go.etcd.io/bbolt"

	"thread/event"
	"thread/index"
	"thread/internal/durable"
	"thread/internal/store"
	"thread/internal/store/bolt/disk"
	"thread/internal/target"
	"thread/jsonlog"
	"thread/lock"
)

// Restore builds a thread out of events that have ids and times already, in
// bounded memory and next to the directory's present database: nothing of it is
// visible before Publish. It is used by one goroutine, in this order: Event,
// Subscription, Progress and Extra in any order, then Finish, Publish, and in any
// case Close.
type Restore struct {
	t    *Store
	held *lock.File
	made []string // what StartRestore created, parents first
	tmp  string
	db   *bbolt.DB
	tx   *Tx
	n    int // puts in tx
	size int // and their bytes
	done bool

	replace   bool // there is an events.db, of another kind
	linesOff  bool // no events.jsonl is to be written
	lines     bool // linesName is to be events.jsonl
	published bool
}

// StartRestore begins to build the thread directory dir, which is created with
// its parents where it is missing. With replace, the directory has an events.db
// of another kind already, and Publish puts the new one in its place; without, an
// events.db there is ErrExists.
//
// StartRestore returns ErrNotDir, ErrNetwork, and ErrBusy when another process creates or
// restores a thread in dir.
func StartRestore(dir string, replace bool) (r *Restore, err error) {
	t, err := New(dir, Options{})
	if err != nil {
		return nil, err
	}
	r = &Restore{t: t, tmp: t.Path(DatabaseName + ".new"), replace: replace}
	defer func() {
		if err != nil {
			err = errors.Join(err, r.Close())
		}
	}()
	r.made = missing(t.Dir)
	for _, d := range []string{t.Path(store.RunName), t.Path(store.LogsName), t.Path("events.jsonl")} {
		if _, err := os.Lstat(d); errors.Is(err, os.ErrNotExist) {
			r.made = append(r.made, d)
		}
	}
	if err := CheckMount(t.Dir); err != nil {
		r.made = nil
		return r, err
	}
	if replace {
		if err := os.MkdirAll(t.Path(store.RunName), DirMode); err != nil {
			return r, err
		}
	} else if err := t.makeDirs(); err != nil {
		r.made = nil
		return r, err
	}
	if r.held, err = lock.Try(t.Path(store.RunName, initLockName), lock.Exclusive); err != nil {
		r.made = nil
		if errors.Is(err, lock.ErrHeld) {
			err = fmt.Errorf("%w: another init or import is at work", store.ErrBusy)
		}
		return r, err
	}
	if _, err := os.Lstat(t.Path(DatabaseName)); err == nil && !replace {
		return r, fmt.Errorf("%w: %s", store.ErrExists, t.Dir)
	}
	for _, name := range []string{r.tmp, r.linesName()} { // what an interrupted one left
		if err := os.Remove(name); err != nil && !errors.Is(err, os.ErrNotExist) {
			return r, err
		}
	}
	if err := createDatabase(r.tmp, nil); err != nil {
		return r, err
	}
	// Nothing is synced before all is there.
	r.db, err = bbolt.Open(r.tmp, FileMode, &bbolt.Options{
		NoStatistics: true, FreelistType: bbolt.FreelistMapType, NoSync: true, NoGrowSync: true,
	})
	if err != nil {
		return r, err
	}
	r.db.AllocSize = growBytes
	return r, r.begin()
}

func (r *Restore) begin() error {
	b, err := index.Begin(r.db, true)
	if err != nil {
		return err
	}
	tx, err := newTx(r.t, b, nil)
	if err != nil {
		b.Rollback()
		return err
	}
	if r.tx != nil {
		tx.tail = r.tx.tail
		tx.dict().SetFresh(r.tx.dict().Fresh())
	}
	tx.goesOn = true
	r.tx, r.n, r.size = tx, 0, 0
	return nil
}

// wrote counts a put into the transaction and starts the next one when it is
// full.
func (r *Restore) wrote(bytes int) error {
	r.n++
	r.size += bytes
	if r.n < MaxGroup && r.size < maxGroupBytes/4 {
		return nil
	}
	if err := r.commit(); err != nil {
		return err
	}
	return r.begin()
}

func (r *Restore) commit() error {
	err := r.tx.saveState()
	if err != nil {
		return err
	}
	if err = r.tx.b.Commit(); err != nil {
		return err
	}
	return disk.CheckSizeOf(r.tmp)
}

// Event stores an event as it is: its text need not be valid UTF-8 nor within
// the bounds of a push. Ids are positive and rise; otherwise Event returns
// ErrInvalid.
func (r *Restore) Event(e *event.Event) error {
	if e.ID <= r.tx.st.Head {
		return store.Invalidf("event id %d after %d", e.ID, r.tx.st.Head)
	}
	if err := r.tx.insert(e); err != nil {
		return err
	}
	return r.wrote(len(e.Content) + 64)
}

// Subscription stores a subscription with its filter, whether that is one or
// not. Ordinal puts it in its place among the others: it is positive and unique.
// Options is what store.Subscription.Options returned, or nil. An empty or overlong
// consumer is ErrInvalid, and so is one that was stored before.
func (r *Restore) Subscription(s store.Subscription, ordinal uint64, options []byte) error {
	if err := checkName(s.Consumer); err != nil {
		return err
	}
	key := store.ConsumerKey(s.Consumer)
	subscriptions, err := r.tx.table(store.Subscriptions)
	if err != nil {
		return err
	}
	if ordinal == 0 || subscriptions.Get(key) != nil {
		return store.Invalidf("subscription %q", s.Consumer)
	}
	if options != nil {
		o, err := store.DecodeSubscription(key, options)
		if err != nil {
			return err
		}
		o.Handler, o.Filter = s.Handler, s.Filter
		s = *o
	}
	s.Ordinal = ordinal
	if ordinal > subscriptions.Sequence() {
		if err := subscriptions.SetSequence(ordinal); err != nil {
			return err
		}
	}
	return errors.Join(subscriptions.Put(key, s.Encode()), r.wrote(len(s.Handler)))
}

func checkName(consumer string) error {
	if consumer == "" || len(consumer) > event.MaxNameBytes {
		return store.Invalidf("a consumer's id of %d bytes", len(consumer))
	}
	return nil
}

// Progress stores how far a consumer is. It need not be subscribed. An empty or
// overlong consumer is ErrInvalid.
func (r *Restore) Progress(consumer string, p store.ProgressRecord) error {
	if err := checkName(consumer); err != nil {
		return err
	}
	key := store.ConsumerKey(consumer)
	return errors.Join(r.tx.Put(store.Progress, key, p.Encode(key)), r.wrote(len(p.UpdatedAt)))
}

// Extra stores an entry of a bucket that Snapshot carried.
func (r *Restore) Extra(x store.Extra) error {
	if len(x.Bucket) == 0 {
		return store.Invalidf("an entry without a bucket")
	}
	if !extra(x.Bucket[0]) {
		return store.Invalidf("bucket %q is not free", x.Bucket[0])
	}
	var path [][]byte
	for _, name := range x.Bucket {
		path = append(path, []byte(name))
	}
	b, err := index.CreatePath(r.tx.b, path)
	if err != nil {
		return err
	}
	if x.Key == nil {
		return b.SetSequence(x.Sequence)
	}
	return errors.Join(b.Put(x.Key, x.Value), r.wrote(len(x.Key)+len(x.Value)))
}

// Head returns the id of the newest event so far.
func (r *Restore) Head() int64 { return r.tx.st.Head }

// Finish makes the database durable under its temporary name. The next id is
// lastID + 1, or follows the newest event if that is above; pruned is how many
// events were stored once and are not here any more. The newest 10,000 events are written
// to events.jsonl unless there is that file.
func (r *Restore) Finish(lastID, pruned int64) error {
	if pruned < 0 {
		return store.Invalidf("a negative number of pruned events")
	}
	st := &r.tx.st
	st.LastID, st.Count, r.tx.changed = max(lastID, st.Head), st.Count+pruned, true
	r.tx.goesOn = false
	if err := r.writeLines(); err != nil {
		return err
	}
	if err := r.commit(); err != nil {
		return err
	}
	r.tx = nil
	db := r.db
	r.db = nil
	if err := errors.Join(db.Sync(), db.Close()); err != nil {
		return err
	}
	f, err := os.OpenFile(r.tmp, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	err = errors.Join(f.Sync(), f.Close())
	r.done = err == nil
	return err
}

// SetLinesOff makes Finish write no events.jsonl, and pushes no lines, if off is set.
func (r *Restore) SetLinesOff(off bool) { r.linesOff = off }

// writeLines writes what is to be events.jsonl, under a temporary name: of an
// interrupted restore a part of the lines would stay, and be taken for a file that
// was there before. The database knows nothing of it, so that the next push adopts
// it.
func (r *Restore) writeLines() error {
	if r.linesOff {
		return r.startLines(disk.LogStart{From: math.MaxInt64})
	}
	if info, err := os.Lstat(r.t.Path("events.jsonl")); err == nil {
		return r.startLines(disk.LogStart{From: r.Head() + 1, Skip: info.Size()})
	}
	after, err := r.tx.BeforeNewest(jsonlog.MaxLines)
	if err != nil {
		return err
	}
	err = r.startLines(disk.LogStart{From: after + 1})
	if err != nil {
		return err
	}
	file, err := os.OpenFile(r.linesName(), os.O_CREATE|os.O_EXCL|os.O_WRONLY|OpenNoFollow, FileMode)
	if err != nil {
		return err
	}
	if err := lock.Usable(file); err != nil {
		return errors.Join(err, file.Close())
	}
	w := bufio.NewWriterSize(file, 256<<10)
	var line []byte
	err = r.tx.EventsAfter(after, func(e *event.Event) error {
		var err error
		line, err = e.WriteLine(w, line)
		return err
	})
	if err == nil {
		err = w.Flush()
	}
	if err == nil {
		err = file.Sync()
	}
	if err = errors.Join(err, file.Close()); err == nil {
		r.lines = true
	}
	return err
}

func (r *Restore) startLines(s disk.LogStart) error {
	s.From = max(s.From, 1) // there is no id after the largest
	return r.tx.meta.Put(disk.KeyLines, s.Encode())
}

func (r *Restore) linesName() string { return r.t.Path("events.jsonl.new") }

// Publish gives the finished database its name, in one step and durably. After
// ErrUnknownOutcome it has its name, and may lose it in a loss of power.
func (r *Restore) Publish() error {
	if !r.done {
		return store.Invalidf("Publish before Finish")
	}
	if r.lines {
		// Made durable after the database has its name, not before: of a restore that is
		// killed in between, the lines alone would be in the way of the next one.
		if err := target.Rename(r.linesName(), r.t.Path("events.jsonl")); err != nil {
			return err
		}
	}
	rename := target.Rename // the lock keeps only programs of ours away
	if r.replace {
		rename = os.Rename
	}
	renamed, err := durable.Rename(r.tmp, r.t.Path(DatabaseName), rename)
	if !renamed {
		return err
	}
	r.made, r.published = nil, true
	if r.lines {
		err = errors.Join(err, durable.Named(r.t.Path("events.jsonl")))
	}
	err = errors.Join(err, os.MkdirAll(r.t.Path(store.LogsName), DirMode), durable.SyncDir(r.t.Dir), durable.SyncDir(filepath.Dir(r.t.Dir)))
	if err != nil {
		return fmt.Errorf("%w: %w", store.ErrUnknownOutcome, err)
	}
	return nil
}

// Close ends the restore. Without a Publish before, everything that it made is
// removed again.
func (r *Restore) Close() error {
	var errs []error
	if r.db != nil {
		if r.tx != nil {
			r.tx.b.Rollback()
		}
		errs = append(errs, r.db.Close())
		r.db = nil
	}
	if r.held != nil {
		for _, name := range []string{r.tmp, r.linesName()} {
			if err := os.Remove(name); err != nil && !errors.Is(err, os.ErrNotExist) {
				errs = append(errs, err)
			}
		}
		if len(r.made) > 0 {
			os.Remove(r.t.Path(store.RunName, initLockName))
		}
		errs = append(errs, r.held.Close())
		r.held = nil
	}
	if r.published { // durably, whatever becomes of the lock
		return nil
	}
	for i := len(r.made) - 1; i >= 0; i-- {
		os.Remove(r.made[i]) // a directory that another process uses by now stays
	}
	r.made = nil
	return errors.Join(errs...)
}
