// Package rec writes and reads records that consist of fields: a tag and a length as
// varints, and that many bytes. Empty fields are left out, and unknown ones are passed
// over, so that a record can get another field. A checksum over key and value ends it.
package rec

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"thread/index"
)

// ErrSum is returned for a record whose checksum does not fit.
var ErrSum = errors.New("checksum")

// Walk goes through the fields of a record in the order in which they are written. One
// function serves both directions, so that what is written and what is read cannot differ.
type Walk struct {
	decode bool
	b      []byte  // what is written
	in     []field // what is read
	next   int     // where the next one is looked for first
	err    error
}

type field struct {
	tag  uint64
	v    []byte
	seen bool
}

// Encode returns the record that fn writes for key.
func Encode(key []byte, fn func(w *Walk)) []byte {
	return index.AppendSum(Fields(fn), key)
}

// Fields returns what fn writes, without a checksum.
func Fields(fn func(w *Walk)) []byte {
	var w Walk
	fn(&w)
	return w.b
}

// Decode has fn read the record of key.
func Decode(key, value []byte, fn func(w *Walk)) error {
	b, ok := index.CheckSum(key, value)
	if !ok {
		return ErrSum
	}
	return read(b, fn)
}

func read(b []byte, fn func(w *Walk)) error {
	w := Walk{decode: true, in: make([]field, 0, 16)}
	for len(b) > 0 {
		tag, n := binary.Uvarint(b)
		size, m := binary.Uvarint(b[max(n, 0):])
		if n <= 0 || m <= 0 || size > uint64(len(b)-n-m) {
			return errors.New("fields")
		}
		end := n + m + int(size)
		w.in, b = append(w.in, field{tag: tag, v: b[n+m : end]}), b[end:]
	}
	fn(&w)
	return w.err
}

// field returns the field that is read, nil for none.
func (w *Walk) field(tag uint64) *field {
	for range w.in {
		if w.next >= len(w.in) {
			w.next = 0
		}
		f := &w.in[w.next]
		w.next++
		if f.tag == tag {
			f.seen = true
			return f
		}
	}
	return nil
}

func (w *Walk) put(tag uint64, v string) {
	w.b = binary.AppendUvarint(w.b, tag)
	w.b = append(binary.AppendUvarint(w.b, uint64(len(v))), v...)
}

// whole is a number of 8 bytes, which is written if keep is set. It reports whether it was
// read.
func (w *Walk) whole(tag uint64, n *uint64, keep bool) bool {
	if !w.decode {
		if keep {
			w.put(tag, string(binary.BigEndian.AppendUint64(nil, *n)))
		}
		return false
	}
	f := w.field(tag)
	if f == nil {
		return false
	}
	if len(f.v) != 8 {
		w.err = fmt.Errorf("a number of %d bytes", len(f.v))
		return false
	}
	*n = binary.BigEndian.Uint64(f.v)
	return true
}

// Uint is a number that is always written.
func (w *Walk) Uint(tag uint64, n *uint64) { w.whole(tag, n, true) }

// Int is a number; 0 is left out.
func (w *Walk) Int(tag uint64, n *int64) {
	u := uint64(*n)
	if w.whole(tag, &u, u != 0) {
		*n = int64(u)
	}
}

// Duration is one in nanoseconds; 0 is left out.
func (w *Walk) Duration(tag uint64, d *time.Duration) { w.Int(tag, (*int64)(d)) }

// OptDuration is one in nanoseconds; nil is left out.
func (w *Walk) OptDuration(tag uint64, d **time.Duration) {
	var u uint64
	if *d != nil {
		u = uint64(**d)
	}
	if w.whole(tag, &u, *d != nil) {
		v := time.Duration(u)
		*d = &v
	}
}

// Millis is a duration in milliseconds; 0 is left out.
func (w *Walk) Millis(tag uint64, d *time.Duration) {
	n := d.Milliseconds()
	w.Int(tag, &n)
	*d = time.Duration(n) * time.Millisecond
}

// Time is a time in milliseconds since 1970; the zero time is left out.
func (w *Walk) Time(tag uint64, t *time.Time) {
	u := uint64(t.UnixMilli())
	if w.whole(tag, &u, !t.IsZero() && u != 0) {
		*t = time.UnixMilli(int64(u))
	}
}

// Must is a text that is always written.
func (w *Walk) Must(tag uint64, s *string) {
	if !w.decode {
		w.put(tag, *s)
	} else if f := w.field(tag); f != nil {
		*s = string(f.v)
	}
}

// Text is a text; "" is left out.
func (w *Walk) Text(tag uint64, s *string) {
	if w.decode || *s != "" {
		w.Must(tag, s)
	}
}

// Opt is a text; nil is left out.
func (w *Walk) Opt(tag uint64, s **string) {
	if !w.decode && *s != nil {
		w.put(tag, **s)
	} else if f := w.field(tag); f != nil {
		v := string(f.v)
		*s = &v
	}
}

// Flag is an empty field, or none for false.
func (w *Walk) Flag(tag uint64, v *bool) {
	if !w.decode && *v {
		w.put(tag, "")
	} else if w.decode {
		*v = w.field(tag) != nil
	}
}

// Record is a field of fields, which is written if keep is set.
func (w *Walk) Record(tag uint64, keep bool, fn func(w *Walk)) {
	if !w.decode {
		if keep {
			w.put(tag, string(Fields(fn)))
		}
		return
	}
	if f := w.field(tag); f != nil {
		if err := read(f.v, fn); err != nil {
			w.err = err
		}
	}
}

// List is a list of records, each in a separate field; an empty one is left out.
func List[T any](w *Walk, tag uint64, list *[]T, fn func(one *T, w *Walk)) {
	if !w.decode {
		for i := range *list {
			w.put(tag, string(Fields(func(w *Walk) { fn(&(*list)[i], w) })))
		}
		return
	}
	for i := range w.in {
		f := &w.in[i]
		if f.tag != tag {
			continue
		}
		f.seen = true
		var one T
		if err := read(f.v, func(w *Walk) { fn(&one, w) }); err != nil {
			w.err = err
		}
		*list = append(*list, one)
	}
}

// Has reports whether a field is written: it is not zero, or was read.
func (w *Walk) Has(tag uint64, v bool) bool {
	if w.decode {
		return w.field(tag) != nil
	}
	return v
}

// Rest calls fn with the fields that were not read.
func (w *Walk) Rest(fn func(tag uint64, v []byte)) {
	for _, f := range w.in {
		if !f.seen {
			fn(f.tag, f.v)
		}
	}
}

// Raw writes a field as it is.
func (w *Walk) Raw(tag uint64, v []byte) {
	if !w.decode {
		w.put(tag, string(v))
	}
}
