// Package journal keeps the newest transactions of a database in a file of fixed length,
// one record each, so that a commit needs one sync and one page.
//
// The file has 128 slots of 4 KiB. A record begins at a slot and takes as many as it is
// long:
//
//	 0 crc 4     CRC-32C of the bytes from 4 up to length
//	 4 length 4  in bytes, with this header
//	 8 epoch 8   of the commit of events.db that the record continues
//	16 salt 8    of the same commit
//	24 number 4  of the record, from 0
//	28 before 4  crc of the record before, 0 for the first
//	32 changes   as package index encodes them
//
// All numbers are big-endian. The first record of a new base takes slot 0 again, and what
// the slots behind it hold belongs to an earlier base. A record is appended only after
// the one before was synced. So only the last record can be torn by a loss of power, and
// a record of the same base behind a gap is damage.
package journal

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"sync"

	"thread/index"
)

const (
	SlotBytes = 4096
	Slots     = 128
	Bytes     = Slots * SlotBytes

	headerBytes = 32
	sectorBytes = 512
	// MaxChanges is the length of the changes up to which they are journalled.
	MaxChanges = 64<<10 - headerBytes
	// FoldAt is the number of slots in use from which on a commit goes to events.db.
	FoldAt = 64
)

var (
	// ErrDamaged is returned for a record that is missing or damaged although later ones
	// are there.
	ErrDamaged = errors.New("the journal is damaged")
	// ErrOlder is returned for a database that is older than its journal.
	ErrOlder = errors.New("events.db is older than its journal")
)

// Base names a commit of events.db. Epochs rise with the commits of a thread; a salt is
// random, and never the same twice.
type Base struct{ Epoch, Salt uint64 }

// File is an open journal, and a place in it. It has no lock: the lock of events.db
// is held shared to read and exclusively to append.
type File struct {
	f      *os.File
	base   Base
	number uint32 // of the next record
	slot   int    // of the next record
	crc    uint32 // of the last record
	last   []byte // the last record, as it was read or written
	at     int    // its slot
	looked []byte // by Look, for the next one
}

// New returns the journal in a file, at its beginning.
func New(f *os.File, base Base) *File { return &File{f: f, base: base} }

// Make writes an empty journal into f, unless f is as long already. The caller syncs it.
func Make(f *os.File) error {
	info, err := f.Stat()
	if err != nil || info.Size() == Bytes {
		return err
	}
	zeros := make([]byte, 64<<10)
	for at := int64(0); at < Bytes; at += int64(len(zeros)) {
		if _, err := f.WriteAt(zeros, at); err != nil {
			return err
		}
	}
	return nil
}

// File returns the open file.
func (j *File) File() *os.File { return j.f }

// Position identifies the last record: what is appended changes it.
func (j *File) Position() (number, crc uint32) { return j.number, j.crc }

// Rebase moves to the beginning, for the records of another base.
func (j *File) Rebase(base Base) { *j = File{f: j.f, base: base, last: j.last[:0], looked: j.looked} }

// Epoch returns the epoch of the record in slot 0, 0 when that is not sound.
func Epoch(f *os.File) uint64 {
	w := newWindow(f)
	defer w.close()
	b, _ := w.slot(0)
	r, _ := parse(b) // not sound: without a base
	return r.base.Epoch
}

// record is a record that was read.
type record struct {
	base                Base
	number, before, crc uint32
	bytes               []byte
}

// parse reads the record at the beginning of b.
func parse(b []byte) (r record, ok bool) {
	if len(b) < headerBytes {
		return r, false
	}
	n := binary.BigEndian.Uint32(b[4:])
	if n < headerBytes || int64(n) > int64(len(b)) || n > MaxChanges+headerBytes {
		return r, false
	}
	r.crc = binary.BigEndian.Uint32(b)
	if index.Sum(nil, b[4:n]) != r.crc {
		return r, false
	}
	r.base = baseIn(b)
	r.number, r.before = binary.BigEndian.Uint32(b[24:]), binary.BigEndian.Uint32(b[28:])
	r.bytes = b[:n:n]
	return r, true
}

