//go:build (linux && (386 || amd64 || arm || arm64 || loong64 || ppc64le || riscv64 || s390x)) || (darwin && (amd64 || arm64)) || (freebsd && (amd64 || arm64)) || (netbsd && amd64) || (openbsd && (amd64 || arm64)) || (windows && (386 || amd64 || arm64))

package compat

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"thread/internal/target"
)

// companions are what SQLite puts beside a file.
var companions = []string{"-wal", "-shm", "-journal"}

func (m *Mirror) rebuild(ctx context.Context, why string) error {
	if err := m.Close(); err != nil {
		return err
	}
	aside, err := m.setAside()
	if err != nil {
		return err
	}
	m.Rebuilt, m.Aside = why, aside
	why, err = m.open(ctx)
	if err == nil && why != "" {
		err = fmt.Errorf("a new mirror is wrong: %s", why)
	}
	return err
}

// setAside gives the damaged file another name, with what SQLite has beside it. It
// returns the name, "" when there is no such file.
func (m *Mirror) setAside() (aside string, err error) {
	found, err := m.find()
	if err != nil || !found {
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
			aside = fmt.Sprintf("%s-%d", aside, n)
		}
		if slices.ContainsFunc(files, taken) {
			continue
		}
		for _, suffix := range files {
			err = target.Rename(m.path+suffix, aside+suffix)
			if errors.Is(err, os.ErrNotExist) && suffix != "" {
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

// find reports whether there is a SQLite file at the path. It returns ErrNotMirror
// for anything else in its place, or in that of a file that SQLite keeps beside it.
func (m *Mirror) find() (found bool, err error) {
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
			return false, fmt.Errorf("%w: %s is there without its database", ErrNotMirror, m.path+suffix)
		case !info.Mode().IsRegular():
			return found, fmt.Errorf("%w: %s is not a regular file", ErrNotMirror, m.path+suffix)
		}
	}
	if !found {
		return false, nil
	}
	if err := checkSource(m.path); errors.Is(err, ErrNotSQLite) {
		return true, fmt.Errorf("%w: %s is not a SQLite file", ErrNotMirror, m.path)
	} else if err != nil {
		return true, err
	}
	f, err := os.OpenFile(m.path, os.O_RDWR, 0)
	if err != nil {
		return true, err
	}
	return true, f.Close()
}

// make makes an empty copy, which gets its name when it is complete. Somebody else
// may have made one by then.
func (m *Mirror) make(ctx context.Context) error {
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
	if err := errors.Join(m.create(ctx), m.Close()); err != nil {
		return diskError(m.path, err)
	}
	if err := publish(tmp, m.path); !errors.Is(err, os.ErrExist) {
		return err
	}
	return nil
}
