package compat

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"thread/internal/target"
)

// companions are what SQLite puts next to a file.
var companions = []string{"-wal", "-shm", "-journal"}

// mirrorFile is the SQLite file of a mirror.
type mirrorFile struct {
	path string
	db   *sql.DB
	conn *sql.Conn
	// anything says that whatever file has the name is a mirror, if a damaged one.
	anything bool

	// Rebuilt says why the copy was begun again, "" when it was not. Aside is the
	// name that the damaged one has now, "" when there was none.
	Rebuilt, Aside string
}

// What is in the place of a mirror and may be what is left of one.
var (
	errNoHeader = errors.New("not a SQLite file")
	errNoMain   = errors.New("there without its database")
)

// leftOver reports whether the error of find is about what is left of a mirror.
func (m *mirrorFile) leftOver(err error) bool {
	return m.anything && (errors.Is(err, errNoHeader) || errors.Is(err, errNoMain))
}

// behindLinks returns the absolute path of a file: a link stands for what is behind it,
// as SQLite's own files are next to that.
func behindLinks(path string) (string, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return "", err
	}
	switch real, err := filepath.EvalSymlinks(path); {
	case err == nil:
		return real, nil
	case !errors.Is(err, os.ErrNotExist):
		return "", err
	}
	return path, nil
}

func (m *mirrorFile) exec(ctx context.Context, query string, args ...any) error {
	_, err := m.conn.ExecContext(ctx, query, args...)
	return err
}

func (m *mirrorFile) transact(ctx context.Context, fn func() error) error {
	if err := m.exec(ctx, "BEGIN IMMEDIATE"); err != nil {
		return err
	}
	err := fn()
	if err == nil {
		err = m.exec(ctx, "COMMIT")
	}
	if err != nil {
		_ = m.exec(context.Background(), "ROLLBACK") // err is what went wrong
	}
	return err
}

// Close closes the copy.
func (m *mirrorFile) Close() error {
	if m.db == nil {
		return nil
	}
	var err error
	if m.conn != nil {
		err = m.conn.Close()
	}
	err = errors.Join(err, m.db.Close())
	m.db, m.conn = nil, nil
	return err
}

// rebuild begins the copy again. open connects to it and says what is wrong with it.
func (m *mirrorFile) rebuild(ctx context.Context, why string, open func(context.Context) (string, error)) error {
	if err := m.Close(); err != nil {
		return err
	}
	aside, err := m.setAside()
	if err != nil {
		return err
	}
	m.Rebuilt, m.Aside = why, aside
	why, err = open(ctx)
	if err == nil && why != "" {
		err = fmt.Errorf("a new mirror is wrong: %s", why)
	}
	return err
}

// setAside gives the damaged file another name, with what SQLite has next to it. It
// returns the name, "" when there is no such file.
func (m *mirrorFile) setAside() (aside string, err error) {
	found, err := m.find()
	if left := m.leftOver(err); !left && (err != nil || !found) {
		return "", err
	}
	// The WAL goes first: what is left of it must not meet the new file.
	files := append(slices.Clone(companions), "")
	taken := func(suffix string) bool {
		_, err := os.Lstat(aside + suffix)
		return err == nil
	}
	for n := 1; ; n++ {
		if aside = m.path + ".damaged"; n > 1 {
			aside += "-2"
			if err := m.dropAside(files); err != nil { // the first one stays
				return "", err
			}
		}
		if slices.ContainsFunc(files, taken) {
			continue
		}
		for _, suffix := range files {
			err = target.Rename(m.path+suffix, aside+suffix)
			if errors.Is(err, os.ErrNotExist) && (suffix != "" || !found) {
				err = nil
			}
			if err != nil {
				break
			}
		}
		if !errors.Is(err, os.ErrExist) {
			return aside, err
		}
	}
}

// dropAside removes the damaged files that were set aside after the first one.
func (m *mirrorFile) dropAside(suffixes []string) error {
	for n := 2; ; n++ {
		found := false
		for _, suffix := range suffixes {
			err := os.Remove(fmt.Sprintf("%s.damaged-%d%s", m.path, n, suffix))
			if err != nil && !errors.Is(err, os.ErrNotExist) {
				return err
			}
			found = found || err == nil
		}
		if !found {
			return nil
		}
	}
}

