package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"iter"

	"thread/event"
)

// maxLineBytes bounds one line of a batch. The longest line that this program
// writes into events.jsonl stays below: JSON may need six bytes for one
// (`\u0000`), and there is room for the keys and for spaces.
const maxLineBytes = 6*(event.MaxContentBytes+3*event.MaxNameBytes) + 1<<20

// lineError says which line of a batch is wrong.
type lineError struct {
	line int // from 1, blank lines counted
	err  error
}

func (e *lineError) Error() string { return fmt.Sprintf("line %d: %v", e.line, e.err) }
func (e *lineError) Unwrap() error { return e.err }

var errLineTooLong = errors.New("the line is too long")

// batchDrafts reads NDJSON: one object per line, lines ending in \n or \r\n, the
// last one possibly in nothing, a byte order mark before the first, blank lines
// ignored (contract T-31, T-33). The first error ends the sequence; it is a
// *lineError, or a failure when r cannot be read. A line longer than maxLine
// bytes, its end included, is refused.
func batchDrafts(r io.Reader, maxLine int) iter.Seq2[event.Draft, error] {
	return func(yield func(event.Draft, error) bool) {
		in := bufio.NewReaderSize(r, flushBytes)
		var line []byte
		for n := 1; ; n++ {
			var err error
			line, err = readLine(in, line[:0], maxLine)
			if errors.Is(err, errLineTooLong) {
				yield(event.Draft{}, &lineError{n, fmt.Errorf("longer than %d bytes", maxLine)})
				return
			}
			if err != nil && !errors.Is(err, io.EOF) {
				yield(event.Draft{}, logic(fmt.Sprintf("cannot read stdin: %v", err), "give the batch on stdin; nothing was stored"))
				return
			}
			if n == 1 {
				line = bytes.TrimPrefix(line, []byte("\uFEFF"))
			}
			if len(bytes.TrimSpace(line)) > 0 {
				d, badLine := event.ParseDraft(line)
				if badLine != nil {
					yield(d, &lineError{n, badLine})
					return
				}
				if !yield(d, nil) {
					return
				}
			}
			if errors.Is(err, io.EOF) {
				return
			}
		}
	}
}

// readLine appends the next line, without its end, to buf. With io.EOF comes the
// rest of the input, perhaps nothing.
func readLine(in *bufio.Reader, buf []byte, maxLine int) ([]byte, error) {
	for {
		part, err := in.ReadSlice('\n')
		buf = append(buf, part...)
		if len(buf) > maxLine {
			return buf, errLineTooLong
		}
		if err == nil {
			return bytes.TrimSuffix(buf[:len(buf)-1], []byte("\r")), nil
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			return buf, err
		}
	}
}
