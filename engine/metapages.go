package engine

import (
	"fmt"
	"io"
)

// A commit of bbolt writes its pages and syncs them, then writes the meta page
// that does not hold the present state, and syncs that. So a sound file has two
// whole meta pages, one transaction apart.
//
// When one of them is damaged, bbolt uses the other without a word. If the damaged
// one was the newer, the last change is gone, and nobody is told. Nothing in the
// file says which it was: the pages of a change are there before its meta page, and
// a change that is no push leaves no trace in events.jsonl. But a loss of power
// does not damage a meta page, because its 80 bytes lie in one sector, and a killed
// process does not, because it is one write. So a damaged one is damage, and is
// said to be, by readers and writers alike; Repair goes on from there.

// metaPair is the two meta pages; ok says which of them are whole.
type metaPair struct {
	metas [2]boltMeta
	ok    [2]bool
}

// readMetas reads both meta pages. The second begins one page after the first,
// which knows the size of a page, if it is whole.
func readMetas(r io.ReaderAt) (two metaPair) {
	two.metas[0], two.ok[0] = readBoltMeta(r, 0)
	if two.ok[0] {
		two.metas[1], two.ok[1] = readBoltMeta(r, int64(two.metas[0].pageSize))
		return two
	}
	for _, off := range [...]int64{pageBytes, 1 << 10, 2 << 10, 8 << 10, 16 << 10, 32 << 10, maxBoltPageSize} {
		if two.metas[1], two.ok[1] = readBoltMeta(r, off); two.ok[1] {
			break
		}
	}
	return two
}

// newest returns the meta page of the latest transaction, not found when neither
// is whole.
func (two *metaPair) newest() (m boltMeta, found bool) {
	for i := range two.metas {
		if two.ok[i] && (!found || two.metas[i].txid > m.txid) {
			m, found = two.metas[i], true
		}
	}
	return m, found
}

// whole returns the meta pages that can be used, the newest first.
func (two *metaPair) whole() (found []boltMeta) {
	for i, m := range two.metas {
		switch {
		case !two.ok[i] || m.pageSize < 512 || m.pageSize > maxBoltPageSize:
		case len(found) > 0 && m.txid > found[0].txid:
			found = []boltMeta{m, found[0]}
		default:
			found = append(found, m)
		}
	}
	return found
}

// fault returns ErrCorrupt unless the two are what a commit leaves.
func (two *metaPair) fault() error {
	for i, ok := range two.ok {
		if !ok {
			return fmt.Errorf("%w: meta page %d cannot be read, the last change may be lost", ErrCorrupt, i)
		}
	}
	a, b := two.metas[0].txid, two.metas[1].txid
	switch older, newer := min(a, b), max(a, b); {
	case newer-older == 1:
		return nil
	case newer-older == 2 && two.metas[newer%2].txid == newer:
		// A copy that bbolt's Tx.WriteTo made has the newer one always in page 0, and
		// its first commit may write over it.
		return nil
	}
	return fmt.Errorf("%w: the meta pages are of the transactions %d and %d, the last change may be lost", ErrCorrupt, a, b)
}

// committed returns the id of the newest transaction in the file, 0 if that
// cannot be read.
func committed(f io.ReaderAt) (txid uint64) {
	two := readMetas(f)
	m, _ := two.newest()
	return m.txid
}
