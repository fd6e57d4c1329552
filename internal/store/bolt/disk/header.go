package disk

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"math"
	"math/bits"
	"os"

	"thread/internal/store"
)

// bbolt writes this at the start of its two meta pages, in the byte order of the host.
// A page header of 16 bytes comes first. Magic, version, page size and flags have 4
// bytes each. The root bucket's page and sequence, the page of the free list, the number
// of pages in use and the transaction id have 8 each. An FNV-64a sum of these 56 bytes
// is last.
const (
	BoltMagic       = 0xED0CDAED
	PageHeaderBytes = 16
	MetaBytes       = 64
	BoltMetaSummed  = 56
	sqliteMagic     = "SQLite format 3\x00"
	PageBytes       = 4096 // of the databases that we create
	maxBoltPageSize = 64 << 10
)

// MaxDatabaseBytes is how large a database may become where a pointer has 32 bits,
// 0 elsewhere: beyond 1 GiB bbolt maps 2 GiB, which does not fit there. A
// database that outgrew it there could not be opened there again.
const MaxDatabaseBytes = (1 << 30) * (1 - math.MaxInt>>32&1)

// Meta is what a meta page of bbolt says.
type Meta struct {
	PageSize, Root, Freelist, Pages, Txid uint64

	magic uint32 // also of a page that is not a meta page
}

// readBoltMeta returns an error when the device cannot read the page, and not ok for what is
// not a meta page.
func readBoltMeta(r io.ReaderAt, off int64) (m Meta, ok bool, err error) {
	var b [MetaBytes]byte
	order := binary.NativeEndian
	_, err = r.ReadAt(b[:], off+PageHeaderBytes)
	m.magic = order.Uint32(b[:])
	if err != nil {
		if errors.Is(err, io.EOF) {
			err = nil
		}
		return m, false, err
	}
	sum := fnv.New64a()
	sum.Write(b[:BoltMetaSummed])
	m = Meta{
		magic: m.magic, PageSize: uint64(order.Uint32(b[8:])), Root: order.Uint64(b[16:]), Freelist: order.Uint64(b[32:]),
		Pages: order.Uint64(b[40:]), Txid: order.Uint64(b[48:]),
	}
	return m, m.magic == BoltMagic && order.Uint64(b[BoltMetaSummed:]) == sum.Sum64(), nil
}

// CheckMagic reads no more than the first bytes of events.db. It needs no
// lock, because they never change.
func CheckMagic(f *os.File) error {
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() {
		return fmt.Errorf("%w: not a regular file", store.ErrNotDatabase)
	}
	var head [PageHeaderBytes + 4]byte
	n, err := f.ReadAt(head[:], 0)
	switch {
	case err != nil && !errors.Is(err, io.EOF):
		return err
	case string(head[:min(n, len(sqliteMagic))]) == sqliteMagic:
		return store.ErrSQLite
	case n == 0:
		return store.ErrEmpty
	case n < len(head):
		return fmt.Errorf("%w: %d bytes long", store.ErrNotDatabase, info.Size())
	}
	return nil
}

// CheckHeader checks the start of events.db before bbolt maps it, since bbolt
// makes a new database out of an empty file, crashes on a short one, and goes back
// to the older meta page when the newer one is damaged.
func CheckHeader(f *os.File) error {
	metas, err := ReadHeader(f)
	if err != nil {
		return err
	}
	if err := metas.Fault(); err != nil {
		return err
	}
	return checkFreelist(f, &metas)
}

// checkFreelist checks the header of the page with the free list: a commit frees
// that page with as many behind it as it says it has.
func checkFreelist(f *os.File, metas *metaPair) error {
	m, _ := metas.newest()
	if m.Freelist == math.MaxUint64 {
		return nil // bbolt can do without
	}
	var b [PageHeaderBytes]byte
	if m.Freelist < m.Pages {
		if _, err := f.ReadAt(b[:], int64(m.Freelist*m.PageSize)); err != nil {
			return err
		}
	}
	order := binary.NativeEndian
	if order.Uint64(b[:]) != m.Freelist || order.Uint16(b[8:]) != pageFreelist || uint64(order.Uint32(b[12:])) >= m.Pages-m.Freelist {
		return fmt.Errorf("%w: page %d is not the list of free pages", store.ErrCorrupt, m.Freelist)
	}
	return nil
}

// FreeBytes returns how large the free pages of a database are, 0 where that cannot be read.
func FreeBytes(f *os.File) int64 {
	metas := ReadMetas(f)
	m, _ := metas.newest()
	if metas.Fault() != nil || checkFreelist(f, &metas) != nil || m.Freelist == math.MaxUint64 {
		return 0
	}
	var b [PageHeaderBytes + 8]byte
	if _, err := f.ReadAt(b[:], int64(m.Freelist*m.PageSize)); err != nil {
		return 0
	}
	n := uint64(binary.NativeEndian.Uint16(b[10:]))
	if n == freelistOverflow {
		n = binary.NativeEndian.Uint64(b[PageHeaderBytes:])
	}
	return int64(min(n, m.Pages) * m.PageSize)
}

// ReadHeader is CheckHeader for callers that need only one valid meta page.
func ReadHeader(f *os.File) (metas metaPair, err error) {
	if err := CheckMagic(f); err != nil {
		return metas, err
	}
	info, err := f.Stat()
	if err != nil {
		return metas, err
	}
	metas = ReadMetas(f)
	newest, found := metas.newest()
	if !found {
		if err := errors.Join(metas.errs[:]...); err != nil { // it may be one
			return metas, err
		}
		switch magic := metas.Metas[0].magic; {
		case bits.ReverseBytes32(magic) == BoltMagic:
			return metas, store.ErrByteOrder
		case magic == BoltMagic:
			return metas, fmt.Errorf("%w: both meta pages", store.ErrCorrupt)
		}
		return metas, store.ErrNotDatabase
	}
	if newest.PageSize < 512 || newest.PageSize > maxBoltPageSize {
		return metas, fmt.Errorf("%w: page size %d", store.ErrCorrupt, newest.PageSize)
	}
	if size := uint64(info.Size()); newest.Pages > size/newest.PageSize {
		return metas, fmt.Errorf("%w: cut short, %d bytes of %d", store.ErrCorrupt, size, newest.Pages*newest.PageSize)
	}
	return metas, checkSize(info.Size(), MaxDatabaseBytes)
}

// checkSize returns ErrTooLarge for a database of more than that many bytes, which may be 0
// for no bound.
func checkSize(bytes, most int64) error {
	if most != 0 && bytes > most {
		return fmt.Errorf("%w: %d bytes", store.ErrTooLarge, bytes)
	}
	return nil
}

// CheckSizeOf returns ErrTooLarge for a database that has become too large for this system.
// One whose name another program has removed is not.
func CheckSizeOf(path string) error {
	info, err := os.Stat(path)
	if err != nil {
		return nil
	}
	return checkSize(info.Size(), MaxDatabaseBytes)
}
