package fsck

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"thread/engine"
	"thread/event"
	"thread/internal/durable"
	"thread/internal/store"
	"thread/internal/store/bolt"
	"thread/jsonlog"
	"thread/lock"
)

// FixedFile is a line file that FixLog rewrote.
type FixedFile struct {
	Path  string
	Lines int64  // in the new file; 0: there is no such file any more
	Aside string // where the old one is now, "" when there was none
}

// FixLog rewrites the files events*.jsonl that are not what they should be, from
// the database, and leaves the others as they are. A file gets the lines of the
// events after the events of the file before it, up to its own last one; so what a
// missing file held goes to the next one. What stood in its place is never deleted
// but gets the ending .bad. Pushes wait only while the newest lines are added.
//
// A crash leaves the old file or the new one, or none and the old one under its
// other name; FixLog then does the rest.
//
// FixLog returns what it has done, also with an error: ErrBusy, also when another
// one is at work, and ErrCorrupt, for a database that must be repaired first.
func FixLog(ctx context.Context, t *engine.Thread) (fixed []FixedFile, err error) {
	s := storeOf(t)
	if err := lock.Mkdir(s.Path(store.RunName)); err != nil {
		return nil, err
	}
	held, err := lock.Try(s.Path(store.RunName, ".fixlog"), lock.Exclusive)
	if errors.Is(err, lock.ErrHeld) {
		return nil, fmt.Errorf("%w: another check rewrites the log", engine.ErrBusy)
	}
	if err != nil {
		return nil, err
	}
	defer held.Close()
	t = t.WithoutRelease()
	for range 5 { // events.jsonl is rotated next to us, but not that often
		x := &logFix{t: t, s: s, ctx: ctx}
		again, err := x.run()
		fixed = append(fixed, x.fixed...)
		if err != nil || !again {
			return fixed, err
		}
	}
	return fixed, fmt.Errorf("%w: events.jsonl is rotated all the time", engine.ErrBusy)
}

type logFix struct {
	t     *engine.Thread
	s     *bolt.Store // of t
	ctx   context.Context
	m     *lineCheck
	fixed []FixedFile
}

func (x *logFix) run() (again bool, err error) {
	c := newChecker(x.t)
	if x.m, err = c.lineFiles(x.ctx); err != nil {
		return false, err
	}
	start := x.m.start
	for i, f := range x.m.files {
		if !f.bad {
			continue
		}
		if f.old {
			start.Skip = 0 // it goes aside with the rest of the file
		}
		if i < len(x.m.files)-1 {
			err = x.rotated(f)
		} else {
			again, err = x.newest(f)
		}
		if err != nil || again {
			return again, err
		}
	}
	if len(x.fixed) == 0 || start == x.m.start && start.Known {
		return false, nil
	}
	start.From, start.Known = max(start.From, 1), true
	return false, x.s.SetLogStart(x.ctx, start)
}

// rotated rewrites a rotated file.
func (x *logFix) rotated(f *lineFile) (err error) {
	w, err := x.create(f)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.discard()) }()
	if err := x.write(w, f.last); err != nil {
		return err
	}
	// A rotation must not take the name while nothing has it.
	return x.s.LockLines(x.ctx, func() error { return x.publish(w) })
}

// newest rewrites events.jsonl, to which others append. It returns true when
// that was rotated, or made, since it was checked.
func (x *logFix) newest(f *lineFile) (again bool, err error) {
	w, err := x.create(f)
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, w.discard()) }()
	if err := x.write(w, x.m.state.Head); err != nil {
		return false, err
	}
	err = x.s.ReplaceLines(x.ctx, func(tx store.Tx) (p jsonlog.Position, err error) {
		if same, err := x.sameNewest(f.path); err != nil || !same {
			again = err == nil
			return p, cmp.Or(err, errReplaced)
		}
		if err := tx.EventsAfter(w.last, w.line); err != nil {
			return p, err
		}
		// The file first: a push that finds it other than the state says looks at its
		// end and at nothing else.
		err = x.publish(w)
		return jsonlog.Position{Size: w.size, Lines: w.lines, First: w.first}, err
	})
	if again {
		return true, nil
	}
	return false, err
}

// sameNewest reports whether events.jsonl is still what was checked.
func (x *logFix) sameNewest(path string) (bool, error) {
	now, err := os.Lstat(path)
	switch {
	case err != nil && !os.IsNotExist(err):
		return false, err
	case x.m.found == nil || err != nil:
		return x.m.found == nil && err != nil, nil
	}
	return os.SameFile(x.m.found, now), nil
}

// create begins the file that is to be f.
func (x *logFix) create(f *lineFile) (*newLines, error) {
	w := &newLines{path: f.path, last: f.after}
	if err := os.Remove(w.name()); err != nil && !os.IsNotExist(err) {
		return nil, err // what an interrupted one left
	}
	var err error
	w.f, err = os.OpenFile(w.name(), os.O_CREATE|os.O_EXCL|os.O_RDWR|bolt.OpenNoFollow, bolt.FileMode)
	if err != nil {
		return nil, err
	}
	w.w = bufio.NewWriterSize(w.f, 256<<10)
	return w, nil
}

// write adds the events up to upto, and makes them durable.
func (x *logFix) write(w *newLines, upto int64) error {
	for e, err := range x.t.Events(x.ctx, engine.Query{After: w.last}) {
		if err == nil && e.ID > upto {
			break
		}
		if err != nil {
			return err
		}
		if err = w.line(&e); err != nil {
			return err
		}
	}
	return w.sync()
}

// publish gives the new file its name, and the old one another. Where there is no
// event for it there is no new file.
func (x *logFix) publish(w *newLines) error {
	if err := errors.Join(w.sync(), w.close()); err != nil {
		return err
	}
	aside, err := setAside(w.path)
	if err != nil {
		return err
	}
	if w.lines == 0 {
		x.fixed = append(x.fixed, FixedFile{w.path, w.lines, aside})
		return durable.SyncDir(x.t.Dir())
	}
	renamed, err := durable.Rename(w.name(), w.path, os.Rename)
	if renamed {
		x.fixed = append(x.fixed, FixedFile{w.path, w.lines, aside})
	}
	return err
}

// newLines is a line file while it is written next to its place.
type newLines struct {
	path string
	f    *os.File
	w    *bufio.Writer
	buf  []byte

	first, last, lines, size int64
}

func (w *newLines) name() string { return w.path + ".new" }

func (w *newLines) line(e *event.Event) (err error) {
	if w.buf, err = e.WriteLine(w.w, w.buf); err != nil {
		return err
	}
	if w.first == 0 {
		w.first = e.ID
	}
	w.last = e.ID
	w.lines++
	return nil
}

func (w *newLines) sync() error {
	if err := errors.Join(w.w.Flush(), w.f.Sync()); err != nil {
		return err
	}
	var err error
	w.size, err = w.f.Seek(0, io.SeekCurrent)
	return err
}

func (w *newLines) close() (err error) {
	if w.f != nil {
		err = w.f.Close()
		w.f = nil
	}
	return err
}

// discard ends the writing, and removes what did not get its name.
func (w *newLines) discard() error {
	err := w.close()
	if rerr := os.Remove(w.name()); rerr != nil && !os.IsNotExist(rerr) {
		err = errors.Join(err, rerr)
	}
	return err
}
