package jsonlog

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"thread/lock"
)

// DropRotated deletes what was rotated of a thread's files and is about nothing that
// the thread still has: events-<time>.jsonl whose last line has an event before
// oldest, and the rotated files under logs that were written last before since. A zero
// since keeps the latter. Files with other names, links, and files that do not end with
// an event's line stay.
func DropRotated(dir string, oldest int64, since time.Time) error {
	errs := dropRotated(dir, ".jsonl", func(path string, _ os.FileInfo) (bool, error) {
		id, err := lastID(path)
		return id > 0 && id < oldest, err
	})
	if since.IsZero() {
		return errs
	}
	written := func(_ string, info os.FileInfo) (bool, error) { return info.ModTime().Before(since), nil }
	for _, logs := range []string{filepath.Join(dir, "logs"), filepath.Join(dir, "logs", "handlers")} {
		errs = errors.Join(errs, dropRotated(logs, ".log", written))
	}
	return errs
}

// dropRotated deletes the rotated files in dir for which old says so.
func dropRotated(dir, ext string, old func(path string, info os.FileInfo) (bool, error)) (errs error) {
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	for _, e := range entries {
		if !e.Type().IsRegular() || !isRotated(e.Name(), ext) || ext == ".jsonl" && !strings.HasPrefix(e.Name(), "events-") {
			continue
		}
		path := filepath.Join(dir, e.Name())
		info, err := e.Info()
		drop := false
		if err == nil {
			drop, err = old(path, info)
		}
		if err == nil && drop {
			err = os.Remove(path)
		}
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			errs = errors.Join(errs, err)
		}
	}
	return errs
}

// dropOldest deletes the rotated files of the file at path, except those written last.
func dropOldest(path string, keep int) (errs error) {
	ext := filepath.Ext(path)
	type rotated struct {
		path string
		at   time.Time
	}
	var files []*rotated // sorted as others are: sorting values would be 10 KB more of thread-lite
	stem := strings.TrimSuffix(filepath.Base(path), ext) + "-"
	err := dropRotated(filepath.Dir(path), ext, func(path string, info os.FileInfo) (bool, error) {
		if strings.HasPrefix(filepath.Base(path), stem) {
			files = append(files, &rotated{path, info.ModTime()})
		}
		return false, nil
	})
	slices.SortFunc(files, func(a, b *rotated) int { return b.at.Compare(a.at) })
	for _, f := range files[min(keep, len(files)):] {
		if err := os.Remove(f.path); err != nil && !errors.Is(err, os.ErrNotExist) {
			errs = errors.Join(errs, err)
		}
	}
	return errors.Join(err, errs)
}

// isRotated reports whether rotateFile gives these names, <stem>-YYYYMMDD-HHmmss with
// -N behind it or not, or lumberjack, <stem>-YYYY-MM-DDTHH-mm-ss.sss.
func isRotated(name, ext string) bool {
	stem, ok := strings.CutSuffix(name, ext)
	if !ok {
		return false
	}
	const own, ours = "2006-01-02T15-04-05.000", "20060102-150405"
	if n := len(stem) - len(own); n > 1 && stem[n-1] == '-' {
		if _, err := time.Parse(own, stem[n:]); err == nil {
			return true
		}
	}
	for range 2 {
		if n := len(stem) - len(ours); n > 1 && stem[n-1] == '-' {
			if _, err := time.Parse(ours, stem[n:]); err == nil {
				return true
			}
		}
		rest := strings.TrimRight(stem, "0123456789")
		if rest == stem || !strings.HasSuffix(rest, "-") {
			return false
		}
		stem = rest[:len(rest)-1]
	}
	return false
}

// lastID returns the id of the last line of a file, 0 when that line has no event.
func lastID(path string) (int64, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|lock.NoFollow|lock.NoWait, 0)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil || info.Size() == 0 {
		return 0, err
	}
	// The last newline is the end of that line, and the one before it its beginning.
	chunk := make([]byte, 64<<10)
	end := info.Size() - 1
	for at := end; ; {
		from := max(0, at-int64(len(chunk)))
		b := chunk[:at-from]
		if _, err := f.ReadAt(b, from); err != nil && err != io.EOF {
			return 0, err
		}
		start := int64(strings.LastIndexByte(string(b), '\n'))
		if start >= 0 || from == 0 {
			l := NewLines(io.NewSectionReader(f, from+start+1, info.Size()))
			if more, err := l.Next(); !more || err != nil {
				return 0, err
			}
			id, _ := l.ID()
			return id, nil
		}
		at = from
	}
}
