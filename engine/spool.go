package engine

import (
	"bufio"
	"encoding/binary"
	"errors"
	"io"
	"os"
	"time"

	"thread/event"
)

// spool holds the drafts of a long batch in an unlinked temporary file.
type spool struct {
	dir string
	f   *os.File
	w   *bufio.Writer
	n   int64
}

func (s *spool) add(ds []event.Draft) (err error) {
	if s.f == nil {
		if s.f, err = os.CreateTemp(s.dir, "batch-*"); os.IsNotExist(err) {
			if err = makeDir(s.dir); err == nil {
				s.f, err = os.CreateTemp(s.dir, "batch-*")
			}
		}
		if err != nil {
			return err
		}
		os.Remove(s.f.Name()) // where an open file cannot be removed, close does it
		s.w = bufio.NewWriterSize(s.f, 256<<10)
	}
	var buf []byte
	for i := range ds {
		buf = appendDraft(buf[:0], &ds[i])
		if _, err := s.w.Write(buf); err != nil {
			return err
		}
	}
	s.n += int64(len(ds))
	return nil
}

// appendDraft appends d in the form that spoolReader reads.
func appendDraft(b []byte, d *event.Draft) []byte {
	sub, has := "", byte(0)
	if d.Subtype != nil {
		sub, has = *d.Subtype, 1
	}
	b = append(b, has)
	for _, f := range []string{d.Source, d.Type, sub, d.Content, d.DedupeKey} {
		b = binary.AppendUvarint(b, uint64(len(f)))
		b = append(b, f...)
	}
	return binary.AppendUvarint(b, uint64(d.DedupeWindow))
}

func (s *spool) close() {
	if s.f != nil {
		s.f.Close()
		os.Remove(s.f.Name())
	}
}

func (s *spool) reader() (*spoolReader, error) {
	if err := s.w.Flush(); err != nil {
		return nil, err
	}
	_, err := s.f.Seek(0, io.SeekStart)
	return &spoolReader{r: bufio.NewReaderSize(s.f, 256<<10), longest: event.MaxContentBytes}, err
}

type spoolReader struct {
	r interface {
		io.Reader
		io.ByteReader
	}
	longest uint64 // a longer field is not one of ours
	buf     []byte
}

// next returns io.EOF at the end, and nowhere else.
func (s *spoolReader) next() (d event.Draft, err error) {
	has, err := s.r.ReadByte()
	if err != nil {
		return d, err
	}
	var fields [5]string
	for i := range fields {
		n, err := binary.ReadUvarint(s.r)
		if err == nil && n > s.longest {
			err = io.ErrUnexpectedEOF
		}
		if err != nil {
			return d, noEOF(err)
		}
		if uint64(cap(s.buf)) < n {
			s.buf = make([]byte, n)
		}
		if _, err := io.ReadFull(s.r, s.buf[:n]); err != nil {
			return d, noEOF(err)
		}
		fields[i] = string(s.buf[:n])
	}
	window, err := binary.ReadUvarint(s.r)
	if err != nil {
		return d, noEOF(err)
	}
	d = event.Draft{Source: fields[0], Type: fields[1], Content: fields[3], DedupeKey: fields[4], DedupeWindow: time.Duration(window)}
	if has == 1 {
		d.Subtype = &fields[2]
	}
	return d, nil
}

// noEOF makes the end of the file inside a draft an error like others.
func noEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}
