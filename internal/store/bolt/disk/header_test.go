package disk

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"math"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"thread/internal/faults"
	"thread/internal/store"
)

// resum gives a meta page its checksum.
func resum(b []byte) {
	sum := fnv.New64a()
	sum.Write(b[PageHeaderBytes:][:BoltMetaSummed])
	binary.NativeEndian.PutUint64(b[PageHeaderBytes+BoltMetaSummed:], sum.Sum64())
}

// TestDamagedHeader: a file in which a byte of a meta page, or of the header of the free
// list, is damaged is not opened, and no shorter one is.
func TestDamagedHeader(t *testing.T) {
	path, _ := database(t)
	sound, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	check := func(b []byte) error {
		t.Helper()
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
		f, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		_ = FreeBytes(f)
		err = CheckHeader(f)
		if _, herr := ReadHeader(f); herr != nil && err == nil {
			t.Errorf("%v for one meta page only", herr)
		}
		if (Committed(f) == 0) != (second(NewestMeta(f)) != nil) {
			t.Errorf("committed is %d, %v", Committed(f), second(NewestMeta(f)))
		}
		return err
	}
	if err := check(sound); err != nil {
		t.Fatal(err)
	}
	metas := ReadMetas(bytes.NewReader(sound))
	meta := metas.Valid()[0]
	damaged := func(at int, v byte) error {
		b := bytes.Clone(sound)
		b[at] = v
		return check(b)
	}
	for _, page := range []int{0, 1} {
		for i := PageHeaderBytes; i < PageHeaderBytes+MetaBytes; i++ {
			at := page*testPage + i
			if err := damaged(at, sound[at]^1); !errors.Is(err, store.ErrCorrupt) {
				t.Errorf("byte %d of meta page %d: %v", i, page, err)
			}
		}
	}
	for i := range PageHeaderBytes {
		at := int(meta.Freelist)*testPage + i
		err := damaged(at, 0xff)
		if i != 10 && i != 11 && !errors.Is(err, store.ErrCorrupt) { // how many are free is not a matter of the header
			t.Errorf("byte %d of the free list: %v", i, err)
		}
	}
	for n := 0; n < int(meta.Pages)*testPage; n += 13 {
		if err := check(sound[:n]); err == nil || n == 0 && !errors.Is(err, store.ErrEmpty) {
			t.Errorf("cut to %d bytes: %v", n, err)
		}
	}
	for name, tt := range map[string]struct {
		change func(b, first, second []byte)
		want   error
	}{
		"both meta pages": {func(_, first, second []byte) { first[40] ^= 1; second[40] ^= 1 }, store.ErrCorrupt},
		"another byte order": {func(_, first, second []byte) {
			for _, page := range [][]byte{first, second} {
				binary.NativeEndian.PutUint32(page[PageHeaderBytes:], 0xEDDA0CED)
			}
		}, store.ErrByteOrder},
		"no magic": {func(_, first, second []byte) { first[16], second[16] = 0, 0 }, store.ErrNotDatabase},
		"a page of 256 bytes": {func(_, first, second []byte) {
			for _, page := range [][]byte{first, second} {
				binary.NativeEndian.PutUint32(page[24:], 256)
				resum(page)
			}
		}, store.ErrCorrupt},
		"transactions far apart": {func(_, first, _ []byte) {
			binary.NativeEndian.PutUint64(first[PageHeaderBytes+48:], 1000)
			resum(first)
		}, store.ErrCorrupt},
		"a SQLite database": {func(b, _, _ []byte) { copy(b, sqliteMagic) }, store.ErrSQLite},
		"without a free list": {func(_, first, second []byte) {
			for _, page := range [][]byte{first, second} {
				binary.NativeEndian.PutUint64(page[PageHeaderBytes+32:], math.MaxUint64)
				resum(page)
			}
		}, nil},
	} {
		b := bytes.Clone(sound)
		tt.change(b, b, b[testPage:])
		if err := check(b); !errors.Is(err, tt.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := checkSize(5, 4); !errors.Is(err, store.ErrTooLarge) || checkSize(4, 4) != nil || checkSize(5, 0) != nil {
		t.Errorf("5 bytes of 4: %v", err)
	}
	if err := errors.Join(CheckSizeOf(path), CheckSizeOf(path+".gone")); err != nil {
		t.Error(err)
	}
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	if err := CheckMagic(dir); !errors.Is(err, store.ErrNotDatabase) {
		t.Errorf("a directory: %v", err)
	}
}

// TestFailingReads: what cannot be read of a device is an error, not damage and not an answer.
func TestFailingReads(t *testing.T) {
	path, want := database(t)
	other := filepath.Join(filepath.Dir(path), "other")
	if err := os.WriteFile(other, make([]byte, 4*testPage), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, read := range map[string]func(f *os.File) error{
		"a header": CheckHeader,
		"free bytes": func(f *os.File) error {
			if FreeBytes(f) == 0 {
				return syscall.EIO
			}
			return nil
		},
		"pages": func(f *os.File) error {
			metas := ReadMetas(f)
			valid := metas.Valid()
			if err := errors.Join(metas.errs[:]...); err != nil {
				return err
			}
			got, err := walk(f, valid[0])
			if err == nil && len(got.faults) == 0 && len(got.content) != len(want) {
				err = fmt.Errorf("%d keys without a fault", len(got.content))
			}
			if got.unfound > 0 || strings.Contains(strings.Join(got.faults, " "), syscall.EIO.Error()) {
				err = syscall.EIO
			}
			return err
		},
		"another file": func(*os.File) error {
			f, err := os.Open(other)
			if err != nil {
				return err
			}
			defer f.Close()
			if err = CheckHeader(f); errors.Is(err, store.ErrNotDatabase) {
				return nil
			}
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			faults.Each(t, syscall.EIO, []string{"pread64", "fstat"}, func(t *testing.T, f *faults.Fault) {
				file, err := os.Open(path)
				if err != nil {
					t.Fatal(err)
				}
				defer file.Close()
				var failed error
				f.Run(t, filepath.Dir(path), func() { failed = read(file) })
				if (f.Hit != nil) != errors.Is(failed, syscall.EIO) || errors.Is(failed, store.ErrCorrupt) {
					t.Error(failed)
				}
			})
		})
	}
}

// TestMetaPagesOfACopy: a copy by bbolt has its newer meta page always in page 0; one that
// is two transactions ahead of the other is sound there only.
func TestMetaPagesOfACopy(t *testing.T) {
	path, _ := database(t)
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		txids [2]uint64
		sound bool
	}{{[2]uint64{6, 5}, true}, {[2]uint64{4, 5}, true}, {[2]uint64{6, 4}, true}, {[2]uint64{5, 7}, true}, {[2]uint64{4, 6}, false}, {[2]uint64{7, 5}, false}, {[2]uint64{5, 5}, false}, {[2]uint64{8, 5}, false}} {
		for i, txid := range tt.txids {
			binary.NativeEndian.PutUint64(b[i*testPage+PageHeaderBytes+48:], txid)
			resum(b[i*testPage:])
		}
		metas := ReadMetas(bytes.NewReader(b))
		err := metas.Fault()
		if (err == nil) != tt.sound || err != nil && !errors.Is(err, store.ErrCorrupt) {
			t.Errorf("%v: %v", tt.txids, err)
		}
		if got, want := Committed(bytes.NewReader(b)), max(tt.txids[0], tt.txids[1]); tt.sound && got != want || !tt.sound && got != 0 {
			t.Errorf("%v: committed is %d", tt.txids, got)
		}
		page, at, err := newestMeta(bytes.NewReader(b))
		if tt.sound && (err != nil || binary.NativeEndian.Uint64(page[PageHeaderBytes+48:]) != max(tt.txids[0], tt.txids[1]) || at%testPage != 0) {
			t.Errorf("%v: the newest is at %d, %v", tt.txids, at, err)
		}
	}
}
