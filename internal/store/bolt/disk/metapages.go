package disk

import (
	"errors"
	"fmt"
	"io"
	"os"

	"thread/internal/store"
)

// A commit of bbolt writes its pages and syncs them, then writes the meta page
// that does not hold the present state, and syncs that. So a sound file has two
// whole meta pages, one transaction apart.
//
// When one of them is damaged, bbolt uses the other without a word. If the damaged
// one was the newer, the last change is gone, and no process is told. Nothing in the
// file says which it was: the pages of a change are there before its meta page, and
// a change that is not a push leaves no trace in events.jsonl. But a loss of power
// does not damage a meta page, because its 80 bytes lie in one sector, and a killed
// process does not, because it is one write. So a damaged one is damage, and is
// said to be, by readers and writers alike; Repair continues from there.

// metaPair is the two meta pages; ok says which of them are valid.
type metaPair struct {
	Metas [2]Meta
	ok    [2]bool
	errs  [2]error // of the device
}

// ReadMetas reads both meta pages. The second begins one page after the first,
// which knows the size of a page, if that is valid.
func ReadMetas(r io.ReaderAt) (metas metaPair) {
	metas.Metas[0], metas.ok[0], metas.errs[0] = readBoltMeta(r, 0)
	if metas.ok[0] {
		metas.Metas[1], metas.ok[1], metas.errs[1] = readBoltMeta(r, int64(metas.Metas[0].PageSize))
		return metas
	}
	for _, off := range [...]int64{PageBytes, 1 << 10, 2 << 10, 8 << 10, 16 << 10, 32 << 10, maxBoltPageSize} {
		if metas.Metas[1], metas.ok[1], metas.errs[1] = readBoltMeta(r, off); metas.ok[1] || metas.errs[1] != nil {
			break
		}
	}
	return metas
}

// newest returns the meta page of the latest transaction, not found when neither
// is valid.
func (metas *metaPair) newest() (m Meta, found bool) {
	for i := range metas.Metas {
		if metas.ok[i] && (!found || metas.Metas[i].Txid > m.Txid) {
			m, found = metas.Metas[i], true
		}
	}
	return m, found
}

// Valid returns the meta pages that can be used, the newest first.
func (metas *metaPair) Valid() (found []Meta) {
	for i, m := range metas.Metas {
		switch {
		case !metas.ok[i] || m.PageSize < 512 || m.PageSize > maxBoltPageSize:
		case len(found) > 0 && m.Txid > found[0].Txid:
			found = []Meta{m, found[0]}
		default:
			found = append(found, m)
		}
	}
	return found
}

// Fault returns ErrCorrupt unless the pair is what a commit leaves, and an error of the device
// as it is: that tells nothing about the pages.
func (metas *metaPair) Fault() error {
	if err := errors.Join(metas.errs[:]...); err != nil {
		return err
	}
	for i, ok := range metas.ok {
		if !ok {
			return fmt.Errorf("%w: meta page %d cannot be read, the last change may be lost", store.ErrCorrupt, i)
		}
	}
	a, b := metas.Metas[0].Txid, metas.Metas[1].Txid
	switch older, newer := min(a, b), max(a, b); {
	case newer-older == 1:
		return nil
	case newer-older == 2 && metas.Metas[newer%2].Txid == newer:
		// A copy that bbolt's Tx.WriteTo made has the newer one always in page 0, and
		// its first commit may write over it.
		return nil
	}
	return fmt.Errorf("%w: the meta pages are of the transactions %d and %d, the last change may be lost", store.ErrCorrupt, a, b)
}

// NewestMeta returns the newest meta page as it is in the file, without its unused rest.
// When one of the two cannot be read it returns ErrCorrupt: that may be the newest.
func NewestMeta(f io.ReaderAt) (page [PageHeaderBytes + MetaBytes]byte, err error) {
	page, _, err = newestMeta(f)
	return page, err
}

// RewriteNewestMeta writes the newest meta page over itself.
func RewriteNewestMeta(f *os.File) error {
	page, at, err := newestMeta(f)
	if err != nil {
		return err
	}
	_, err = f.WriteAt(page[:], at)
	return err
}

// newestMeta returns the newest meta page and its offset.
func newestMeta(f io.ReaderAt) (page [PageHeaderBytes + MetaBytes]byte, at int64, err error) {
	metas := ReadMetas(f)
	if err := metas.Fault(); err != nil {
		return page, 0, err
	}
	if metas.Metas[1].Txid > metas.Metas[0].Txid {
		at = int64(metas.Metas[0].PageSize)
	}
	_, err = f.ReadAt(page[:], at)
	return page, at, err
}

// Committed returns the id of the newest transaction in the file, 0 if a meta page cannot
// be read: that may be the newest.
func Committed(f io.ReaderAt) (txid uint64) {
	metas := ReadMetas(f)
	if metas.Fault() != nil {
		return 0
	}
	return max(metas.Metas[0].Txid, metas.Metas[1].Txid)
}
