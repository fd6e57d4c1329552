package jsonlog

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"strconv"
)

// Lines reads a line file in pieces: a line can be longer than memory.
type Lines struct {
	r *bufio.Reader

	Number int64 // of the present line, from 1
	Offset int64 // where it begins
	next   int64 // offset of what is read next
	ended  bool  // the present line was read to its end
	torn   bool  // that end had no newline
	last   [2]byte
}

// NewLines begins before the first line of r.
func NewLines(r io.Reader) *Lines {
	return &Lines{r: bufio.NewReaderSize(r, 64<<10), ended: true}
}

// Next moves to the next line. It returns false at the end of the file.
func (l *Lines) Next() (bool, error) {
	if err := l.skip(); err != nil {
		return false, err
	}
	if _, err := l.r.Peek(1); err != nil {
		if err == io.EOF {
			err = nil
		}
		return false, err
	}
	l.Number++
	l.Offset, l.ended, l.last = l.next, false, [2]byte{}
	return true, nil
}

// lineHead is the most that stands before and behind the id of a line.
const lineHead = len(`{"id":-9223372036854775808,"created_at":"`)

// ID returns the id of a line that begins like an event's JSON form. It must be
// asked before the line is compared.
func (l *Lines) ID() (id int64, ok bool) {
	head, err := l.r.Peek(lineHead)
	if err != nil && !errors.Is(err, io.EOF) {
		return 0, false
	}
	head, _, _ = bytes.Cut(head, []byte{'\n'})
	rest, ok := bytes.CutPrefix(head, []byte(`{"id":`))
	if !ok {
		return 0, false
	}
	digits, _, ok := bytes.Cut(rest, []byte(`,"created_at":"`))
	if !ok {
		return 0, false
	}
	id, err = strconv.ParseInt(string(digits), 10, 64)
	return id, err == nil && id > 0
}

// errDiffers ends a comparison.
var errDiffers = errors.New("the line differs")

// Equal reports whether the line is exactly what write writes, and has its end. It
// reads no more of the line than what is equal.
func (l *Lines) Equal(write func(io.Writer) error) (bool, error) {
	if err := write(comparison{l}); errors.Is(err, errDiffers) {
		return false, nil
	} else if err != nil {
		return false, err
	}
	if b, err := l.r.Peek(1); err != nil || b[0] != '\n' {
		if err == io.EOF {
			err = nil
		}
		return false, err
	}
	return true, l.skip()
}

type comparison struct{ l *Lines }

func (c comparison) Write(b []byte) (int, error) {
	for done := 0; done < len(b); {
		n := min(len(b)-done, c.l.r.Size())
		got, err := c.l.r.Peek(n)
		if err != nil && err != io.EOF {
			return done, err
		}
		if !bytes.Equal(got, b[done:done+n]) {
			return done, errDiffers
		}
		_, _ = c.l.r.Discard(n) // Peek has returned these bytes
		c.l.next += int64(n)
		done += n
	}
	return len(b), nil
}

// skip reads the present line to its end.
func (l *Lines) skip() error {
	for !l.ended {
		b, err := l.r.ReadSlice('\n')
		l.next += int64(len(b))
		full, end := errors.Is(err, bufio.ErrBufferFull), errors.Is(err, io.EOF)
		if err != nil && !full && !end {
			return err
		}
		l.ended, l.torn = !full, end
		if l.ended && !l.torn {
			b = b[:len(b)-1]
		}
		for _, c := range b[max(0, len(b)-2):] {
			l.last[0], l.last[1] = l.last[1], c
		}
	}
	return nil
}

// Whole reads the line to its end and reports whether it has one, and the outline
// of an event's JSON form, of which ID was asked.
func (l *Lines) Whole() (bool, error) {
	err := l.skip()
	return !l.torn && string(l.last[:]) == `"}`, err
}

// Length returns how long the line is, which was read to its end, without its
// newline.
func (l *Lines) Length() int64 {
	if l.torn {
		return l.next - l.Offset
	}
	return l.next - l.Offset - 1
}

// Torn reports whether the line, which was read to its end, has no newline.
func (l *Lines) Torn() bool { return l.torn }
