package journal

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// must ends a test with an error.
func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// filled returns a journal with a record of each of these lengths. Record n is full of n+1.
func filled(t *testing.T, base Base, lengths ...int) *File {
	t.Helper()
	j := New(open(t), base)
	for n, length := range lengths {
		if written, err := j.Append(bytes.Repeat([]byte{byte(n + 1)}, length)); err != nil || !written {
			t.Fatal(written, err)
		}
	}
	return j
}

// put writes b at a slot.
func put(t *testing.T, f *os.File, slot int, b []byte) {
	t.Helper()
	_, err := f.WriteAt(b, int64(slot)*SlotBytes)
	must(t, err)
}

// at returns n bytes from a slot on.
func at(t *testing.T, f *os.File, slot, n int) []byte {
	t.Helper()
	b := make([]byte, n)
	_, err := f.ReadAt(b, int64(slot)*SlotBytes)
	must(t, err)
	return b
}

// numbers reads a journal and returns the first byte of each record, less 1.
func numbers(f *os.File, base Base, all bool) (found []int, err error) {
	err = New(f, base).Read(all, func(c []byte) error { found = append(found, int(c[0])-1); return nil })
	return found, err
}

func TestMake(t *testing.T) {
	f := open(t)
	if info, err := f.Stat(); err != nil || info.Size() != Bytes {
		t.Fatal(info.Size(), err)
	}
	put(t, f, Slots-1, []byte("kept"))
	must(t, Make(f))
	if got := at(t, f, Slots-1, 4); string(got) != "kept" {
		t.Errorf("one that is as long already is written again: %q", got)
	}
	must(t, f.Truncate(Bytes-1)) // one that was killed while it was made
	put(t, f, 0, []byte("rubbish"))
	must(t, Make(f))
	if got := at(t, f, 0, Bytes); !bytes.Equal(got, make([]byte, Bytes)) {
		t.Error("it is not empty")
	}
	must(t, f.Truncate(0))
	read, err := os.Open(f.Name())
	must(t, err)
	defer read.Close()
	if err := Make(read); err == nil {
		t.Error("a file that cannot be written is made")
	}
	must(t, f.Close())
	if err := Make(f); !errors.Is(err, os.ErrClosed) {
		t.Error(err)
	}
	if err := f.Close(); !errors.Is(err, os.ErrClosed) {
		t.Error(err)
	}
}

// TestRoom: whatever there is room for can be appended and read back, and what is longer
// is not a record.
func TestRoom(t *testing.T) {
	base := Base{1, 1}
	j := New(nil, base)
	for _, tt := range []struct {
		slot, length int
		want         bool
	}{{0, 0, true}, {0, MaxChanges, true}, {0, MaxChanges + 1, false}, {FoldAt - 1, MaxChanges, true}, {FoldAt, 0, false}, {Slots, 0, false}} {
		if j.slot = tt.slot; j.Room(tt.length) != tt.want {
			t.Errorf("%d bytes at slot %d: %t", tt.length, tt.slot, !tt.want)
		}
	}
	lengths := []int{0, SlotBytes - headerBytes - 1, SlotBytes - headerBytes, SlotBytes - headerBytes + 1, MaxChanges}
	slots := []int{0, 1, 2, 3, 5, 21}
	j = New(open(t), base)
	for n, length := range lengths {
		if j.slot != slots[n] {
			t.Errorf("record %d begins at slot %d, want %d", n, j.slot, slots[n])
		}
		_, err := j.Append(bytes.Repeat([]byte{1}, length))
		must(t, err)
	}
	back, have, err := read(j.f, base)
	if err != nil || len(have) != len(lengths) || back.slot != slots[5] || !bytes.Equal(back.last, j.last) {
		t.Fatalf("%d records up to slot %d: %v", len(have), back.slot, err)
	}
	for n, c := range have {
		if len(c) != lengths[n] {
			t.Errorf("record %d has %d bytes, want %d", n, len(c), lengths[n])
		}
	}
	long := filled(t, base, MaxChanges+1)
	if _, have, err := read(long.f, base); err != nil || len(have) > 0 {
		t.Errorf("one that is too long is read: %v", err)
	}
	if _, ok := parse(long.last); ok {
		t.Error("one that is too long is a record")
	}
}

