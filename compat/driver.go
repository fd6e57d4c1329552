//go:build (linux && (386 || amd64 || arm || arm64 || loong64 || ppc64le || riscv64 || s390x)) || (darwin && (amd64 || arm64)) || (freebsd && (amd64 || arm64)) || (netbsd && amd64) || (openbsd && (amd64 || arm64)) || (windows && (386 || amd64 || arm64))

package compat

import (
	"errors"
	"io/fs"
	"syscall"

	"modernc.org/sqlite"
)

// Available says whether this program can read and write SQLite files.
const Available = true

// The primary result codes of SQLite that are told apart here
// (sqlite.org/rescode.html).
const (
	codeBusy     = 5
	codeReadOnly = 8
	codeIOErr    = 10
	codeCorrupt  = 11
	codeFull     = 13
	codeCantOpen = 14
	codeNotADB   = 26
)

// resultCode returns the primary result code of an error of SQLite, 0 for
// another error.
func resultCode(err error) int {
	var e *sqlite.Error
	if errors.As(err, &e) {
		return e.Code() & 0xff
	}
	return 0
}

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
