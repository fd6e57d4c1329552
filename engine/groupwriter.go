package engine

import (
	"bytes"
	"encoding/binary"
	"math"

	"go.etcd.io/bbolt"

	"thread/index"
)

// groupWriter appends events to bucket events in groups. The newest group is put
// when it is full, and by flush.
type groupWriter struct {
	events *bbolt.Bucket
	pieces func() (*bbolt.Bucket, error)

	g       group  // the newest group; its key is nil when there is none
	buf     []byte // its value, without the crc
	before  int    // the length of the first of the pair; -1: this is the first
	unsaved bool   // buf is not what was put
	slab    []byte // room for values, which bbolt keeps until the commit
}

// resume makes the newest group of the bucket the one to append to.
func (w *groupWriter) resume() error {
	k, v := w.events.Cursor().Last()
	if k == nil {
		return nil
	}
	g, err := openGroup(k, v)
	if err != nil {
		return err
	}
	w.before = -1
	switch g.form {
	case groupFirst:
	case groupSecond:
		before, _ := binary.Uvarint(v[1:])
		if before > math.MaxInt32 {
			return corruptEvent(k)
		}
		w.before = int(before)
	default:
		return corruptEvent(k)
	}
	if err := g.end(); err != nil {
		return err
	}
	g.key = bytes.Clone(k)
	w.g, w.buf = g, append(w.buf[:0], v[:len(v)-sumBytes]...)
	return nil
}

// add appends an event whose id is above all others.
func (w *groupWriter) add(id int64, series uint32, at *timeText, content string) error {
	e := appended{id: id, series: series, at: at, content: content}
	if e.inPieces = len(content) > largeBytes; e.inPieces {
		e.content, e.size = "", len(content)
		b, err := w.pieces()
		if err == nil {
			e.sum, err = putPieces(b, id, content)
		}
		if err != nil {
			return err
		}
	}
	return w.append(&e)
}

// append is add for an event whose pieces are there.
func (w *groupWriter) append(e *appended) error {
	if w.g.key != nil {
		g, n := w.g, len(w.buf)
		if w.buf = g.append(w.buf, e); len(w.buf)+sumBytes <= w.limit(n, len(w.buf)-n) {
			w.g, w.unsaved = g, true
			return nil
		}
		w.buf = w.buf[:n]
		if err := w.flush(); err != nil {
			return err
		}
	}
	if w.g.key != nil && w.before < 0 {
		w.before = len(w.buf) + sumBytes
		w.buf = binary.AppendUvarint(append(w.buf[:0], groupSecond), uint64(w.before))
	} else {
		w.before = -1
		w.buf = append(w.buf[:0], groupFirst)
	}
	w.g = group{key: eventKey(e.id)}
	w.buf = w.g.append(w.buf, e)
	w.unsaved = true
	return nil
}

// limit returns how long the value of the newest group may become with an event
// of size bytes. The length of the value now is n, without the crc.
func (w *groupWriter) limit(n, size int) int {
	pages := 1
	if size > pageEventBytes {
		pages = 2
	}
	if w.before < 0 {
		return pairBytes(pages) / 2
	}
	for pairBytes(pages) < w.before+n+sumBytes {
		pages++ // an event was larger than what the first one had left
	}
	return pairBytes(pages) - w.before
}

// flush puts the newest group, which can be appended to afterwards.
func (w *groupWriter) flush() error {
	if !w.unsaved {
		return nil
	}
	if need := len(w.buf) + sumBytes; cap(w.slab)-len(w.slab) < need {
		w.slab = make([]byte, 0, max(need, min(2*cap(w.slab), 1<<20)))
	}
	start := len(w.slab)
	w.slab = append(w.slab, w.buf...)
	w.slab = binary.BigEndian.AppendUint32(w.slab, index.Sum(w.g.key, w.buf))
	w.unsaved = false
	return w.events.Put(w.g.key, w.slab[start:len(w.slab):len(w.slab)])
}
