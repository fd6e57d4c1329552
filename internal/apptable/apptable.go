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
	// ErrBusy is returned for what passes: locks of others, a server that stops.
	ErrBusy = errors.New("the database cannot be used now")
)

// Table is open until Close. The application goes on using it meanwhile.
type Table interface {
	// Pending returns the first rows that are pending, in the order in which they were
	// inserted, at most limit.
	Pending(ctx context.Context, limit int) ([]Row, error)
	// Mark gives rows of the last Pending that are still pending their new status, in one
	// transaction. It returns how many rows it changed.
	Mark(ctx context.Context, marks []Mark) (int64, error)
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
