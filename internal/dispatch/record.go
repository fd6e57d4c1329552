package dispatch

import (
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"

	"thread/lock"
)

// record is what is known of a run to the process that comes after its supervisor: the
// content of logs/handlers/<c>.run. The supervisor holds the file's lock for as long
// as it has the consumer's, and empties the file when the handler has ended. It is
// no part of run/, which may be deleted while the handler runs: who finds the lock
// of this file held, or a run in it, knows of a handler that no lock in run/ tells of.
type record struct {
	note
	Consumer string `json:"consumer"`
	From     int64  `json:"from"`             // progress at the start
	First    int64  `json:"first,omitempty"`  // the first unread event at the start
	Popped   string `json:"popped,omitempty"` // when the consumer had popped or acked last, at the start
	Log      int64  `json:"log,omitempty"`    // where in the log what it prints begins
	PID      int    `json:"pid,omitempty"`    // the handler's first process; 0 until it is known
	Began    uint64 `json:"began,omitempty"`  // when that was started, in the system's own count: tells it from another one of its number
	Pipe     uint64 `json:"pipe,omitempty"`   // the inode of what it prints into
	// Manual says that it is not a handler but a process that has the ConsumerLock: what is
	// left of it is ended and counts as no run.
	Manual bool `json:"turn,omitempty"`
}

func (r *dispatcher) recordPath(consumer string) string {
	return filepath.Join(r.t.Dir(), "logs", "handlers", filepath.Base(r.path(consumer, ".run")))
}

// tryRecord takes the lock of the consumer's record, or returns lock.ErrHeld.
func (r *dispatcher) tryRecord(consumer string) (*lock.File, error) {
	path := r.recordPath(consumer)
	l, err := lock.Try(path, lock.Exclusive)
	if errors.Is(err, os.ErrNotExist) {
		if err := r.makeOutputDir(); err != nil {
			return nil, err
		}
		l, err = lock.Try(path, lock.Exclusive)
	}
	return l, err
}

// makeOutputDir makes logs/handlers where it is gone, but not the thread's directory.
func (r *dispatcher) makeOutputDir() error {
	logs := filepath.Join(r.t.Dir(), "logs")
	if err := lock.Mkdir(logs); err != nil {
		return err
	}
	return lock.Mkdir(filepath.Join(logs, "handlers"))
}

// readRecord returns the run that the held file tells of, nil for none.
func readRecord(l *lock.File) *record {
	var rec record
	in := io.NewSectionReader(l.File(), 0, 1<<16)
	if json.NewDecoder(in).Decode(&rec) != nil || rec.RunID == "" {
		return nil
	}
	return &rec
}

// records returns the records of all runs of handlers that are not settled, the process that has their
// locks.
func (r *dispatcher) records() (list []*record) {
	dir := filepath.Dir(r.recordPath("c"))
	entries, _ := os.ReadDir(dir) // none when nothing has run
	for _, e := range entries {
		if filepath.Ext(e.Name()) != ".run" {
			continue
		}
		f, err := os.OpenFile(filepath.Join(dir, e.Name()), os.O_RDONLY|lock.NoFollow|lock.NoWait, 0)
		if err != nil {
			continue // gone
		}
		if rec := readRecord(lock.FromFile(f)); rec != nil && !rec.Manual {
			list = append(list, rec)
		}
		f.Close()
	}
	return list
}

// writeRecord replaces the content in place, as the lock is on the file. A reader
// after a kill between the two writes ignores what follows the first value.
func writeRecord(l *lock.File, rec *record) error {
	text, err := json.Marshal(rec)
	if err != nil {
		return err
	}
	text = append(text, '\n')
	if _, err := l.File().WriteAt(text, 0); err != nil {
		return err
	}
	return l.File().Truncate(int64(len(text)))
}

// lostRun returns the run whose supervisor was killed, nil for none.
// The caller has the consumer's lock and the lock of the record.
//
// A note of another run is newer than the record: a program that knows no records
// has run the consumer since. So is one that says how the run ended. There is none
// when run/ was deleted. A note without a record is of that program, or its
// supervisor was killed before it started the handler.
func lostRun(rec *record, n note) *record {
	switch {
	case rec != nil && (rec.Manual || n.RunID == "" || n.RunID == rec.RunID && n.State == stateRunning):
		return rec
	case n.State == stateRunning:
		return &record{note: n}
	}
	return nil
}