// TestParse: a record is as long as it says, and no shorter than its header.
func TestParse(t *testing.T) {
	b := filled(t, Base{7, 8}, 0).last
	if r, ok := parse(b); !ok || r.base != (Base{7, 8}) || len(r.bytes) != headerBytes {
		t.Errorf("%+v %t", r, ok)
	}
	for n := range headerBytes {
		if _, ok := parse(b[:n]); ok {
			t.Errorf("%d bytes are a record", n)
		}
	}
	long := filled(t, Base{7, 8}, 100).last
	if _, ok := parse(long[:len(long)-1]); ok {
		t.Error("a part of a record is one")
	}
	if r, ok := parse(append(bytes.Clone(long), 9)); !ok || len(r.bytes) != len(long) {
		t.Errorf("%d bytes of %d, %t", len(r.bytes), len(long), ok)
	}
}

// TestFull: a journal can be full to its last slot.
func TestFull(t *testing.T) {
	base := Base{1, 1}
	lengths := make([]int, Slots-15)
	for i := range lengths {
		lengths[i] = 1
	}
	lengths[len(lengths)-1] = MaxChanges
	j := filled(t, base, lengths...)
	if j.slot != Slots {
		t.Fatalf("it ends at slot %d", j.slot)
	}
	found, err := numbers(j.f, base, true)
	if err != nil || len(found) != len(lengths) {
		t.Errorf("%d of %d records: %v", len(found), len(lengths), err)
	}
	if there, more := j.Look(); !there || more {
		t.Errorf("there %t, more %t", there, more)
	}
}

// TestGap: a record of the same base behind one that cannot be read is damage, where it is
// read: the longest record and the slot after it, or the whole file.
func TestGap(t *testing.T) {
	base := Base{3, 1}
	spoil := func(j *File, slot int) { put(t, j.f, slot, make([]byte, headerBytes)) }
	for _, tt := range []struct {
		name    string
		lengths []int
		spoiled int // slot
		found   int
		damaged [2]bool // not all, all
	}{
		{"the last of three", []int{9, 9, 9}, 2, 2, [2]bool{}},
		{"the middle one", []int{9, 9, 9}, 1, 1, [2]bool{true, true}},
		{"the longest one", []int{9, MaxChanges, 9}, 1, 1, [2]bool{true, true}},
		{"the longest one at last", []int{9, 9, MaxChanges}, 2, 2, [2]bool{}},
		{"the first", []int{9, 9}, 0, 0, [2]bool{true, true}},
	} {
		j := filled(t, base, tt.lengths...)
		spoil(j, tt.spoiled)
		for i, all := range []bool{false, true} {
			if found, err := numbers(j.f, base, all); len(found) != tt.found || errors.Is(err, ErrDamaged) != tt.damaged[i] || !tt.damaged[i] && err != nil {
				t.Errorf("%s, all %t: %v %v", tt.name, all, found, err)
			}
		}
	}
	// Two in a row: what lies far behind is found where all is read.
	j := filled(t, base, 9, MaxChanges, 9, 9)
	spoil(j, 1)
	spoil(j, 17)
	if found, err := numbers(j.f, base, false); err != nil || len(found) != 1 {
		t.Error(found, err)
	}
	if found, err := numbers(j.f, base, true); !errors.Is(err, ErrDamaged) || len(found) != 1 || !strings.Contains(err.Error(), "record 1 cannot be read, and record 3 is there") {
		t.Error(found, err)
	}
}

// TestChain: a record continues the one before it, by number and by sum.
func TestChain(t *testing.T) {
	base := Base{3, 1}
	j := filled(t, base, 9, 9, 9)
	other := filled(t, base, 10, 10)
	put(t, j.f, 0, at(t, other.f, 0, SlotBytes))
	if found, err := numbers(j.f, base, false); !errors.Is(err, ErrDamaged) || !slices.Equal(found, []int{0}) {
		t.Errorf("a record behind another first one: %v %v", found, err)
	}
	// Record 1 where record 2 is expected, and where record 1 cannot be read.
	j = filled(t, base, 9, 9)
	put(t, j.f, 2, at(t, j.f, 1, SlotBytes))
	if found, err := numbers(j.f, base, false); err != nil || !slices.Equal(found, []int{0, 1}) {
		t.Errorf("a copy behind: %v %v", found, err)
	}
	put(t, j.f, 1, make([]byte, SlotBytes))
	if found, err := numbers(j.f, base, false); !errors.Is(err, ErrDamaged) || !slices.Equal(found, []int{0}) {
		t.Errorf("the copy alone: %v %v", found, err)
	}
}

