package engine

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"math"
	"math/bits"
	"os"
)

// What bbolt writes at the start of its two meta pages, in the byte order of the
// host: a page header of 16 bytes, then magic, version and page size, 4 bytes
// each, 4 of flags, the root bucket's page and sequence, the page of the free
// list, the number of pages in use and the transaction id, 8 each, and an FNV-64a
// sum of these 56 bytes.
const (
	boltMagic       = 0xED0CDAED
	boltPageHeader  = 16
	boltMetaBytes   = 64
	boltMetaSummed  = 56
	sqliteMagic     = "SQLite format 3\x00"
	pageBytes       = 4096 // of the databases that we create
	maxBoltPageSize = 64 << 10
)

// maxDatabaseBytes is how large a database may become where a pointer has 32 bits,
// 0 elsewhere: beyond 1 GiB bbolt maps 2 GiB, which such a host has no room for. A
// database that outgrew it there could not be opened there again.
const maxDatabaseBytes = (1 << 30) * (1 - math.MaxInt>>32&1)

type boltMeta struct {
	pageSize, root, freelist, pages, txid uint64
}

func readBoltMeta(r io.ReaderAt, off int64) (m boltMeta, ok bool) {
	var b [boltMetaBytes]byte
	if _, err := r.ReadAt(b[:], off+boltPageHeader); err != nil {
		return m, false
	}
	sum := fnv.New64a()
	sum.Write(b[:boltMetaSummed])
	order := binary.NativeEndian
	m = boltMeta{
		pageSize: uint64(order.Uint32(b[8:])), root: order.Uint64(b[16:]), freelist: order.Uint64(b[32:]),
		pages: order.Uint64(b[40:]), txid: order.Uint64(b[48:]),
	}
	return m, order.Uint32(b[:]) == boltMagic && order.Uint64(b[boltMetaSummed:]) == sum.Sum64()
}

// checkMagic looks at no more than the first bytes of events.db. It needs no
// lock, because they never change.
func checkMagic(f *os.File) error {
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() {
		return fmt.Errorf("%w: not a regular file", ErrNotDatabase)
	}
	var head [boltPageHeader + 4]byte
	n, err := f.ReadAt(head[:], 0)
	switch {
	case err != nil && !errors.Is(err, io.EOF):
		return err
	case string(head[:min(n, len(sqliteMagic))]) == sqliteMagic:
		return ErrSQLite
	case n == 0:
		return ErrEmpty
	case n < len(head):
		return fmt.Errorf("%w: %d bytes long", ErrNotDatabase, info.Size())
	}
	return nil
}

// checkHeader looks at the start of events.db before bbolt maps it, since bbolt
// makes a new database out of an empty file, crashes on a short one, and goes back
// to the older meta page when the newer one is damaged.
func checkHeader(f *os.File) error {
	two, err := readHeader(f)
	if err != nil {
		return err
	}
	if err := two.fault(); err != nil {
		return err
	}
	return checkFreelist(f, &two)
}

// checkFreelist looks at the header of the page with the free list: a commit frees
// that page with as many behind it as it says it has.
func checkFreelist(f *os.File, two *metaPair) error {
	m, _ := two.newest()
	if m.freelist == math.MaxUint64 {
		return nil // bbolt can do without
	}
	var b [boltPageHeader]byte
	if m.freelist < m.pages {
		if _, err := f.ReadAt(b[:], int64(m.freelist*m.pageSize)); err != nil {
			return err
		}
	}
	order := binary.NativeEndian
	if order.Uint64(b[:]) != m.freelist || order.Uint16(b[8:]) != pageFreelist || uint64(order.Uint32(b[12:])) >= m.pages-m.freelist {
		return fmt.Errorf("%w: page %d is not the list of free pages", ErrCorrupt, m.freelist)
	}
	return nil
}

// readHeader is checkHeader for those who can do with one whole meta page.
func readHeader(f *os.File) (two metaPair, err error) {
	if err := checkMagic(f); err != nil {
		return two, err
	}
	info, err := f.Stat()
	if err != nil {
		return two, err
	}
	two = readMetas(f)
	newest, found := two.newest()
	if !found {
		var b [4]byte
		if _, err := f.ReadAt(b[:], boltPageHeader); err != nil {
			return two, err
		}
		switch magic := binary.NativeEndian.Uint32(b[:]); {
		case bits.ReverseBytes32(magic) == boltMagic:
			return two, ErrByteOrder
		case magic == boltMagic:
			return two, fmt.Errorf("%w: both meta pages", ErrCorrupt)
		}
		return two, ErrNotDatabase
	}
	if newest.pageSize < 512 || newest.pageSize > maxBoltPageSize {
		return two, fmt.Errorf("%w: page size %d", ErrCorrupt, newest.pageSize)
	}
	if size := uint64(info.Size()); newest.pages > size/newest.pageSize {
		return two, fmt.Errorf("%w: cut short, %d bytes of %d", ErrCorrupt, size, newest.pages*newest.pageSize)
	}
	if maxDatabaseBytes != 0 && info.Size() > maxDatabaseBytes {
		return two, fmt.Errorf("%w: %d bytes", ErrTooLarge, info.Size())
	}
	return two, nil
}
