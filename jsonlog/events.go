// Package jsonlog writes the two line files of a thread directory:
// events.jsonl, every event as one line of JSON for eyes and grep, and
// logs/thread.log. Both are rotated when they hold more than 10000 lines
// (T-71, T-72), events.jsonl also when it holds more than 16 MiB. Of thread.log the newest
// rotated files are kept, so that there are five files with the present one.
//
// Many processes append to these files. lumberjack, which rotates the handlers'
// output, is documented for one process only: it truncates a file it did not
// find a moment before, follows symbolic links and leaves a goroutine behind. So
// these two are appended to with O_APPEND and rotated with one rename, under a
// kernel lock.
//
// The package is internal to this program and makes no promise to library
// users.
package jsonlog

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"thread/event"
	"thread/internal/durable"
	"thread/lock"
)

// MaxLines is how many lines a file may hold, and maxBytes how many bytes of our lines
// events.jsonl; at the next write after that it is rotated.
const (
	MaxLines = 10000
	maxBytes = 16 << 20
)

// Position is what the database knows of events.jsonl after its latest append.
// It is written in the transaction of the events themselves, before they are
// appended: a file that does not fit it shows that a process died in between.
type Position struct {
	Size  int64 // bytes in the file
	Lines int64 // newlines in the file
	Base  int64 // offset at which our lines begin: what stood there before is kept
	First int64 // id of our first line, 0 when there is none yet
}

// Full reports whether the file is rotated at the next append.
func (p *Position) Full() bool { return p.Lines > MaxLines || p.Size-p.Base > maxBytes }

// Add accounts for the line of event id, n bytes long with its newline.
func (p *Position) Add(id int64, n int) {
	if p.First == 0 {
		p.First, p.Base = id, p.Size
	}
	p.Size += int64(n)
	p.Lines++
}

// Events is events.jsonl, open for one transaction. All of it happens under the
// database's exclusive lock.
type Events struct {
	path string
	f    *os.File
}

// OpenEvents opens <dir>/events.jsonl for appending and creates it, 0600, when
// it is missing.
func OpenEvents(dir string) (*Events, error) {
	e := &Events{path: filepath.Join(dir, "events.jsonl")}
	return e, e.open()
}

func (e *Events) open() (err error) {
	if e.f, err = lock.Create(e.path, os.O_RDWR|os.O_APPEND|lock.NoFollow|lock.NoWait); err != nil {
		return err
	}
	if err := lock.Usable(e.f); err != nil {
		return errors.Join(err, e.f.Close())
	}
	return nil
}

// Close closes the file. It does not sync: the file is derived from the database.
func (e *Events) Close() error { return e.f.Close() }

// Prepare makes the file ready for the event after head and returns where it
// stands: torn or missing lines up to head are written again, taken from
// missing, which calls emit for every stored event with id > after; a file that
// is full is rotated.
func (e *Events) Prepare(p Position, head int64, at time.Time, missing func(after int64, emit func(*event.Event) error) error) (Position, error) {
	size, complete, err := e.end()
	if err != nil {
		return p, err
	}
	if size == 0 && p.Full() {
		// The process that rotated the file died before it could say so.
		p = Position{}
	}
	if size != p.Size || !complete {
		if p, err = e.heal(p, size, head, missing); err != nil {
			return p, err
		}
	}
	if p.Full() {
		if err := e.f.Sync(); err != nil { // what was rotated is not healed any more
			return p, err
		}
		if err := e.f.Close(); err != nil {
			return p, err
		}
		name, err := rotateFile(e.path, at)
		if err != nil {
			return p, errors.Join(err, e.open())
		}
		// Before there is a new file: of two names that are not durable a loss of
		// power could keep the new one only.
		return Position{}, errors.Join(durable.Named(name), e.open())
	}
	return p, nil
}

// end returns the size of the file and whether it ends with a newline.
func (e *Events) end() (size int64, complete bool, err error) {
	info, err := e.f.Stat()
	if err != nil {
		return 0, false, err
	}
	size = info.Size()
	if size == 0 {
		return 0, true, nil
	}
	var last [1]byte
	if _, err := e.f.ReadAt(last[:], size-1); err != nil {
		return 0, false, err
	}
	return size, last[0] == '\n', nil
}

// heal returns the old position with an error, so that the next Prepare still
// sees what is missing.
func (e *Events) heal(was Position, size, head int64, missing func(int64, func(*event.Event) error) error) (Position, error) {
	p := was
	if size < p.Base {
		p.Base = 0 // cut or replaced; all of it is ours to write now
	}
	last := head
	end := size
	if size <= p.Size && p.First != 0 {
		var err error
		if last, end, err = e.lastLine(p.Base, size, head); err != nil {
			return was, err
		}
		if last == 0 {
			last = p.First - 1
		}
	}
	if end < size {
		if err := e.f.Truncate(end); err != nil {
			return was, err
		}
	} else if _, complete, err := e.end(); err != nil {
		return was, err
	} else if !complete { // another process's last line
		if _, err := e.f.Write([]byte{'\n'}); err != nil {
			return was, err
		}
	}
	err := e.Append(func(w io.Writer) error {
		var line []byte
		return missing(last, func(ev *event.Event) error {
			if ev.ID > head {
				return nil
			}
			var err error
			line, err = ev.WriteLine(w, line)
			return err
		})
	})
	if err != nil {
		return was, err
	}
	if p.Lines, _, err = countLines(io.NewSectionReader(e.f, 0, 1<<62)); err != nil {
		return was, err
	}
	if p.Size, _, err = e.end(); err != nil {
		return was, err
	}
	return p, nil
}