// find reports whether there is a SQLite file at the path. It returns ErrNotMirror
// for anything else in its place, or in place of a file that SQLite keeps next to it.
func (m *mirrorFile) find() (found bool, err error) {
	_, err = os.Lstat(m.path)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return false, err
	}
	found = err == nil
	for _, suffix := range companions {
		switch info, err := os.Lstat(m.path + suffix); {
		case errors.Is(err, os.ErrNotExist):
		case err != nil:
			return found, err
		case !found:
			return false, fmt.Errorf("%w: %s is %w", ErrNotMirror, m.path+suffix, errNoMain)
		case !info.Mode().IsRegular():
			return found, fmt.Errorf("%w: %s is not a regular file", ErrNotMirror, m.path+suffix)
		}
	}
	if !found {
		return false, nil
	}
	if err := checkSource(m.path); errors.Is(err, ErrNotSQLite) {
		if info, err := os.Lstat(m.path); err == nil && !info.Mode().IsRegular() {
			return true, fmt.Errorf("%w: %s is not a regular file", ErrNotMirror, m.path)
		}
		return true, fmt.Errorf("%w: %s is %w", ErrNotMirror, m.path, errNoHeader)
	} else if err != nil {
		return true, err
	}
	f, err := os.OpenFile(m.path, os.O_RDWR, 0)
	if err != nil {
		return true, err
	}
	return true, f.Close()
}

// check returns what is wrong with the file, "" for nothing that can be seen.
func (m *mirrorFile) check(ctx context.Context) (wrong string, err error) {
	if err := m.conn.QueryRowContext(ctx, `PRAGMA quick_check(1)`).Scan(&wrong); err != nil {
		return "", err
	}
	if wrong != "ok" {
		return wrong, nil
	}
	// SQLite reads zeros where the last page is cut, and believes them.
	torn, err := m.torn(ctx)
	if torn && err == nil { // a checkpoint that was killed may have, and another one mends it
		if err := m.exec(ctx, `PRAGMA wal_checkpoint(PASSIVE)`); err != nil {
			return "", err
		}
		torn, err = m.torn(ctx)
	}
	if torn && err == nil {
		return "it ends in the middle of a page", nil
	}
	return "", err
}

// torn reports whether the file ends in the middle of a page.
func (m *mirrorFile) torn(ctx context.Context) (bool, error) {
	var page int64
	if err := m.conn.QueryRowContext(ctx, `PRAGMA page_size`).Scan(&page); err != nil {
		return false, err
	}
	info, err := os.Stat(m.path)
	return err == nil && info.Size()%page != 0, err
}

// checkpoint puts all that is in the write-ahead log into the file itself. SQLite does so
// when the file is closed, but keeps silent when it cannot.
func (m *mirrorFile) checkpoint(ctx context.Context) error {
	var busy, frames, done int
	if err := m.conn.QueryRowContext(ctx, `PRAGMA wal_checkpoint(PASSIVE)`).Scan(&busy, &frames, &done); err != nil {
		return err
	}
	if busy != 0 || done != frames {
		return errors.New("the new file is in use")
	}
	return nil
}

// make makes an empty copy with what create puts into it, which gets its name when it
// is complete. Another process may have made one by then.
func (m *mirrorFile) make(ctx context.Context, create func(context.Context) error) error {
	f, err := os.CreateTemp(filepath.Dir(m.path), filepath.Base(m.path)+".*.new")
	if err != nil {
		return err
	}
	tmp := f.Name()
	defer func() {
		for _, suffix := range append(slices.Clone(companions), "") {
			os.Remove(tmp + suffix)
		}
	}()
	if err := f.Close(); err != nil {
		return err
	}
	if m.db, m.conn, err = connect(ctx, tmp, "mode=rw"); err != nil {
		return err
	}
	if err = create(ctx); err == nil {
		err = m.checkpoint(ctx)
	}
	if err := errors.Join(err, m.Close()); err != nil {
		return diskError(m.path, err)
	}
	if err := publish(tmp, m.path); !errors.Is(err, os.ErrExist) {
		return err
	}
	return nil
}
