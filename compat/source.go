package compat

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"strings"
)

// querier is what *sql.Conn and *sql.Tx have in common.
type querier interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
}

// connect opens one connection to a SQLite file. Options are parameters of the
// URI, after its question mark.
func connect(ctx context.Context, path, options string) (*sql.DB, *sql.Conn, error) {
	slashed := filepath.ToSlash(path)
	if !strings.HasPrefix(slashed, "/") {
		slashed = "/" + slashed // a drive letter
	}
	u := url.URL{Scheme: "file", Path: slashed, RawQuery: "_pragma=busy_timeout(4000)&" + options}
	db, err := sql.Open("sqlite", u.String())
	if err != nil {
		return nil, nil, err
	}
	db.SetMaxOpenConns(1)
	conn, err := db.Conn(ctx)
	if err != nil {
		db.Close()
		return nil, nil, err
	}
	return db, conn, nil
}

// source is a SQLite database in one read transaction.
type source struct {
	db   *sql.DB
	conn *sql.Conn
	path string
	temp string // directory of a copy, "" without one
	tidy bool   // SQLite left an empty WAL where there was none
}

// checkSource says whether path is a SQLite file. It must not be called while
// this process has the file open: on Unix, closing any descriptor of a file drops
// the locks that SQLite has on it.
func checkSource(path string) error {
	info, err := os.Lstat(path)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if err != nil || !info.Mode().IsRegular() {
		return fmt.Errorf("%w: %s", ErrNotSQLite, filepath.Dir(path))
	}
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	head := make([]byte, len(sqliteHeader))
	if _, err := io.ReadFull(f, head); err != nil && err != io.EOF && err != io.ErrUnexpectedEOF {
		return err
	}
	if string(head) != sqliteHeader {
		return fmt.Errorf("%w: %s", ErrNotSQLite, path)
	}
	return nil
}

// openSource begins a read transaction, so that all that follows sees one moment
// while other programs continue writing. Where SQLite cannot make the files that it
// needs next to a WAL, the database is read without locks if there is nothing to
// recover, and from a copy otherwise.
func openSource(ctx context.Context, path string) (*source, error) {
	if err := checkSource(path); err != nil {
		return nil, err
	}
	s := &source{path: path}
	tidy := !hasContent(path + "-wal")
	err := s.begin(ctx, path, "mode=ro", "BEGIN")
	if code := resultCode(err); code == codeCantOpen || code == codeReadOnly {
		tidy = false
		if hasContent(path+"-wal") || hasContent(path+"-journal") {
			err = s.beginCopy(ctx)
		} else {
			err = s.begin(ctx, path, "mode=ro&immutable=1", "BEGIN")
		}
	}
	if err != nil {
		return nil, errors.Join(inUse(err), s.close())
	}
	s.tidy = tidy // not after a failure: who keeps us out keeps out who tidies up
	return s, nil
}

// openExclusive keeps every other program out of the file until close, and fails
// with ErrInUse when one has it open already, even if it does nothing.
func openExclusive(ctx context.Context, path string) (*source, error) {
	if err := checkSource(path); err != nil {
		return nil, err
	}
	// SQLite would open a file that cannot be written for reading.
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	if err = f.Close(); err != nil {
		return nil, err
	}
	s := &source{path: path}
	if err := s.begin(ctx, path, "mode=rw&_pragma=locking_mode(EXCLUSIVE)", "BEGIN EXCLUSIVE"); err != nil {
		return nil, errors.Join(inUse(err), s.close())
	}
	return s, nil
}

func inUse(err error) error {
	if resultCode(err) == codeBusy {
		return fmt.Errorf("%w: %w", ErrInUse, err)
	}
	return err
}

func (s *source) begin(ctx context.Context, path, options, begin string) (err error) {
	if err := s.disconnect(); err != nil {
		return err
	}
	if s.db, s.conn, err = connect(ctx, path, options); err != nil {
		return err
	}
	if _, err := s.conn.ExecContext(ctx, begin); err != nil {
		return err
	}
	var n int64 // the transaction begins with the first read
	return s.conn.QueryRowContext(ctx, "SELECT count(*) FROM sqlite_schema").Scan(&n)
}

func hasContent(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Size() > 0
}

// beginCopy opens a copy of the file and of what it has to recover from.
func (s *source) beginCopy(ctx context.Context) (err error) {
	if s.temp, err = os.MkdirTemp("", "thread-import-*"); err != nil {
		return err
	}
	to := filepath.Join(s.temp, databaseName)
	for range 10 {
		before := fingerprint(s.path)
		for _, suffix := range []string{"", "-wal", "-journal"} {
			if err := copyFile(to+suffix, s.path+suffix); err != nil && !errors.Is(err, os.ErrNotExist) {
				return err
			}
		}
		if before == fingerprint(s.path) {
			return s.begin(ctx, to, "mode=rw", "BEGIN")
		}
	}
	return fmt.Errorf("%w: it changes while it is copied", ErrInUse)
}

// fingerprint changes when the database, its WAL or its journal does.
func fingerprint(path string) string {
	var b bytes.Buffer
	for _, suffix := range []string{"", "-wal", "-journal"} {
		if info, err := os.Stat(path + suffix); err == nil {
			fmt.Fprintf(&b, "%s %d %d\n", suffix, info.Size(), info.ModTime().UnixNano())
		}
	}
	return b.String()
}

func copyFile(to, from string) (err error) {
	r, err := os.Open(from)
	if err != nil {
		return err
	}
	defer r.Close()
	w, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(w, r)
	return errors.Join(err, w.Close())
}

func (s *source) disconnect() error {
	if s.db == nil {
		return nil
	}
	var errs []error
	if s.conn != nil {
		errs = append(errs, s.conn.Close())
	}
	errs = append(errs, s.db.Close())
	s.db, s.conn = nil, nil
	return errors.Join(errs...)
}

func (s *source) close() error {
	err := s.disconnect()
	if s.temp != "" {
		err = errors.Join(err, os.RemoveAll(s.temp))
	}
	if s.tidy {
		// A connection that only reads leaves -wal and -shm behind. One that may
		// write removes them, if no other process has the file open.
		ctx := context.Background()
		if db, conn, cerr := connect(ctx, s.path, "mode=rw"); cerr == nil {
			var n int64
			_ = conn.QueryRowContext(ctx, "SELECT count(*) FROM sqlite_schema").Scan(&n)
			conn.Close()
			db.Close()
		}
	}
	return err
}