func baseIn(b []byte) Base {
	return Base{binary.BigEndian.Uint64(b[8:]), binary.BigEndian.Uint64(b[16:])}
}

// slotsOf returns how many slots n bytes take.
func slotsOf(n int) int { return (n + SlotBytes - 1) / SlotBytes }

// readAhead is the number of slots behind the last sound record in which Read looks for more:
// the slots of a record that cannot be read, and the one after it.
const readAhead = (MaxChanges+headerBytes)/SlotBytes + 1

// Read calls apply with the changes of each record from the present place on. It returns
// ErrDamaged when records of this base lie behind the last sound one, and ErrOlder when
// the journal belongs to a later base. Where all is set, it looks at the whole file for
// them, and otherwise at the longest record and the slot after it.
func (j *File) Read(all bool, apply func(changes []byte) error) error {
	w := newWindow(j.f)
	defer w.close()
	for j.slot < Slots {
		b, err := w.slot(j.slot)
		if err != nil {
			return err
		}
		r, ok := parse(b)
		if ok && r.base != j.base && j.slot == 0 && r.base.Epoch >= j.base.Epoch {
			return ErrOlder
		}
		if !ok || r.base != j.base || r.number != j.number || r.before != j.crc {
			break
		}
		if err := apply(r.bytes[headerBytes:]); err != nil {
			return err
		}
		j.last = append(j.last[:0], r.bytes...)
		j.at, j.number, j.crc = j.slot, r.number+1, r.crc
		j.slot += slotsOf(len(r.bytes))
	}
	end := Slots
	if !all {
		end = min(j.slot+readAhead, Slots)
	}
	for slot := j.slot; slot < end; slot++ {
		b, err := w.slot(slot)
		if err != nil {
			return err
		}
		if baseIn(b) != j.base { // most are of an earlier base
			continue
		}
		if r, ok := parse(b); ok && r.number >= j.number {
			return fmt.Errorf("%w: record %d cannot be read, and record %d is there", ErrDamaged, j.number, r.number)
		}
	}
	return nil
}

// window is a part of the file that was read in one go.
type window struct {
	f   *os.File
	at  int64
	b   []byte // of all
	all *[windowBytes]byte
}

// windowBytes is how much is read at once, more than the longest record.
const windowBytes = readAhead * SlotBytes

var windows = sync.Pool{New: func() any { return new([windowBytes]byte) }}

func newWindow(f *os.File) *window { return &window{f: f, all: windows.Get().(*[windowBytes]byte)} }

// close ends the use of all that was read.
func (w *window) close() { windows.Put(w.all) }

// slot returns the bytes from the beginning of a slot on, as many as the record there says
// that it has, and at least a slot.
func (w *window) slot(n int) ([]byte, error) {
	at := int64(n) * SlotBytes
	b, err := w.read(at, SlotBytes)
	if err != nil {
		return nil, err
	}
	if len(b) < SlotBytes {
		return nil, fmt.Errorf("%w: it has %d bytes, expected %d", ErrDamaged, at+int64(len(b)), Bytes)
	}
	if length := int(binary.BigEndian.Uint32(b[4:])); length > SlotBytes && length <= min(MaxChanges+headerBytes, Bytes-int(at)) {
		return w.read(at, length)
	}
	return b[:SlotBytes], nil
}

// read returns n bytes at a place, fewer at the end of the file.
func (w *window) read(at int64, n int) ([]byte, error) {
	if at < w.at || at+int64(n) > w.at+int64(len(w.b)) {
		m, err := w.f.ReadAt(w.all[:], at)
		if w.at, w.b = at, w.all[:m]; err != nil && !errors.Is(err, io.EOF) {
			return nil, err
		}
	}
	b := w.b[at-w.at:]
	return b[:min(n, len(b))], nil
}

