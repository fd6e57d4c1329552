package pgstore

import (
	"bufio"
	"encoding/gob"
	"errors"
	"fmt"
	"io"
	"os"

	"thread/event"
)

// spool keeps drafts, many of them in a temporary file.
type spool struct {
	n    int64
	list []event.Draft
	size int

	file *os.File // nil: they are in list
	buf  *bufio.Writer
	enc  *gob.Encoder
}

const (
	spoolDrafts = 10_000
	spoolBytes  = 8 << 20
)

// spooled is a draft: gob makes no difference between a pointer to "" and none.
type spooled struct {
	Draft      event.Draft
	HasSubtype bool
}

func (s *spool) close() {
	if s.file != nil {
		_ = s.file.Close()
		_ = os.Remove(s.file.Name())
	}
}

func (s *spool) add(d *event.Draft) error {
	s.n++
	if s.file != nil {
		return s.write(d)
	}
	s.list = append(s.list, *d)
	if s.size += len(d.Content) + len(d.Source) + len(d.Type); len(s.list) < spoolDrafts && s.size < spoolBytes {
		return nil
	}
	f, err := os.CreateTemp("", "thread-spool-")
	if err != nil {
		return err
	}
	s.file, s.buf = f, bufio.NewWriter(f)
	s.enc = gob.NewEncoder(s.buf)
	for i := range s.list {
		if err := s.write(&s.list[i]); err != nil {
			return err
		}
	}
	s.list = nil
	return nil
}

func (s *spool) write(d *event.Draft) error { return s.enc.Encode(spooled{*d, d.Subtype != nil}) }

func (s *spool) each(fn func(d *event.Draft) error) error {
	if s.file == nil {
		for i := range s.list {
			if err := fn(&s.list[i]); err != nil {
				return err
			}
		}
		return nil
	}
	if err := s.buf.Flush(); err != nil {
		return err
	}
	if _, err := s.file.Seek(0, io.SeekStart); err != nil {
		return err
	}
	dec := gob.NewDecoder(bufio.NewReader(s.file))
	for n := int64(0); ; n++ {
		var d spooled
		if err := dec.Decode(&d); errors.Is(err, io.EOF) && n == s.n {
			return nil
		} else if err != nil {
			return fmt.Errorf("spool: %w", err)
		}
		if d.HasSubtype && d.Draft.Subtype == nil {
			d.Draft.Subtype = event.Text("")
		}
		if err := fn(&d.Draft); err != nil {
			return err
		}
	}
}
