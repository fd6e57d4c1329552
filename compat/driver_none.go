//go:build !((linux && (386 || amd64 || arm || arm64 || loong64 || ppc64le || riscv64 || s390x)) || (darwin && (amd64 || arm64)) || (freebsd && (amd64 || arm64)) || (netbsd && amd64) || (openbsd && (amd64 || arm64)) || (windows && (386 || amd64 || arm64)))

package compat

import (
	"context"

	"thread/engine"
	"thread/history"
	"thread/internal/apptable"
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

// HistoryMirror cannot be had.
type HistoryMirror struct{ Rebuilt, Aside string }

// HistoryMirrorOptions say what is mirrored.
type HistoryMirrorOptions struct {
	Workspaces []string
	Default    bool
}

// OpenHistoryMirror returns ErrNoSQLite.
func OpenHistoryMirror(context.Context, *history.History, string, HistoryMirrorOptions) (*HistoryMirror, error) {
	return nil, ErrNoSQLite
}

// Sync returns ErrNoSQLite.
func (*HistoryMirror) Sync(context.Context) (int64, error) { return 0, ErrNoSQLite }

// Follow returns ErrNoSQLite.
func (*HistoryMirror) Follow(context.Context, func(int64, error) error) error { return ErrNoSQLite }

// Close does nothing.
func (*HistoryMirror) Close() error { return nil }

// ImportHistory returns ErrNoSQLite.
func ImportHistory(context.Context, *history.History, string, HistoryImportOptions) (HistoryReport, error) {
	return HistoryReport{}, ErrNoSQLite
}

// Table cannot be had.
type Table struct{}

// OpenTable returns ErrNoSQLite.
func OpenTable(context.Context, string, string, ...string) (*Table, error) { return nil, ErrNoSQLite }

// Pending returns ErrNoSQLite.
func (*Table) Pending(context.Context, int) ([]apptable.Row, error) { return nil, ErrNoSQLite }

// Mark returns ErrNoSQLite.
func (*Table) Mark(context.Context, []apptable.Mark) (int64, error) { return 0, ErrNoSQLite }

// Close does nothing.
func (*Table) Close() error { return nil }
