package bolt

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	"thread/event"
	"thread/index"
	"thread/internal/store"
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

// A receipt says what became of the drafts of a pending write. It is valid if and only
// if its crc fits and it has this form:
//
//	created_at 8  milliseconds since 1970, of the new events
//	drafts        for each draft, in order, a uvarint: twice the id of its event,
//	              plus one if that was there before (a duplicate)
//	crc        4

// storePending stores the drafts of the pending writes that were taken, with a receipt
// for each, and drops the receipts that no process waits for.
func (tx *Tx) storePending(s store.Session, others *pendingWrites, createdAt string) error {
	if others.all {
		if err := tx.dropReceipts(others.waiting); err != nil {
			return err
		}
	}
	if len(others.taken) == 0 {
		return nil
	}
	receipts, err := tx.later(store.Receipts)
	if err != nil {
		return err
	}
	ms, _ := event.ParseTime(createdAt)
	for _, o := range others.taken {
		r := binary.BigEndian.AppendUint64(nil, uint64(ms))
		for i := range o.drafts {
			e, duplicate, err := s.Push(&o.drafts[i], createdAt)
			if err != nil {
				return err
			}
			n := uint64(e.ID) << 1
			if duplicate {
				n |= 1
			}
			r = binary.AppendUvarint(r, n)
		}
		if err := index.Put(receipts, o.token, index.AppendSum(r, o.token)); err != nil {
			return err
		}
	}
	return nil
}

// dropReceipts drops the receipts of all who are not waiting any more.
func (tx *Tx) dropReceipts(waiting map[string]bool) error {
	receipts, err := tx.table(store.Receipts)
	if receipts == nil {
		return err
	}
	var over [][]byte
	err = index.Range(receipts, nil, func(k, _ []byte) (bool, error) {
		if !waiting[string(k)] {
			over = append(over, bytes.Clone(k))
		}
		return true, nil
	})
	if err != nil {
		return err
	}
	return index.DeleteAll(receipts, over)
}

// receipt fills in the events of group, if there is a receipt for token.
func (tx *Tx) receipt(token []byte, group []*write) (ok bool, err error) {
	receipts, err := tx.table(store.Receipts)
	if receipts == nil {
		return false, err
	}
	v, err := index.Get(receipts, token)
	if v == nil {
		return false, err
	}
	b, whole := index.CheckSum(token, v)
	if !whole || len(b) < 8 {
		return false, corruptReceipt(token)
	}
	createdAt := string(event.AppendTime(nil, int64(binary.BigEndian.Uint64(b))))
	b = b[8:]
	subscribed := tx.t.Logic.Subscribed(tx)
	for _, w := range group {
		es := make([]event.Event, len(w.drafts))
		w.pushed = store.Pushed{Events: es, Subscribed: subscribed}
		for i := range w.drafts {
			d := &w.drafts[i]
			n, size := binary.Uvarint(b)
			if size <= 0 {
				return false, corruptReceipt(token)
			}
			b = b[size:]
			if n&1 == 0 {
				es[i] = event.Event{ID: int64(n >> 1), CreatedAt: createdAt, Source: d.Source, Type: d.Type, Subtype: d.Subtype, Content: d.Content}
				continue
			}
			if es[i], _, err = tx.Event(int64(n >> 1)); err != nil {
				return false, err
			}
			w.pushed.Duplicates = append(w.pushed.Duplicates, store.Duplicate{Index: int64(i), ID: es[i].ID})
		}
	}
	return true, nil
}

func corruptReceipt(token []byte) error {
	return fmt.Errorf("%w: receipt %x", store.ErrCorrupt, token)
}
