package bolt

import (
	"bytes"
	"encoding/binary"
	"math"

	"thread/index"
	"thread/internal/store/bolt/disk"
)

// groupWriter appends events to bucket events in groups. The newest group is put
// when it is full, and by flush.
type groupWriter struct {
	events *index.Bucket
	pieces func() (*index.Bucket, error)

	g       disk.Group // the newest group; its key is nil when there is none
	buf     []byte     // its value, without the crc
	before  int        // the length of the first of the pair; -1: this is the first
	unsaved bool       // buf is not what was put
	slab    []byte     // space for values, which bbolt keeps until the commit
}

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
	switch g.Form {
	case disk.GroupFirst:
	case disk.GroupSecond:
		before, _ := binary.Uvarint(v[1:])
		if before > math.MaxInt32 {
			return disk.CorruptEvent(k)
		}
		w.before = int(before)
	default:
		return disk.CorruptEvent(k)
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

// flush puts the newest group, which can be appended to afterwards.
func (w *groupWriter) flush() error {
	if !w.unsaved {
		return nil
	}
	if need := len(w.buf) + disk.SumBytes; cap(w.slab)-len(w.slab) < need {
		w.slab = make([]byte, 0, max(need, min(2*cap(w.slab), 1<<20)))
	}
	start := len(w.slab)
	w.slab = append(w.slab, w.buf...)
	w.slab = binary.BigEndian.AppendUint32(w.slab, index.Sum(w.g.Key, w.buf))
	w.unsaved = false
	return w.events.Put(w.g.Key, w.slab[start:len(w.slab):len(w.slab)])
}