// TestReadErrors: what cannot be read, or applied, is an error, and no end. A file that is
// too short is damaged, and one that cannot be read is not called so.
func TestReadErrors(t *testing.T) {
	base := Base{1, 1}
	for _, slots := range []int{2, 3, 5, Slots - 1} { // at the end of the records, and behind
		j := filled(t, base, 9, 9)
		must(t, j.f.Truncate(int64(slots)*SlotBytes-1))
		want := []int{0, 1}
		if slots == 2 {
			want = want[:1]
		}
		if found, err := numbers(j.f, base, true); !errors.Is(err, ErrDamaged) || !slices.Equal(found, want) {
			t.Errorf("%d slots less a byte: %v %v", slots, found, err)
		}
	}
	j := filled(t, base, 9, 9)
	must(t, j.Close())
	if found, err := numbers(j.f, base, true); !errors.Is(err, os.ErrClosed) || errors.Is(err, ErrDamaged) || len(found) > 0 {
		t.Error(found, err)
	}
	if epoch := Epoch(j.f); epoch != 0 {
		t.Error(epoch)
	}
	no := errors.New("no")
	j = filled(t, base, 9, 9)
	back := New(j.f, base)
	if err := back.Read(false, func([]byte) error { return no }); err != no {
		t.Error(err)
	}
	if number, _ := back.Position(); number != 0 {
		t.Errorf("what was not applied is passed over: %d", number)
	}
	if epoch := Epoch(j.f); epoch != 1 {
		t.Error(epoch)
	}
	put(t, j.f, 0, []byte("rubbish"))
	if epoch := Epoch(j.f); epoch != 0 {
		t.Error(epoch)
	}
}

// TestLook: a reader that has read everything notices what others append and overwrite, and
// nothing else.
func TestLook(t *testing.T) {
	base, later := Base{5, 1}, Base{6, 1}
	for _, lengths := range [][]int{{}, {9}, {9, SlotBytes, 9}, {SlotBytes - headerBytes}, {MaxChanges}} {
		j := filled(t, base, lengths...)
		back, _, err := read(j.f, base)
		must(t, err)
		look := func(name string, there, more bool) {
			t.Helper()
			for _, j := range []*File{j, back} { // one that has written, and one that has read
				if a, b := j.Look(); a != there || b != more {
					t.Errorf("%v, %s: there %t, more %t", lengths, name, a, b)
				}
			}
		}
		look("nothing behind", true, false)
		behind := func(b []byte) { put(t, j.f, j.slot, append(b, make([]byte, headerBytes-len(b))...)) }
		next := filled(t, base, 9).last
		for name, tt := range map[string]struct {
			base Base
			more bool
		}{"of an earlier epoch": {Base{4, 1}, false}, "of epoch 1": {Base{1, 1}, false}, "of this base": {base, true}, "of a later one": {later, true}} {
			behind(filled(t, tt.base, 0).last)
			look("a record "+name, true, tt.more)
		}
		behind([]byte{1})
		look("a part of a record", true, true)
		behind(next[:headerBytes])
		must(t, j.f.Truncate(int64(j.slot)*SlotBytes))
		look("a file that ends", true, true)
		if len(lengths) == 0 {
			continue
		}
		must(t, j.f.Truncate(int64(j.at)*SlotBytes+int64(len(j.last))-1))
		look("a record that is cut", false, true)
		must(t, j.f.Truncate(Bytes))
		put(t, j.f, j.at, filled(t, base, lengths[len(lengths)-1]+1).last)
		look("another record", false, true)
	}
	// After a fold the place is the beginning.
	j := filled(t, base, 9, 9)
	j.Rebase(later)
	if there, more := j.Look(); !there || more {
		t.Errorf("after a fold: there %t, more %t", there, more)
	}
	other := New(j.f, later)
	if _, err := other.Append([]byte("x")); err != nil {
		t.Fatal(err)
	}
	if there, more := j.Look(); !there || !more {
		t.Errorf("one after the fold: there %t, more %t", there, more)
	}
}

