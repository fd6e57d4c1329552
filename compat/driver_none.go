//go:build !((linux && (386 || amd64 || arm || arm64 || loong64 || ppc64le || riscv64 || s390x)) || (darwin && (amd64 || arm64)) || (freebsd && (amd64 || arm64)) || (netbsd && amd64) || (openbsd && (amd64 || arm64)) || (windows && (386 || amd64 || arm64)))

package compat

import (
	"context"

	"thread/engine"
)

// Available is false: modernc.org/sqlite does not run on this kind of host. What
// needs it returns ErrNoSQLite.
const Available = false

// Import returns ErrNoSQLite.
func Import(context.Context, string, ImportOptions) (Report, error) { return Report{}, ErrNoSQLite }

// Export returns ErrNoSQLite.
func Export(context.Context, *engine.Thread, string, Progress) (int64, error) { return 0, ErrNoSQLite }

// Mirror cannot be had.
type Mirror struct{ Rebuilt, Aside string }

// OpenMirror returns ErrNoSQLite.
func OpenMirror(context.Context, *engine.Thread, string) (*Mirror, error) { return nil, ErrNoSQLite }

// Sync returns ErrNoSQLite.
func (*Mirror) Sync(context.Context, Progress) (int64, error) { return 0, ErrNoSQLite }

// Follow returns ErrNoSQLite.
func (*Mirror) Follow(context.Context, func(int64, error) error) error { return ErrNoSQLite }

// Close does nothing.
func (*Mirror) Close() error { return nil }

// Table cannot be had.
type Table struct{}

// TableRow is a row of one.
type TableRow struct {
	RowID  int64
	Values map[string]any
}

// Mark says what a row becomes.
type Mark struct {
	Row           *TableRow
	Status, Error string
}

// OpenTable returns ErrNoSQLite.
func OpenTable(context.Context, string, string, ...string) (*Table, error) { return nil, ErrNoSQLite }

// Has returns false.
func (*Table) Has(string) bool { return false }

// Pending returns ErrNoSQLite.
func (*Table) Pending(context.Context, int) ([]TableRow, error) { return nil, ErrNoSQLite }

// Mark returns ErrNoSQLite.
func (*Table) Mark(context.Context, []Mark) (int64, error) { return 0, ErrNoSQLite }

// Close does nothing.
func (*Table) Close() error { return nil }