// Look reports whether the record that was read last is still in its place, and whether
// there may be more: the next slot is not empty, and not of an earlier base.
func (j *File) Look() (there, more bool) {
	n := slotsOf(len(j.last)) * SlotBytes
	j.looked = slices.Grow(j.looked[:0], n+headerBytes)[:n+headerBytes]
	b := j.looked
	m, _ := j.f.ReadAt(b, int64(j.at)*SlotBytes)
	if m < n || !bytes.Equal(b[:len(j.last)], j.last) {
		return false, true
	}
	if m < len(b) {
		return true, j.slot < Slots
	}
	next := b[n:]
	epoch := binary.BigEndian.Uint64(next[8:])
	return true, epoch >= j.base.Epoch || epoch == 0 && [headerBytes]byte(next) != [headerBytes]byte{}
}

// Sound calls apply with the changes of each sound record of the newest base, in order,
// whatever is damaged between them. Of bases with one epoch, what lies behind is older.
func Sound(f *os.File, apply func(changes []byte)) {
	buf := make([]byte, Bytes)
	n, _ := f.ReadAt(buf, 0)
	each := func(fn func(r record)) {
		for at := 0; at < n; {
			r, ok := parse(buf[at:n])
			if ok {
				fn(r)
			}
			at += max(1, slotsOf(len(r.bytes))) * SlotBytes
		}
	}
	var newest Base
	each(func(r record) {
		if r.base.Epoch > newest.Epoch {
			newest = r.base
		}
	})
	next := uint32(0)
	each(func(r record) {
		if r.base == newest && r.number >= next {
			apply(r.bytes[headerBytes:])
			next = r.number + 1
		}
	})
}

// Room reports whether changes of that length are to be appended. Otherwise they go to
// events.db.
func (j *File) Room(n int) bool {
	return n <= MaxChanges && j.slot < FoldAt // and so the longest record has its slots
}

// Append writes a record and syncs it. When it fails, the outcome is unknown if written.
func (j *File) Append(changes []byte) (written bool, err error) {
	n := headerBytes + len(changes)
	b := make([]byte, headerBytes, (n+sectorBytes-1)/sectorBytes*sectorBytes)
	binary.BigEndian.PutUint32(b[4:], uint32(n))
	binary.BigEndian.PutUint64(b[8:], j.base.Epoch)
	binary.BigEndian.PutUint64(b[16:], j.base.Salt)
	binary.BigEndian.PutUint32(b[24:], j.number)
	binary.BigEndian.PutUint32(b[28:], j.crc)
	b = append(b, changes...)
	crc := index.Sum(nil, b[4:n])
	binary.BigEndian.PutUint32(b, crc)
	if _, err := j.f.WriteAt(b[:cap(b)], int64(j.slot)*SlotBytes); err != nil {
		return j.mayHave(b[:n]), err
	}
	if err := syncData(j.f); err != nil {
		return true, err
	}
	j.last, j.at, j.crc = b[:n], j.slot, crc
	j.number++
	j.slot += slotsOf(n)
	return true, nil
}

// mayHave reports whether a record may be in its place after its write has failed, as [os.File]
// does not tell how much it wrote. A part of a record is none.
func (j *File) mayHave(record []byte) bool {
	have := make([]byte, len(record))
	n, err := j.f.ReadAt(have, int64(j.slot)*SlotBytes)
	return bytes.Equal(have[:n], record) || err != nil && !errors.Is(err, io.EOF)
}

// Settle makes the last record durable. After a failed sync the kernel takes a page for
// clean, so the record is written again.
func (j *File) Settle() error {
	if len(j.last) > 0 {
		if _, err := j.f.WriteAt(j.last, int64(j.at)*SlotBytes); err != nil {
			return err
		}
	}
	return syncData(j.f)
}

// Close closes the file.
func (j *File) Close() error { return j.f.Close() }