// TestSound: around what is damaged, the records of the newest base are found, once each and
// in order.
func TestSound(t *testing.T) {
	sound := func(f *os.File) (found []int) {
		Sound(f, func(c []byte) { found = append(found, int(c[0])-1) })
		return found
	}
	j := filled(t, Base{5, 1}, 9, MaxChanges, 9, 9, SlotBytes, 9)
	check := func(name string, want ...int) {
		t.Helper()
		if got := sound(j.f); !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", name, got, want)
		}
	}
	check("whole", 0, 1, 2, 3, 4, 5)
	copied := at(t, j.f, 0, SlotBytes)
	put(t, j.f, j.slot, copied)
	check("the first one again behind them", 0, 1, 2, 3, 4, 5)
	put(t, j.f, 18, []byte("rubbish"))
	check("the fourth damaged", 0, 1, 2, 4, 5)
	put(t, j.f, 1, []byte("rubbish"))
	check("the second, too", 0, 2, 4, 5)
	put(t, j.f, 0, filled(t, Base{6, 9}, 9).last)
	check("a newer base", 0)
	put(t, j.f, 0, filled(t, Base{4, 9}, 9, 9).last)
	check("an older base in front", 2, 4, 5)
	put(t, j.f, 0, filled(t, Base{5, 9}, 9, 9).last) // number 1
	check("another of this epoch in front", 1)
	j = filled(t, Base{5, 1}, 9, 9, 9)
	must(t, j.f.Truncate(2*SlotBytes+10))
	check("a file that ends", 0, 1)
	must(t, j.f.Truncate(0))
	check("an empty file")
	must(t, j.Close())
	check("a closed file")
}

// TestAppendBytes: a record is written to the end of its sector, and no further.
func TestAppendBytes(t *testing.T) {
	for _, tt := range []struct{ length, end int }{{0, 512}, {480 - 1, 512}, {480, 512}, {481, 1024}, {SlotBytes - headerBytes, SlotBytes}} {
		j := New(open(t), Base{1, 1})
		put(t, j.f, 0, bytes.Repeat([]byte{0xff}, 3*SlotBytes))
		_, err := j.Append(bytes.Repeat([]byte{1}, tt.length))
		must(t, err)
		got := at(t, j.f, 0, 3*SlotBytes)
		if end := bytes.IndexByte(got[headerBytes+tt.length:], 0xff) + headerBytes + tt.length; end != tt.end {
			t.Errorf("%d bytes are written to %d, want %d", tt.length, end, tt.end)
		}
	}
}

// TestSettle: the last record is written again to its place, by who wrote it and by who
// read it, and nothing else is.
func TestSettle(t *testing.T) {
	base := Base{1, 1}
	j := filled(t, base, 9, 600, 9)
	back, _, err := read(j.f, base)
	must(t, err)
	want := at(t, j.f, 0, Bytes)
	for name, j := range map[string]*File{"written": j, "read": back} {
		put(t, j.f, 2, make([]byte, SlotBytes)) // a page that did not reach the disk
		must(t, j.Settle())
		if got := at(t, j.f, 0, Bytes); !bytes.Equal(got, want) {
			t.Errorf("%s: the file differs", name)
		}
	}
	must(t, New(j.f, base).Settle())
	back.Rebase(Base{2, 2})
	must(t, back.Settle())
	if got := at(t, j.f, 0, Bytes); !bytes.Equal(got, want) {
		t.Error("a record is written where there is none")
	}
}

// TestFailures: a write or a sync that fails is an error, and says whether anything may be
// written.
func TestFailures(t *testing.T) {
	base := Base{1, 1}
	j := filled(t, base, 9)
	f, err := os.Open(j.f.Name())
	must(t, err)
	defer f.Close()
	reader, _, err := read(f, base)
	must(t, err)
	if written, err := reader.Append([]byte("x")); err == nil || written {
		t.Errorf("read only: %t %v", written, err)
	}
	if err := reader.Settle(); err == nil {
		t.Error("what cannot be written is settled")
	}
	if number, _ := reader.Position(); number != 1 || reader.slot != 1 {
		t.Errorf("what was not appended is passed: %d", number)
	}
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0) // it takes everything and syncs nothing
	must(t, err)
	defer null.Close()
	j = New(null, base)
	if written, err := j.Append([]byte("x")); err == nil || !written {
		t.Errorf("no sync: %t %v", written, err)
	}
	if number, _ := j.Position(); number != 0 || len(j.last) > 0 {
		t.Errorf("what is not synced is passed: %d", number)
	}
	if err := j.Settle(); err == nil {
		t.Error("what cannot be synced is settled")
	}
	must(t, j.Close())
	if err := j.Close(); !errors.Is(err, os.ErrClosed) {
		t.Error(err)
	}
	if _, err := os.Stat(filepath.Join(filepath.Dir(reader.f.Name()), "events.journal")); err != nil {
		t.Error(err)
	}
}
