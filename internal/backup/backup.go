// Package backup writes copies of a thread directory, with its history, and makes
// thread directories of them again.
//
// A backup is itself a thread directory, DIR/<number>: events.db, and history/events.db
// where there is one. Numbers rise by one from 000001 on, whatever the clock says. It has
// its name when it was checked; until then it is DIR/.backup-unfinished. Every backup is
// whole. What the one before has is taken from there, as long as the thread's database is
// the same file; it is checked again with the rest.
package backup

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"

	"thread/engine"
	"thread/internal/durable"
	"thread/internal/fsck"
	"thread/internal/store"
	"thread/internal/store/bolt"
	"thread/lock"
)

const (
	unfinished  = ".backup-unfinished"
	lockName    = "backup.lock"
	historyName = "history"
	momentName  = "copied.json" // bolt.Moment, next to an events.db
)

var (
	// ErrNone says that a directory has no backup.
	ErrNone = errors.New("there is no backup")
	// ErrFaults says that a copy has faults: what was copied has them, or the medium.
	ErrFaults = errors.New("the copy has faults")
)

// Done is what Create and Restore have done.
type Done struct {
	Dir     string // of the copy
	Events  int64
	Copied  int64  // of them, those that were read from the thread, not from the backup before
	Digest  string // of the thread in it, as check prints it
	Removed int    // older backups
	// History says why the history is not part of the copy: it is damaged. Older backups
	// are kept then.
	History error
	Consumers
}

// Create writes a backup of the thread directory from into dir, which is made, and
// checks it. It then removes all but the newest keep backups, none when keep is 0. The
// thread is used meanwhile: others wait as for a compaction. The thread and its history
// are each copied as they are at one moment, the thread first. A crash leaves earlier
// backups as they were.
func Create(ctx context.Context, from, dir string, keep int) (d Done, err error) {
	t, err := engine.Open(from)
	if err != nil {
		return d, err
	}
	defer t.Close()
	if err := durable.MkdirAll(dir, 0o700); err != nil {
		return d, err
	}
	held, err := lock.Try(filepath.Join(dir, lockName), lock.Exclusive)
	if errors.Is(err, lock.ErrHeld) {
		return d, fmt.Errorf("%w: another backup is being written into %s", store.ErrBusy, dir)
	}
	if err != nil {
		return d, err
	}
	defer held.Close()
	before, err := List(dir)
	if err != nil {
		return d, err
	}
	tmp := filepath.Join(dir, unfinished)
	if err := os.RemoveAll(tmp); err != nil { // of one that was killed
		return d, err
	}
	defer os.RemoveAll(tmp)
	base := ""
	if len(before) > 0 {
		base = before[len(before)-1]
	}
	d, err = create(ctx, t, base, tmp)
	if errors.Is(err, ErrFaults) && base != "" { // perhaps the backup before has them
		if err = os.RemoveAll(tmp); err == nil {
			d, err = create(ctx, t, "", tmp)
		}
	}
	if err != nil {
		return d, err
	}
	number, err := free(dir)
	if err != nil {
		return d, err
	}
	d.Dir = filepath.Join(dir, nameOf(number))
	if err := rename(tmp, d.Dir); err != nil {
		return d, err
	}
	for keep > 0 && len(before) > keep-1 && d.History == nil {
		if err := remove(before[0], tmp); err != nil {
			return d, fmt.Errorf("the backup is written, but an older one was not removed: %w", err)
		}
		before = before[1:]
		d.Removed++
	}
	return d, nil
}

// remove takes the name from a backup before it removes what is in it: none is ever half
// of one.
func remove(dir, tmp string) error {
	if err := os.Rename(dir, tmp); err != nil {
		return err
	}
	if err := durable.SyncDir(filepath.Dir(dir)); err != nil {
		return err
	}
	return os.RemoveAll(tmp)
}

// List returns the backups in dir, the oldest first.
func List(dir string) (dirs []string, err error) {
	entries, err := os.ReadDir(dir)
	for _, e := range entries {
		if !e.IsDir() || numberOf(e.Name()) == 0 {
			continue
		}
		path := filepath.Join(dir, e.Name())
		has, eerr := exists(path)
		if eerr != nil {
			return nil, eerr
		}
		if has {
			dirs = append(dirs, path)
		}
	}
	slices.SortFunc(dirs, func(a, b string) int { return numberOf(a) - numberOf(b) })
	return dirs, err
}

// exists is engine.Exists where what cannot be looked at is not taken for missing.
func exists(dir string) (bool, error) {
	_, err := os.Stat(filepath.Join(dir, bolt.DatabaseName))
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
		return false, nil
	}
	return err == nil, err
}

// free returns the number of the next backup: above every number in dir, be it a
// backup or not.
func free(dir string) (int, error) {
	number := 1
	entries, err := os.ReadDir(dir)
	for _, e := range entries {
		number = max(number, numberOf(e.Name())+1)
	}
	if err == nil && numberOf(nameOf(number)) == 0 {
		err = fmt.Errorf("%w: %s has the last number that there is", os.ErrExist, dir)
	}
	return number, err
}

