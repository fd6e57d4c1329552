package compat

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"thread/engine"
	"thread/event"
	"thread/filter"
	"thread/internal/durable"
	"thread/internal/store"
	"thread/internal/store/bolt"
	"thread/internal/target"
)

// Import makes a thread out of the SQLite thread directory src. The source is
// read in one transaction and stays as it is; in place it is kept under the name
// events.sqlite, as a single file, and the new database takes its name in one
// step when it is complete and durable. An import that was interrupted leaves
// nothing visible and can be run again.
//
// Import returns ErrNotSQLite, ErrBadRows with a Report that lists them,
// ErrInUse, ErrNotEmpty, ErrNoSQLite, target.ErrInThread, engine.ErrBusy and
// engine.ErrNotDir.
func Import(ctx context.Context, src string, o ImportOptions) (Report, error) {
	if !Available {
		return Report{}, ErrNoSQLite
	}
	src, err := filepath.Abs(src)
	if err != nil {
		return Report{}, err
	}
	if o.To == "" {
		if o.step == nil {
			o.step = func(string) {}
		}
		return importInPlace(ctx, src, o)
	}
	if err := target.Outside(o.To); err != nil {
		return Report{}, err
	}
	s, err := openSource(ctx, filepath.Join(src, databaseName))
	if err != nil {
		return Report{}, err
	}
	defer s.close()
	if err := checkEmpty(o.To); err != nil {
		return Report{}, err
	}
	dst, err := bolt.StartRestore(o.To, false)
	if err != nil {
		return Report{}, err
	}
	defer dst.Close()
	report, err := convert(ctx, s.conn, dst, o)
	if err == nil {
		err = dst.Publish()
	}
	return report, errors.Join(err, dst.Close())
}

// checkEmpty returns ErrNotEmpty for anything but a missing or empty directory, or
// one with nothing but what an interrupted import or export left.
func checkEmpty(dir string) error {
	entries, err := os.ReadDir(dir)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return nil
	case err != nil:
		if info, serr := os.Stat(dir); serr == nil && !info.IsDir() {
			return fmt.Errorf("%w: %s", engine.ErrNotDir, dir)
		}
		return err
	case len(entries) > 0 && !interrupted(entries):
		return fmt.Errorf("%s is %w", dir, ErrNotEmpty)
	}
	return nil
}

// interrupted reports whether a directory holds nothing but what is written next to
// an unfinished database. Lines alone, without one, are another process's.
func interrupted(entries []os.DirEntry) bool {
	unfinished, lines := false, false
	for _, e := range entries {
		switch name := e.Name(); name {
		case "run", "logs":
		case "events.jsonl":
			lines = true
		case "events.jsonl.new", databaseName + ".new.new", databaseName + ".new", databaseName + ".new-wal", databaseName + ".new-shm", databaseName + ".new-journal":
			unfinished = true
		default:
			return false
		}
	}
	return unfinished || !lines
}

// importInPlace keeps other programs out of the SQLite file from the first read
// to the last step, so that nothing is written into a file that no process will read
// again.
func importInPlace(ctx context.Context, dir string, o ImportOptions) (report Report, err error) {
	path, keep := filepath.Join(dir, databaseName), filepath.Join(dir, sqliteName)
	was, err := os.Lstat(path)
	kept, kerr := os.Lstat(keep)
	switch {
	case errors.Is(err, os.ErrNotExist) && kerr == nil:
		// Interrupted between the two renames of a file system without hard links.
		path = keep
	case err == nil && kerr == nil && !os.SameFile(was, kept):
		if err := checkSource(path); err != nil {
			return report, err
		}
		return report, fmt.Errorf("%s is in the way: %w", keep, ErrNotEmpty)
	}
	if err := checkSource(path); err != nil {
		return report, err
	}
	// Before SQLite, which has only numbers for a directory that cannot be written.
	dst, err := bolt.StartRestore(dir, true)
	if err != nil {
		return report, err
	}
	defer dst.Close()
	s, err := openExclusive(ctx, path)
	if err != nil {
		return report, err
	}
	defer s.close()
	if report, err = convert(ctx, s.conn, dst, o); err != nil {
		return report, errors.Join(err, dst.Close())
	}
	o.step("finished")
	// Without a WAL the file is whole by itself. And a program that has opened it
	// meanwhile and waits for the lock finds it moved and is told so (SQLite's
	// SQLITE_READONLY_DBMOVED, which WAL mode does not have), so that nothing gets
	// lost.
	for _, sql := range []string{"COMMIT", "PRAGMA journal_mode=DELETE"} {
		if _, err := s.conn.ExecContext(ctx, sql); err != nil {
			return report, inUse(err)
		}
	}
	o.step("whole")
	if path != keep {
		err := os.Link(path, keep)
		if err != nil && !errors.Is(err, os.ErrExist) {
			_, err = durable.Rename(path, keep, target.Rename) // no hard links here; see above
		}
		if err != nil && !errors.Is(err, os.ErrExist) {
			return report, err
		}
	}
	o.step("kept")
	if err := dst.Publish(); err != nil {
		return report, err
	}
	o.step("published")
	err = s.close()
	for _, suffix := range []string{"-wal", "-shm", "-journal"} {
		os.Remove(filepath.Join(dir, databaseName) + suffix) // SQLite's, and empty
	}
	return report, errors.Join(err, dst.Close())
}

