package jsonlog

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"thread/event"
	"thread/internal/redact"
	"thread/lock"
)

// Log writes logs/thread.log (T-73). It keeps nothing open, so
// any number of processes may write the same file; a line is one write to a
// descriptor opened for appending.
type Log struct {
	path string           // <thread>/logs/thread.log
	run  string           // <thread>/run, for the rotation's lock and line count
	now  func() time.Time // nil: time.Now
}

// OpenLog returns the log of the thread directory dir. It touches no file.
func OpenLog(dir string) *Log {
	return &Log{path: filepath.Join(dir, "logs", "thread.log"), run: filepath.Join(dir, "run")}
}

// Debug appends a line that helps to find a fault.
func (l *Log) Debug(format string, args ...any) error { return l.write("DEBUG", format, args) }

// Info appends a line that says what was done.
func (l *Log) Info(format string, args ...any) error { return l.write("INFO", format, args) }

// Warn appends a line that says what is odd and was overcome.
func (l *Log) Warn(format string, args ...any) error { return l.write("WARN", format, args) }

// Error appends a line that says what could not be done.
func (l *Log) Error(format string, args ...any) error { return l.write("ERROR", format, args) }

func (l *Log) write(level, format string, args []any) error {
	now := time.Now
	if l.now != nil {
		now = l.now
	}
	at := now()
	line := append([]byte{'['}, event.FormatTime(at)...)
	line = append(line, "] ["...)
	line = append(line, level...)
	line = append(line, "] "...)
	line = appendPrintable(line, redact.Text(fmt.Sprintf(format, args...)))
	line = append(line, '\n')

	f, err := openAppend(l.path)
	if err != nil {
		return err
	}
	var rotateErr error
	if info, err := f.Stat(); err == nil && info.Size() >= minRotateBytes {
		// Before the line, as for events.jsonl: a reader who looks for it finds it.
		var rotated bool
		if rotated, rotateErr = l.rotate(at); rotated {
			f.Close()
			if f, err = openAppend(l.path); err != nil {
				return err
			}
		}
	}
	_, err = f.Write(line)
	return errors.Join(err, f.Close(), rotateErr)
}

// appendPrintable appends s with its control characters escaped, so that what
// users put into sources, types and handler commands stays one line and cannot
// drive the terminal of a reader of the log.
func appendPrintable(dst []byte, s string) []byte {
	for _, r := range s {
		if r < 0x20 || r >= 0x7f && r < 0xa0 {
			q := strconv.QuoteRuneToASCII(r)
			dst = append(dst, q[1:len(q)-1]...)
			continue
		}
		dst = append(dst, string(r)...)
	}
	return dst
}

// minRotateBytes is the size below which 10000 lines do not fit, as every line
// starts with a time and a level. Smaller files need no counting.
const minRotateBytes = MaxLines * int64(len("[2006-01-02T15:04:05.000Z] [INFO] \n"))

// keptLogs is how many rotated files of thread.log are kept.
const keptLogs = 4

// rotateWait is how long a line waits for another process that counts or rotates.
const rotateWait = 100 * time.Millisecond

// rotate moves the file aside when it has more than MaxLines lines. How many
// lines the file has is remembered next to the lock, so that each line is counted
// once; the note is only a help and is made again when run/ was deleted.
func (l *Log) rotate(at time.Time) (rotated bool, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), rotateWait)
	defer cancel()
	held, err := lock.Open(ctx, filepath.Join(l.run, ".thread.log"), lock.Exclusive)
	if err != nil {
		return false, nil // another process takes long, or run/ is gone: the next line tries again
	}
	defer held.Close()
	f, err := os.OpenFile(l.path, os.O_RDONLY|lock.NoFollow|lock.NoWait, 0)
	if err != nil {
		return false, nil
	}
	defer f.Close()
	note := held.File()
	size, lines := readNote(note)
	if info, err := f.Stat(); err != nil || info.Size() < minRotateBytes || info.Size() < size {
		size, lines = 0, 0
	}
	if _, err := f.Seek(size, io.SeekStart); err != nil {
		return false, err
	}
	more, n, err := countLines(f)
	if err != nil {
		return false, err
	}
	size, lines = size+n, lines+more
	if rotated = lines > MaxLines; rotated {
		if _, err := rotateFile(l.path, at); err != nil {
			return false, err
		}
		size, lines = 0, 0
		err = dropOldest(l.path, keptLogs)
	}
	return rotated, errors.Join(err, writeNote(note, size, lines))
}

func readNote(f *os.File) (size, lines int64) {
	var buf [64]byte
	n, _ := f.ReadAt(buf[:], 0)
	words := strings.Fields(string(buf[:n]))
	if len(words) != 2 {
		return 0, 0
	}
	size, err := strconv.ParseInt(words[0], 10, 64)
	lines, err2 := strconv.ParseInt(words[1], 10, 64)
	if err != nil || err2 != nil || size < 0 || lines < 0 {
		return 0, 0
	}
	return size, lines
}

func writeNote(f *os.File, size, lines int64) error {
	_, err := f.WriteAt(fmt.Appendf(nil, "%-20d %-20d\n", size, lines), 0)
	return err
}

// countLines counts the newlines up to the end of r, and the bytes up to and
// including the last one.
func countLines(r io.Reader) (lines, bytesToLast int64, err error) {
	buf := make([]byte, 64<<10)
	var read int64
	for {
		n, err := r.Read(buf)
		if c := bytes.Count(buf[:n], []byte{'\n'}); c > 0 {
			lines += int64(c)
			bytesToLast = read + int64(bytes.LastIndexByte(buf[:n], '\n')) + 1
		}
		read += int64(n)
		if err == io.EOF {
			return lines, bytesToLast, nil
		}
		if err != nil {
			return lines, bytesToLast, err
		}
	}
}