// lastLine finds the last whole event line in [base, size) and returns its id,
// at most head, and the offset behind it; 0 and base when there is none.
func (e *Events) lastLine(base, size, head int64) (id, end int64, err error) {
	for chunk := int64(64 << 10); ; chunk *= 4 {
		from := max(base, size-chunk)
		buf := make([]byte, size-from)
		if _, err := e.f.ReadAt(buf, from); err != nil && err != io.EOF {
			return 0, 0, err
		}
		for {
			nl := bytes.LastIndexByte(buf, '\n')
			if nl < 0 {
				break
			}
			start := bytes.LastIndexByte(buf[:nl], '\n') + 1
			if start == 0 && from > base {
				break // the line began before this chunk
			}
			if id, ok := LineID(buf[start:nl]); ok && id <= head {
				return id, from + int64(nl) + 1, nil
			}
			buf = buf[:nl]
		}
		if from == base {
			return 0, base, nil
		}
	}
}

// LineID returns the id of a line that has the outline of an event's JSON form.
func LineID(line []byte) (id int64, ok bool) {
	rest, ok := bytes.CutPrefix(line, []byte(`{"id":`))
	if !ok || !bytes.HasSuffix(rest, []byte(`"}`)) {
		return 0, false
	}
	digits, _, ok := bytes.Cut(rest, []byte(`,"created_at":"`))
	if !ok {
		return 0, false
	}
	id, err := strconv.ParseInt(string(digits), 10, 64)
	return id, err == nil
}

// Append writes what fill writes to the end of the file. After an error the
// file is cut back to where it was, as far as the system lets us; what stays is
// torn and is healed by the next Prepare.
func (e *Events) Append(fill func(io.Writer) error) error {
	info, err := e.f.Stat()
	if err != nil {
		return err
	}
	w := bufio.NewWriterSize(e.f, 256<<10)
	if err = fill(w); err == nil {
		err = w.Flush()
	}
	if err != nil {
		return errors.Join(err, e.f.Truncate(info.Size()))
	}
	return nil
}

// AppendLine writes one line in one write.
func (e *Events) AppendLine(line []byte) error {
	n, err := e.f.Write(line)
	if err == nil || n == 0 {
		return err
	}
	info, serr := e.f.Stat()
	if serr != nil {
		return errors.Join(err, serr)
	}
	return errors.Join(err, e.f.Truncate(info.Size()-int64(n)))
}

// rotateFile renames <name>.<ext> to <name>-<YYYYMMDD-HHmmss>.<ext> in UTC, with -1,
// -2, … before the ending when that name is taken, or was by a file that was set
// aside: the names tell the order. The caller holds the lock that keeps others from
// rotating the same file. It returns the new name.
func rotateFile(path string, at time.Time) (name string, err error) {
	ext := filepath.Ext(path)
	stem := strings.TrimSuffix(path, ext) + at.UTC().Format("-20060102-150405")
	for i := 0; ; i++ {
		name = stem + ext
		if i > 0 {
			name = fmt.Sprintf("%s-%d%s", stem, i, ext)
		}
		free, err := isFree(name)
		if err == nil && free {
			free, err = isFree(name + ".bad")
		}
		if err != nil {
			return "", err
		}
		if free {
			return name, os.Rename(path, name)
		}
	}
}

// SetAside renames the events.jsonl of dir as rotation does, so that no file has that
// name; an empty one is removed. What is not a regular file stays.
func SetAside(dir string, at time.Time) error {
	path := filepath.Join(dir, "events.jsonl")
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return nil
	case err != nil || !info.Mode().IsRegular():
		return err
	case info.Size() == 0:
		return os.Remove(path)
	}
	name, err := rotateFile(path, at)
	if err != nil {
		return err
	}
	return durable.Named(name)
}

// Off reports whether the thread directory dir has no events.jsonl, as one whose lines
// are off.
func Off(dir string) bool {
	free, err := isFree(filepath.Join(dir, "events.jsonl"))
	return free && err == nil
}

// isFree reports whether nothing has the name.
func isFree(name string) (bool, error) {
	_, err := os.Lstat(name)
	if errors.Is(err, os.ErrNotExist) {
		return true, nil
	}
	return false, err
}

func openAppend(path string) (*os.File, error) {
	const flags = os.O_WRONLY | os.O_APPEND | lock.NoFollow | lock.NoWait
	f, err := lock.Create(path, flags)
	if errors.Is(err, os.ErrNotExist) {
		if err := lock.Mkdir(filepath.Dir(path)); err != nil {
			return nil, err
		}
		f, err = lock.Create(path, flags)
	}
	if err != nil {
		return nil, err
	}
	if err := lock.Usable(f); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}