// convert builds the thread and makes it durable, all but its name.
func convert(ctx context.Context, q querier, dst *bolt.Restore, o ImportOptions) (r Report, err error) {
	keep, hasExtras, err := checkSchema(ctx, q, &r)
	if err != nil {
		return r, err
	}
	var x extras
	if hasExtras {
		if x, err = readExtras(ctx, q, &r); err != nil {
			return r, err
		}
	}
	if err := copyEvents(ctx, q, dst, &r, o); err != nil {
		return r, err
	}
	r.Head = dst.Head()
	if r.LastID, err = readCounter(ctx, q, &r); err != nil {
		return r, err
	}
	r.LastID = max(r.LastID, r.Head)
	if err := copyConsumers(ctx, q, dst, &r, x); err != nil {
		return r, err
	}
	if r.FaultCount > 0 && !o.SkipBadRows {
		return r, ErrBadRows
	}
	if err := keepForExport(ctx, q, dst, keep); err != nil {
		return r, err
	}
	for _, e := range x.buckets {
		if err := dst.Extra(e); err != nil {
			return r, err
		}
	}
	return r, dst.Finish(r.LastID, x.pruned)
}

// copyEvents reads in one goroutine and writes in this one.
func copyEvents(ctx context.Context, q querier, dst *bolt.Restore, r *Report, o ImportOptions) error {
	var total int64
	if o.Progress != nil {
		if err := q.QueryRowContext(ctx, `SELECT count(*) FROM events`).Scan(&total); err != nil {
			return err
		}
	}
	ctx, stop := context.WithCancelCause(ctx)
	batches := make(chan []event.Event, 2)
	read := make(chan error, 1)
	go func() {
		defer close(batches)
		read <- readEvents(ctx, q, r, batches)
	}()
	var err error
	for batch := range batches {
		for i := 0; i < len(batch) && err == nil; i++ {
			if err = dst.Event(&batch[i]); err != nil {
				stop(err)
			}
			r.Events++
		}
		if o.Progress != nil {
			o.Progress(r.Events, total)
		}
	}
	rerr := <-read
	stop(nil)
	if err != nil {
		return err
	}
	return rerr
}

func copyConsumers(ctx context.Context, q querier, dst *bolt.Restore, r *Report, x extras) error {
	subs, err := readSubscriptions(ctx, q, r)
	if err != nil {
		return err
	}
	for i, s := range subs {
		// The rowid says the order. One below 1, which SQLite never chooses, gives
		// all of them their rank instead.
		ordinal := uint64(i + 1)
		if subs[0].rowid > 0 {
			ordinal = uint64(s.rowid)
		}
		err := dst.Subscription(s.Subscription, ordinal, x.options[s.Consumer])
		if errors.Is(err, engine.ErrCorrupt) {
			r.fault(extraTable, s.Consumer, "options: %v", err)
			err = dst.Subscription(s.Subscription, ordinal, nil)
		}
		if err != nil {
			return err
		}
		r.Subscriptions++
		if _, err := filter.Compile(s.Where()); err != nil {
			r.BadFilters = append(r.BadFilters, BadFilter{s.Consumer, s.Where(), err})
		}
	}
	list, err := readProgress(ctx, q, r)
	if err != nil {
		return err
	}
	for _, p := range list {
		// What was acked before it existed is not read yet (T-40).
		p.Newest = r.Head
		if b := x.progress[p.Consumer]; b != nil && fromBE(b, 0) == p.LastAcked {
			p.Newest = fromBE(b, 1)
		}
		if err := dst.Progress(p.Consumer, p.ProgressRecord); err != nil {
			return err
		}
		if err := dst.Extra(store.Extra{Bucket: []string{keptBucket, keptProgress}, Key: []byte(p.Consumer), Value: be(p.rowid)}); err != nil {
			return err
		}
		r.Consumers++
	}
	return nil
}

func keepForExport(ctx context.Context, q querier, dst *bolt.Restore, objects []object) error {
	for i, o := range objects {
		if err := dst.Extra(store.Extra{Bucket: []string{keptBucket, keptSchema}, Key: be(int64(i)), Value: o.encode()}); err != nil {
			return err
		}
	}
	for _, name := range pragmas {
		var n int64
		if err := q.QueryRowContext(ctx, "PRAGMA "+name).Scan(&n); err != nil {
			return err
		}
		if err := dst.Extra(store.Extra{Bucket: []string{keptBucket, keptPragma}, Key: []byte(name), Value: be(n)}); err != nil {
			return err
		}
	}
	return nil
}
