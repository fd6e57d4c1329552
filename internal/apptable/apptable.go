// Package apptable is what an application's own outbox table looks like from a thread,
// whichever database it is in: rows with a column status, of which those that are
// pending are taken into the thread and then marked. It makes no promise to library
// users.
package apptable

import (
	"context"
	"errors"
)

var (
	// ErrNoTable is returned for a table that cannot be an outbox: it is not there, or
	// lacks something.
	ErrNoTable = errors.New("no such outbox table")
	// ErrRefused is returned for rows that the database refuses to mark.
	ErrRefused = errors.New("the database refuses to mark the rows")
	// ErrPending is the refusal of a database whose triggers leave a row pending.
	ErrPending = errors.New("a trigger of the table leaves the row pending")
	// ErrBusy is returned for what passes: locks of others, a server that stops.
	ErrBusy = errors.New("the database cannot be used now")
)

// Table is open until Close. The application continues to use it.
type Table interface {
	// Pending returns the next rows that are pending, in the order in which they were
	// inserted, at most limit. It continues behind the last row that it returned.
	Pending(ctx context.Context, limit int) ([]Row, error)
	// Rewind lets Pending begin at the first row again.
	Rewind()
	// Mark gives rows of the last Pending that are still pending their new status, in one
	// transaction. A row that the database refuses to mark keeps its status and holds up no
	// other: refused[i] is the error of marks[i]. With trial everything is rolled back.
	Mark(ctx context.Context, marks []Mark, trial bool) (refused []error, err error)
	Close() error
}

// Row is a row that is pending.
type Row struct {
	// Name is what messages call the row, and makes its event_id where it has none. It
	// stays the same, or is "" where nothing of the row does.
	Name string
	// Place is where the table finds the row for Mark.
	Place any
	// Values are by the name of the column: nil, int64, float64, string, []byte or
	// json.Number.
	Values map[string]any
}

// Mark says what a row becomes.
type Mark struct {
	Row    *Row
	Status string // in the column status
	Error  string // in the column error, where there is one, unless it is empty
}