// numberOf returns the number of a backup, 0 for a name that Create does not give: a
// thread of the user's may be called 2026.
func numberOf(dir string) int {
	name := filepath.Base(dir)
	n, err := strconv.ParseUint(name, 10, 30) // one more is an int everywhere
	if err != nil || name != nameOf(int(n)) {
		return 0
	}
	return int(n)
}

func nameOf(number int) string { return fmt.Sprintf("%06d", number) }

// create makes the directory to of the thread and its history, from what the backup base
// has of them where it can, and checks it.
func create(ctx context.Context, t *engine.Thread, base, to string) (d Done, err error) {
	copied, err := copyThread(ctx, t, base, to)
	if err != nil {
		return d, err
	}
	if d, err = check(ctx, to); err != nil {
		return d, err
	}
	d.Copied = copied
	from := filepath.Join(t.Dir(), historyName)
	has, err := exists(from)
	if err != nil || !has {
		return d, err
	}
	into := filepath.Join(to, historyName)
	if base != "" {
		base = filepath.Join(base, historyName)
	}
	err = copyHistory(ctx, from, base, into)
	if errors.Is(err, ErrFaults) && base != "" { // perhaps the backup before has them
		if err = os.RemoveAll(into); err == nil {
			err = copyHistory(ctx, from, "", into)
		}
	}
	if !damaged(err) {
		return d, err
	}
	d.History = err
	return d, os.RemoveAll(into)
}

// damaged reports whether an error is about what was copied, not about the copying.
func damaged(err error) bool {
	for _, is := range []error{ErrFaults, store.ErrCorrupt, store.ErrNotDatabase, store.ErrEmpty, store.ErrSQLite} {
		if errors.Is(err, is) {
			return true
		}
	}
	return false
}

// copyHistory copies the history of a thread, and checks the copy.
func copyHistory(ctx context.Context, from, base, to string) error {
	h, err := engine.Open(from)
	if err != nil {
		return err
	}
	defer h.Close()
	if _, err := copyThread(ctx, h, base, to); err != nil {
		return err
	}
	_, err = check(ctx, to)
	return err
}

// copyThread copies a thread and notes when. It returns how many events it read.
func copyThread(ctx context.Context, t *engine.Thread, base, to string) (copied int64, err error) {
	if err := os.Mkdir(to, 0o700); err != nil {
		return 0, err
	}
	s, ok := t.Store().(*bolt.Store)
	if !ok {
		return 0, errors.ErrUnsupported
	}
	o := bolt.CopyOptions{To: filepath.Join(to, bolt.DatabaseName), Identity: Identity}
	if base != "" {
		text, err := lock.ReadFile(filepath.Join(base, momentName))
		if err == nil && json.Unmarshal(text, &o.Since) == nil && o.Since.File != "" {
			o.Base = filepath.Join(base, bolt.DatabaseName)
		}
	}
	m, copied, err := s.CopyTo(ctx, o)
	if err != nil {
		return 0, err
	}
	text, err := json.Marshal(madeOf{m, t.Dir()})
	if err != nil {
		return 0, err
	}
	return copied, writeDurably(filepath.Join(to, momentName), append(text, '\n'))
}

// madeOf is what a backup says of the thread that it was made of.
type madeOf struct {
	bolt.Moment
	Dir string `json:"dir"`
}

func writeDurably(path string, text []byte) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, bolt.FileMode)
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

// check checks a copy, without the history in it.
func check(ctx context.Context, dir string) (d Done, err error) {
	t, err := engine.Open(dir)
	if err != nil {
		return d, err
	}
	defer t.Close()
	r, err := fsck.Check(ctx, t)
	if err != nil {
		return d, err
	}
	if !r.DatabaseSound() {
		return d, fmt.Errorf("%w: %s: %s", ErrFaults, r.Faults[0].Place, r.Faults[0].What)
	}
	return Done{Dir: dir, Events: r.Events, Digest: r.Digest}, nil
}

// rename gives a directory whose files are durable its name, which is free.
func rename(from, to string) error {
	h := filepath.Join(from, historyName)
	has, err := exists(h)
	if err == nil && has {
		err = durable.SyncDir(h)
	}
	if err != nil {
		return err
	}
	if err := durable.SyncDir(from); err != nil {
		return err
	}
	if err := os.Rename(from, to); err != nil {
		return err
	}
	if err := durable.NamedDir(to); err != nil {
		return fmt.Errorf("%w: %w", store.ErrUnknownOutcome, err)
	}
	return nil
}

// copyFile copies a database that no process writes to: where one does, the check of the
// copy finds it.
func copyFile(ctx context.Context, from, to string) error {
	in, err := os.OpenFile(from, os.O_RDONLY|lock.NoFollow|lock.NoWait, 0)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, bolt.FileMode)
	if err != nil {
		return err
	}
	return errors.Join(durable.Copy(ctx, out, in), out.Sync(), out.Close())
}
