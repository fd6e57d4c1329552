// Package compat moves thread directories between SQLite, as the TypeScript tool
// keeps them, and this program, and keeps a SQLite copy of a thread
// up to date. It is internal to this program and makes no promise to library
// users.
//
// What goes through unchanged (T-70): events with their ids, gaps and
// created_at texts; any bytes in a text; subscriptions in order with whatever
// filter they have; progress also of consumers that are not subscribed; the
// AUTOINCREMENT counter; and the wording of the schema with all indexes, views and
// triggers. What SQLite has no place for travels in the table
// thread_extra, which SQLite tools ignore; what we have no place for travels in
// the bucket "sqlite".
package compat

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"syscall"
)

var (
	// ErrNoSQLite is returned when Available is false.
	ErrNoSQLite = errors.New("this program was built without SQLite")
	// ErrNotSQLite is returned for a directory that the TypeScript tool did not
	// make.
	ErrNotSQLite = errors.New("not a SQLite thread directory")
	// ErrBadRows is returned, before anything is written, for a database with
	// data that the schema does not foresee. The Report lists it.
	ErrBadRows = errors.New("data that the schema does not foresee")
	// ErrInUse is returned when another program has the SQLite file open.
	ErrInUse = errors.New("another program has the database open")
	// ErrNotEmpty is returned for a target directory with something in it, and
	// for a name that is taken.
	ErrNotEmpty = errors.New("not empty")
	// ErrNotMirror is returned for something in the place of a mirror that is not
	// a mirror of that thread.
	ErrNotMirror = errors.New("not a mirror of this thread")
	// ErrNotHistory is returned for a file that is not a history.db of OpenHarness.
	ErrNotHistory = errors.New("not a history.db")
)

const (
	databaseName = "events.db"
	sqliteName   = "events.sqlite" // what an import in place keeps
	sqliteHeader = "SQLite format 3\x00"
)

// Progress is told how much of a long job is done: rows so far, and of how many.
// It is called often and must be quick.
type Progress func(done, total int64)

// Report says what an import found.
type Report struct {
	Events, Subscriptions, Consumers int64 // rows taken over; consumers with progress
	Head                             int64 // newest id
	LastID                           int64 // highest id ever given
	faults
	BadFilters []BadFilter
}

// faults are what an import has no place for.
type faults struct {
	Faults     []Fault
	FaultCount int64 // Faults holds the first maxFaults of them
}

const maxFaults = 100

// Fault is something in a SQLite file that has no place in a thread.
type Fault struct {
	Table string
	Row   string // the id, or the consumer quoted; "" when it is about the table
	What  string
}

func (f Fault) String() string {
	if f.Row == "" {
		return fmt.Sprintf("table %s: %s", f.Table, f.What)
	}
	return fmt.Sprintf("table %s, row %s: %s", f.Table, f.Row, f.What)
}

// HistoryReport says what an import into a history found.
type HistoryReport struct {
	Imported int64 // rows
	Already  int64 // rows that were there
	faults
}

// HistoryImportOptions say how to import into a history.
type HistoryImportOptions struct {
	SkipBadRows bool     // leave out what has no place in a history
	Progress    Progress // may be nil
}

// BadFilter is a subscription whose filter was kept although it is invalid here. Its consumer gets no events until it is subscribed again.
type BadFilter struct {
	Consumer, Filter string
	Err              error
}

func (r *faults) fault(table, row, format string, args ...any) {
	if r.FaultCount++; len(r.Faults) < maxFaults {
		r.Faults = append(r.Faults, Fault{table, row, fmt.Sprintf(format, args...)})
	}
}

// send passes v on unless ctx ends.
func send[T any](ctx context.Context, to chan<- T, v T) error {
	select {
	case to <- v:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// ImportOptions says how to import.
type ImportOptions struct {
	// To is the thread directory to make; it must not exist, or be empty. "" turns
	// the source itself into a thread of ours.
	To string
	// SkipBadRows leaves out what has no place in a thread, instead of refusing
	// all of it.
	SkipBadRows bool
	Progress    Progress // may be nil

	step func(name string) // told of the steps in place; for tests
}

// The primary result codes of SQLite that are told apart here
// (sqlite.org/rescode.html).
const (
	codeError      = 1
	codeBusy       = 5
	codeReadOnly   = 8
	codeIOErr      = 10
	codeCorrupt    = 11
	codeFull       = 13
	codeCantOpen   = 14
	codeConstraint = 19
	codeNotADB     = 26
)

// diskError gives an error of SQLite about the disk that dir is on the form of
// the system's errors.
func diskError(dir string, err error) error {
	switch resultCode(err) {
	case codeFull:
		return &fs.PathError{Op: "write", Path: dir, Err: syscall.ENOSPC}
	case codeIOErr:
		return &fs.PathError{Op: "write", Path: dir, Err: err}
	}
	return err
}
