package bolt

import (
	"encoding/binary"
	"errors"
	"io"
	"os"
	"slices"
	"time"

	"thread/event"
)

// spool holds the drafts of a long batch in an unlinked temporary file.
type spool struct {
	dir  string
	f    *os.File
	part []byte // not yet written
	n    int64
}

// spoolPartBytes is how much is written, and later decoded, at a time.
const spoolPartBytes = 256 << 10

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
	}
	for i := range ds {
		s.part = appendDraft(s.part, &ds[i])
		if len(s.part) >= spoolPartBytes || i == len(ds)-1 {
			if err := s.flush(); err != nil {
				return err
			}
		}
	}
	s.n += int64(len(ds))
	return nil
}

// flush writes a part: its length in 8 bytes, and drafts.
func (s *spool) flush() error {
	head := binary.LittleEndian.AppendUint64(nil, uint64(len(s.part)))
	defer func() { s.part = s.part[:0] }()
	if _, err := s.f.Write(head); err != nil {
		return err
	}
	_, err := s.f.Write(s.part)
	return err
}

func (s *spool) close() {
	if s.f != nil {
		s.f.Close()
		os.Remove(s.f.Name())
	}
}

// reader returns the drafts from the beginning.
func (s *spool) reader() (*spoolReader, error) {
	_, err := s.f.Seek(0, io.SeekStart)
	return &spoolReader{f: s.f}, err
}

type spoolReader struct {
	f    *os.File
	buf  []byte
	rest []event.Draft // of the part that was read
}

// next returns the next draft. There is an end only where the file was cut short.
func (r *spoolReader) next() (d event.Draft, err error) {
	for len(r.rest) == 0 && err == nil {
		var head [8]byte
		if _, err = io.ReadFull(r.f, head[:]); err == nil {
			n := int(binary.LittleEndian.Uint64(head[:]))
			r.buf = slices.Grow(r.buf[:0], n)[:n]
			_, err = io.ReadFull(r.f, r.buf)
		}
		if err == nil {
			r.rest, err = decodeDrafts(string(r.buf))
		}
	}
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		return d, err
	}
	d, r.rest = r.rest[0], r.rest[1:]
	return d, nil
}

// appendDraft appends d in the form that decodeDrafts reads.
func appendDraft(b []byte, d *event.Draft) []byte {
	sub, has := "", byte(0)
	if d.Subtype != nil {
		sub, has = *d.Subtype, 1
	}
	b = append(b, has)
	for _, f := range [...]string{d.Source, d.Type, sub, d.Content, d.DedupeKey} {
		b = binary.AppendUvarint(b, uint64(len(f)))
		b = append(b, f...)
	}
	return binary.AppendUvarint(b, uint64(d.DedupeWindow))
}

// decodeDrafts returns the drafts of which b consists; their texts are parts of b.
// The error is io.ErrUnexpectedEOF when it ends inside a draft.
func decodeDrafts(b string) (ds []event.Draft, err error) {
	number := func() uint64 {
		n, w := binary.Uvarint([]byte(b[:min(len(b), binary.MaxVarintLen64)]))
		if w <= 0 {
			err = io.ErrUnexpectedEOF
			return 0
		}
		b = b[w:]
		return n
	}
	text := func() (s string) {
		n := number()
		if n > uint64(len(b)) {
			err = io.ErrUnexpectedEOF
			return ""
		}
		s, b = b[:n], b[n:]
		return s
	}
	for len(b) > 0 && err == nil {
		has := b[0]
		b = b[1:]
		d := event.Draft{Source: text(), Type: text()}
		if sub := text(); has == 1 {
			d.Subtype = &sub
		}
		d.Content, d.DedupeKey, d.DedupeWindow = text(), text(), time.Duration(number())
		ds = append(ds, d)
	}
	if err != nil {
		return nil, err
	}
	return ds, nil
}
