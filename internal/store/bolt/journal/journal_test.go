package journal

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
)

func open(t *testing.T) *os.File {
	t.Helper()
	f, err := os.OpenFile(filepath.Join(t.TempDir(), "events.journal"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	if err := Make(f); err != nil {
		t.Fatal(err)
	}
	return f
}

func read(f *os.File, base Base) (j *File, all [][]byte, err error) {
	j = New(f, base)
	err = j.Read(true, func(c []byte) error { all = append(all, bytes.Clone(c)); return nil })
	return j, all, err
}

// TestRecords: what was appended is read back, up to what a later base overwrote.
func TestRecords(t *testing.T) {
	f := open(t)
	base := Base{1, 77}
	j := New(f, base)
	var want [][]byte
	for n := 0; j.Room(n * 700); n++ {
		c := bytes.Repeat([]byte{byte(n)}, n*700)
		if _, err := j.Append(c); err != nil {
			t.Fatal(err)
		}
		want = append(want, c)
	}
	at, have, err := read(f, base)
	if err != nil || len(have) != len(want) || len(want) < 10 || at.number != j.number || at.slot != j.slot || at.crc != j.crc {
		t.Fatalf("%d records, appended %d: %v", len(have), len(want), err)
	}
	for i := range want {
		if !bytes.Equal(have[i], want[i]) {
			t.Errorf("record %d differs", i)
		}
	}
	if _, have, err = read(f, Base{2, 5}); err != nil || len(have) > 0 {
		t.Errorf("a later base reads %d records: %v", len(have), err)
	}
	for _, older := range []Base{{0, 5}, {1, 5}} {
		if _, _, err = read(f, older); !errors.Is(err, ErrOlder) {
			t.Errorf("an older base: %v", err)
		}
	}
	j.Rebase(Base{2, 5})
	if _, err := j.Append([]byte("x")); err != nil {
		t.Fatal(err)
	}
	if _, have, err = read(f, Base{2, 5}); err != nil || len(have) != 1 {
		t.Errorf("%d records after a fold: %v", len(have), err)
	}
}

// TestDamage: a flipped bit in the last record takes that one; in any other it is damage.
func TestDamage(t *testing.T) {
	f := open(t)
	base := Base{3, 9}
	j := New(f, base)
	const records = 6
	var at []int
	for n := range records {
		at = append(at, j.slot)
		if _, err := j.Append(bytes.Repeat([]byte{byte(n)}, n*2000)); err != nil {
			t.Fatal(err)
		}
	}
	for range 500 {
		n := rand.IntN(records)
		off := int64(at[n]*SlotBytes + rand.IntN(headerBytes+n*2000))
		var b [1]byte
		if _, err := f.ReadAt(b[:], off); err != nil {
			t.Fatal(err)
		}
		was := b[0]
		b[0] ^= 1 << rand.IntN(8)
		if _, err := f.WriteAt(b[:], off); err != nil {
			t.Fatal(err)
		}
		_, have, err := read(f, base)
		if len(have) != n || (n < records-1) != errors.Is(err, ErrDamaged) || n == records-1 && err != nil {
			t.Errorf("record %d damaged at %d: %d read, %v", n, off, len(have), err)
		}
		if _, err := f.WriteAt([]byte{was}, off); err != nil {
			t.Fatal(err)
		}
	}
}

// FuzzRead: no bytes make Read fail otherwise than with an error.
func FuzzRead(f *testing.F) {
	f.Add([]byte("x"), uint16(3))
	f.Fuzz(func(t *testing.T, b []byte, at uint16) {
		file := open(t)
		j := New(file, Base{1, 1})
		for range 3 {
			if _, err := j.Append(b[:min(len(b), MaxChanges)]); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := file.WriteAt(b, int64(at)); err != nil {
			t.Fatal(err)
		}
		if _, _, err := read(file, Base{1, 1}); err != nil && !errors.Is(err, ErrDamaged) && !errors.Is(err, ErrOlder) {
			t.Fatal(err)
		}
	})
}
