package fsck

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"thread/internal/durable"
	"thread/internal/store/bolt"
	"thread/internal/store/bolt/disk"
)

// lineFileNames returns the paths of all events*.jsonl, the oldest first.
func lineFileNames(dir string) ([]string, error) {
	names, err := filepath.Glob(filepath.Join(globEscape(dir), "events-*.jsonl"))
	if err != nil {
		return nil, err
	}
	slices.SortFunc(names, func(a, b string) int {
		at, an := rotated(a)
		bt, bn := rotated(b)
		return cmp.Or(strings.Compare(at, bt), cmp.Compare(an, bn), strings.Compare(a, b))
	})
	return append(names, filepath.Join(dir, "events.jsonl")), nil
}

// rotated splits the name of a rotated file into its time and the number that tells
// files of one second apart: events-T.jsonl is older than events-T-1.jsonl, and
// that one older than events-T-10.jsonl.
func rotated(name string) (stem string, n int) {
	stem = strings.TrimSuffix(name, ".jsonl")
	if strings.Count(stem[strings.LastIndexByte(stem, filepath.Separator)+1:], "-") < 3 {
		return stem, 0
	}
	at := strings.LastIndexByte(stem, '-')
	n, err := strconv.Atoi(stem[at+1:])
	if err != nil {
		return stem, 0
	}
	return stem[:at], n
}

// globEscape quotes what filepath.Glob would take for a pattern.
func globEscape(path string) string {
	var b []byte
	for i := range len(path) {
		switch path[i] {
		case '*', '?', '[', '\\':
			b = append(b, '\\')
		}
		b = append(b, path[i])
	}
	return string(b)
}

// lineFiles is what there is of events*.jsonl at one moment. The files are those
// of that moment although others may be rotated later: of a file that is rotated
// already nothing changes any more, and the newest one is open.
type lineFiles struct {
	names  []string    // paths, the oldest first
	newest *os.File    // events.jsonl, nil when
	err    error       // it cannot be opened
	found  os.FileInfo // what has that name, nil when nothing has
	size   int64       // of newest
	state  disk.State  // of the database then
	start  disk.LogStart
}

func (l *lineFiles) close() {
	if l.newest != nil {
		l.newest.Close()
	}
}

// pinLines opens events*.jsonl under the database's lock.
func pinLines(ctx context.Context, s *bolt.Store) (l lineFiles, err error) {
	err = s.ViewLines(ctx, func(st disk.State, start disk.LogStart) (err error) {
		l.close()
		l = lineFiles{state: st, start: start}
		if l.names, err = lineFileNames(s.Dir); err != nil {
			return err
		}
		newest := l.names[len(l.names)-1]
		if l.found, err = os.Lstat(newest); err != nil {
			l.found = nil
		}
		if l.newest, l.err = openLines(newest); l.err != nil {
			return nil
		}
		info, err := l.newest.Stat()
		l.size = info.Size()
		return err
	})
	return l, err
}

// errNotRegular says that something else has the name of a line file.
var errNotRegular = errors.New("is not a regular file")

// openLines opens a line file for reading. A named pipe is not waited for.
func openLines(path string) (*os.File, error) {
	// A symbolic link is an error by itself, and one that other systems word otherwise.
	if info, err := os.Lstat(path); err == nil && !info.Mode().IsRegular() {
		return nil, errNotRegular
	}
	f, err := os.OpenFile(path, os.O_RDONLY|bolt.OpenNoFollow|bolt.OpenNoWait, 0)
	if err != nil {
		return nil, err
	}
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return nil, errors.Join(cmp.Or(err, errNotRegular), f.Close())
	}
	return f, nil
}

// setAside gives a file a name that nothing of ours has, so that another one can
// have its own. It returns that name, "" when there is no such file.
func setAside(path string) (string, error) {
	for i := 0; ; i++ {
		aside := path + ".bad"
		if i > 0 {
			aside = fmt.Sprintf("%s.bad-%d", path, i)
		}
		switch _, err := os.Lstat(aside); {
		case err == nil:
			continue
		case !errors.Is(err, os.ErrNotExist):
			return "", err
		}
		err := os.Rename(path, aside)
		if errors.Is(err, os.ErrNotExist) {
			return "", nil
		}
		if info, serr := os.Lstat(aside); err == nil && serr == nil && info.Mode().IsRegular() {
			err = durable.Named(aside)
			if errors.Is(err, os.ErrPermission) {
				err = nil // a file that we may only rename
			}
		}
		return aside, err
	}
}
