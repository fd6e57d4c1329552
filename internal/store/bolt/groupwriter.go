package bolt

import (
	"bytes"
	"encoding/binary"
	"math"
	"unsafe"

	"thread/event"
	"thread/index"
	"thread/internal/store"
	"thread/internal/store/bolt/disk"
)

// resume makes the newest group of the bucket the one to append to.
func (w *groupWriter) resume() error {
	k, v := w.events.Cursor().Last()
	if k == nil {
		return nil
	}
	g, err := disk.OpenGroup(k, v)
	if err != nil {
		return err
	}
	w.before = -1
	if g.Form == disk.GroupSecond {
		before, _ := binary.Uvarint(v[1:])
		if before > math.MaxInt32 {
			return disk.CorruptEvent(k)
		}
		w.before = int(before)
	}
	if err := g.End(); err != nil {
		return err
	}
	g.Key = bytes.Clone(k)
	w.g, w.buf = g, append(w.buf[:0], v[:len(v)-disk.SumBytes]...)
	return nil
}

// add appends an event whose id is above all others.
func (w *groupWriter) add(id int64, series uint32, at *disk.TimeText, content string) error {
	e := disk.Appended{ID: id, Series: series, At: at, Content: content}
	if e.InPieces = len(content) > disk.LargeBytes; e.InPieces {
		e.Content, e.Size = "", len(content)
		b, err := w.pieces()
		if err != nil {
			return err
		}
		e.Sum, err = putPieces(b, id, content)
		if err != nil {
			return err
		}
	}
	return w.append(&e)
}

// putPieces stores a large content and returns its checksum. bbolt keeps the
// content until the commit.
func putPieces(b *index.Bucket, id int64, content string) (sum uint32, err error) {
	rest := unsafe.Slice(unsafe.StringData(content), len(content))
	keys := make([]byte, 0, (len(rest)+disk.PieceBytes-1)/disk.PieceBytes*disk.PieceKeyBytes)
	for n := uint32(0); len(rest) > 0; n++ {
		piece := rest[:min(len(rest), disk.PieceBytes)]
		rest = rest[len(piece):]
		start := len(keys)
		keys = binary.BigEndian.AppendUint64(keys, uint64(id))
		keys = binary.BigEndian.AppendUint32(keys, n)
		crc := index.Sum(keys[start:], piece)
		keys = binary.BigEndian.AppendUint32(keys, crc)
		sum = disk.NextSum(sum, crc)
		if err := b.Put(keys[start:len(keys):len(keys)], piece); err != nil {
			return 0, err
		}
	}
	return sum, nil
}

// append is add for an event whose pieces are there.
func (w *groupWriter) append(e *disk.Appended) error {
	if w.g.Key != nil {
		g, n := w.g, len(w.buf)
		if w.buf = g.Append(w.buf, e); len(w.buf)+disk.SumBytes <= w.limit(n, len(w.buf)-n) {
			w.g, w.unsaved = g, true
			return nil
		}
		w.buf = w.buf[:n]
		if err := w.flush(); err != nil {
			return err
		}
	}
	if w.g.Key != nil && w.before < 0 {
		w.before = len(w.buf) + disk.SumBytes
		w.buf = binary.AppendUvarint(append(w.buf[:0], disk.GroupSecond), uint64(w.before))
	} else {
		w.before = -1
		w.buf = append(w.buf[:0], disk.GroupFirst)
	}
	w.g = disk.Group{Key: disk.EventKey(e.ID)}
	w.buf = w.g.Append(w.buf, e)
	w.unsaved = true
	return nil
}

// limit returns how long the value of the newest group may become with an event
// of size bytes. The length of the value now is n, without the crc.
func (w *groupWriter) limit(n, size int) int {
	pages := 1
	if size > disk.PageEventBytes {
		pages = 2
	}
	if w.before < 0 {
		return disk.PairBytes(pages) / 2
	}
	for disk.PairBytes(pages) < w.before+n+disk.SumBytes {
		pages++ // an event was larger than what the first one had left
	}
	return disk.PairBytes(pages) - w.before
}

// maxFresh is how many new series of a batch wait for their keys to be put in order.
const maxFresh = 100_000

// Append implements store.Tx.
func (tx *Tx) Append(d *event.Draft, createdAt string) (event.Event, error) {
	if tx.st.LastID == math.MaxInt64 {
		return event.Event{}, store.ErrIDsExhausted
	}
	e := event.Event{ID: tx.st.LastID + 1, CreatedAt: createdAt, Source: d.Source, Type: d.Type, Subtype: d.Subtype, Content: d.Content}
	return e, tx.insert(&e)
}

// insert stores an event whose id is above all others.
func (tx *Tx) insert(e *event.Event) error {
	series, err := tx.dict().Add(e.Source, e.Type, e.Subtype, e.ID)
	if err != nil {
		return err
	}
	if err := tx.putEvent(e, series); err != nil {
		return err
	}
	if err := tx.addToColumn(e.ID, series); err != nil {
		return err
	}
	tx.st.Head, tx.st.LastID = e.ID, e.ID
	tx.st.Count++
	tx.st.Stored++
	tx.changed = true
	if tx.pushed != nil {
		tx.pushed(e)
	}
	return nil
}

// putEvent stores an event in bucket events.
func (tx *Tx) putEvent(e *event.Event, series uint32) error {
	events, err := tx.eventBucket()
	if err != nil {
		return err
	}
	tx.createdAt.SetText(e.CreatedAt)
	if tx.groups.g.Key == nil {
		tx.groups.events, tx.groups.pieces = events, tx.piecesBucket
		if err := tx.groups.resume(); err != nil {
			return err
		}
	}
	return tx.groups.add(e.ID, series, &tx.createdAt, e.Content)
}

// piecesBucket returns the bucket for large contents, in a write transaction.
func (tx *Tx) piecesBucket() (*index.Bucket, error) {
	if tx.pieces == nil {
		b, err := tx.later(store.Pieces)
		if err != nil {
			return nil, err
		}
		if err = index.CheckLast(b); err != nil {
			return nil, err
		}
		b.SetFill(1)
		tx.pieces = b
	}
	return tx.pieces, nil
}

// saveState writes the state if the transaction changed it.
func (tx *Tx) saveState() error {
	if err := tx.groups.flush(); err != nil {
		return err
	}
	atLeast := 0
	if tx.goesOn {
		atLeast = maxFresh
	}
	if tx.series != nil {
		if err := tx.series.Flush(atLeast); err != nil {
			return err
		}
	}
	if !tx.changed {
		return nil
	}
	return tx.meta.Put(disk.KeyState, tx.st.Encode())
}
