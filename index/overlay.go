package index

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"slices"
)

// Overlay holds changes to the buckets of a database that its pages do not have yet.
// It owns what it holds.
type Overlay struct {
	layers   []*layer // in the order of their names
	writable bool
}

// layer holds the changes to one bucket. The changes of the present transaction are touched.
type layer struct {
	name     []byte
	entries  []*entry // in the order of their keys
	hidden   bool     // what the database has under that name is dropped
	made     bool     // the bucket exists, whether the database has it or not
	numbered bool     // sequence is set
	sequence uint64

	dropped, created, counted bool // in the present transaction
}

// entry is a key that was put or deleted.
type entry struct {
	key, value []byte // the value is nil when the key is deleted
	was        []byte // before the present transaction, where that is of use
	touched    bool
}

// SetWritable lets the buckets that are opened from now on be written to, or not.
func (o *Overlay) SetWritable(is bool) { o.writable = is }

// layerOf returns the layer of a bucket. A writer gets an empty one where there is none.
func (o *Overlay) layerOf(name []byte) *layer {
	i := 0
	for i < len(o.layers) && bytes.Compare(o.layers[i].name, name) < 0 {
		i++
	}
	if i < len(o.layers) && bytes.Equal(o.layers[i].name, name) {
		return o.layers[i]
	}
	if !o.writable {
		return nil
	}
	o.layers = append(o.layers, nil)
	copy(o.layers[i+1:], o.layers[i:])
	o.layers[i] = &layer{name: bytes.Clone(name)}
	return o.layers[i]
}

// names adds the buckets of the overlay to the sorted names of the database's buckets,
// and leaves out the hidden ones.
func (o *Overlay) names(stored []string) []string {
	for _, l := range o.layers {
		i, has := slices.BinarySearch(stored, string(l.name))
		switch {
		case has && l.hidden && !l.made:
			stored = slices.Delete(stored, i, i+1)
		case !has && l.made:
			stored = slices.Insert(stored, i, string(l.name))
		}
	}
	return stored
}

// from returns the place of the first entry whose key is not below key.
func (l *layer) from(key []byte) int {
	low, high := 0, len(l.entries)
	if high > 0 && bytes.Compare(l.entries[high-1].key, key) < 0 {
		return high // most keys only rise
	}
	for low < high {
		if mid := (low + high) / 2; bytes.Compare(l.entries[mid].key, key) < 0 {
			low = mid + 1
		} else {
			high = mid
		}
	}
	return low
}

// find returns the entry of a key, or nil.
func (l *layer) find(key []byte) *entry {
	if i := l.from(key); i < len(l.entries) && bytes.Equal(l.entries[i].key, key) {
		return l.entries[i]
	}
	return nil
}

// extended is the length of a value from which on a change of it is kept as what differs
// from the value before.
const extended = 48

func (o *Overlay) setSequence(l *layer, n uint64) error {
	l.numbered, l.counted, l.sequence = true, true, n
	return nil
}

func (o *Overlay) make(l *layer) { l.made, l.created = true, true }

func (o *Overlay) drop(l *layer) { *l = layer{name: l.name, hidden: true, dropped: true} }

// The changes of a transaction are the changes of each bucket:
//
//	name      uvarint length, and the bytes
//	kind      1  the sum of the bits below
//	sequence  uvarint, where kind has that bit
//	count     uvarint, of the keys
//	keys      each: key, uvarint length and bytes; kept uvarint, 0 when the key is
//	          deleted, else 1 + how much of the value before stays; the rest, as the key
const (
	changeDrop   = 1
	changeCreate = 2
	changeNumber = 4
)

// Changes returns the changes of the present transaction, nil when there is none.
func (o *Overlay) Changes() (b []byte) {
	for _, l := range o.layers {
		count := 0
		for _, e := range l.entries {
			if e.touched {
				count++
			}
		}
		kind := byte(0)
		for i, is := range [...]bool{l.dropped, l.created, l.counted} {
			if is {
				kind |= 1 << i
			}
		}
		if count == 0 && kind == 0 {
			continue
		}
		b = append(appendBytes(b, l.name), kind)
		if l.counted {
			b = binary.AppendUvarint(b, l.sequence)
		}
		b = binary.AppendUvarint(b, uint64(count))
		for _, e := range l.entries {
			if !e.touched {
				continue
			}
			b = appendBytes(b, e.key)
			if e.value == nil {
				b = append(b, 0)
				continue
			}
			kept := 0
			for kept < min(len(e.was), len(e.value)) && e.was[kept] == e.value[kept] {
				kept++
			}
			b = binary.AppendUvarint(b, uint64(kept)+1)
			b = appendBytes(b, e.value[kept:])
		}
	}
	return b
}

// Settled ends the present transaction, which was stored.
func (o *Overlay) Settled() {
	o.writable = false
	for _, l := range o.layers {
		l.dropped, l.created, l.counted = false, false, false
		for _, e := range l.entries {
			e.touched, e.was = false, nil
		}
	}
}

func appendBytes(b, text []byte) []byte {
	return append(binary.AppendUvarint(b, uint64(len(text))), text...)
}

// changeReader reads changes.
type changeReader struct {
	b   []byte
	bad bool
}

func (r *changeReader) number() uint64 {
	n, size := binary.Uvarint(r.b)
	if size <= 0 {
		r.b, r.bad = nil, true
		return 0
	}
	r.b = r.b[size:]
	return n
}

func (r *changeReader) text() []byte {
	n := r.number()
	if n > uint64(len(r.b)) {
		r.b, r.bad = nil, true
		return nil
	}
	text := r.b[:n]
	r.b = r.b[n:]
	return text
}

// Apply adds the changes of a transaction to the overlay. Stored returns the value of a key
// in the database, nil where there is none.
func (o *Overlay) Apply(changes []byte, stored func(name, key []byte) ([]byte, error)) error {
	o.writable = true
	defer o.Settled()
	damaged := fmt.Errorf("%w: changes in the journal", ErrDamaged)
	for r := (changeReader{b: changes}); len(r.b) > 0; {
		name := r.text()
		kind := r.number()
		if r.bad || kind > changeDrop|changeCreate|changeNumber {
			return damaged
		}
		l := o.layerOf(name)
		if kind&changeDrop != 0 {
			o.drop(l)
		}
		if kind&changeCreate != 0 {
			o.make(l)
		}
		if kind&changeNumber != 0 {
			_ = o.setSequence(l, r.number())
		}
		for n := r.number(); n > 0 && !r.bad; n-- {
			key, kept := r.text(), r.number()
			if len(key) == 0 {
				return damaged
			}
			if kept == 0 {
				l.entry(key).value = nil
				continue
			}
			rest := r.text()
			if kept--; kept > 0 {
				was, err := l.value(key, stored)
				if err != nil {
					return err
				}
				if kept > uint64(len(was)) {
					return damaged
				}
				rest = append(was[:kept:kept], rest...)
			}
			l.entry(key).value = append([]byte{}, rest...)
		}
		if r.bad {
			return damaged
		}
	}
	return nil
}

// value returns the value of a key as it is now.
func (l *layer) value(key []byte, stored func(name, key []byte) ([]byte, error)) ([]byte, error) {
	if e := l.find(key); e != nil {
		return e.value, nil
	}
	if l.hidden {
		return nil, nil
	}
	return stored(l.name, key)
}

// entry returns the entry of a key, a new one where there is none.
func (l *layer) entry(key []byte) *entry {
	i := l.from(key)
	if i == len(l.entries) || !bytes.Equal(l.entries[i].key, key) {
		l.entries = append(l.entries, nil)
		copy(l.entries[i+1:], l.entries[i:])
		l.entries[i] = &entry{key: bytes.Clone(key)}
	}
	return l.entries[i]
}

// Changed is what an overlay has for a bucket.
type Changed struct {
	Name     []byte
	Dropped  bool    // what the database has is not part of it
	Made     bool    // it exists, whether the database has it or not
	Sequence *uint64 // nil: as in the database
	Keys     []ChangedKey
}

// ChangedKey is a key with its value, nil when it is deleted.
type ChangedKey struct{ Key, Value []byte }

// Changed returns all changes, in the order of the names and the keys.
func (o *Overlay) Changed() (all []Changed) {
	for _, l := range o.layers {
		c := Changed{Name: l.name, Dropped: l.hidden, Made: l.made, Keys: make([]ChangedKey, len(l.entries))}
		if l.numbered {
			c.Sequence = &l.sequence
		}
		for i, e := range l.entries {
			c.Keys[i] = ChangedKey{e.key, e.value}
		}
		all = append(all, c)
	}
	return all
}

// Empty reports whether there are no changes.
func (o *Overlay) Empty() bool { return o == nil || len(o.layers) == 0 }
