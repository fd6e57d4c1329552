package bolt

import (
	"bytes"
	"math"

	"thread/index"
	"thread/internal/store/bolt/disk"
)

// clearBeyondHead removes what a long batch left above head that did not come to
// its end. It runs under the exclusive lock, before anything is written.
func (t *Store) clearBeyondHead(db *database) error {
	if !db.over.Empty() {
		return nil // it was done before the first record
	}
	for {
		more, err := t.clearSome(db)
		if err != nil || !more {
			return err
		}
	}
}

func (t *Store) clearSome(db *database) (more bool, err error) {
	b, err := db.Begin(true)
	if err != nil {
		return false, err
	}
	defer b.Rollback()
	tx, err := newTx(t, b, nil)
	if err != nil {
		return false, err
	}
	if tx.st.Head == math.MaxInt64 {
		return false, nil
	}
	events, err := tx.eventBucket()
	if err != nil {
		return false, err
	}
	from := disk.EventKey(tx.st.Head + 1)
	var junk [][]byte // collected first: a cursor is slow among deleted keys
	err = index.Range(events, from, func(k, _ []byte) (more bool, err error) {
		junk = append(junk, bytes.Clone(k))
		return len(junk) < t.MaxGroup, nil
	})
	if err != nil {
		return false, err
	}
	across, cut, err := tx.acrossHead()
	if err != nil || len(junk) == 0 && across == nil {
		return false, err
	}
	// The events go last: as long as there is one, this is done again.
	columns, err := tx.columnBucket()
	if err != nil {
		return false, err
	}
	if err := index.DropBlocksAfter(columns, tx.st.Head); err != nil {
		return false, err
	}
	if err := tx.dict().DropAfter(tx.st.Head); err != nil {
		return false, err
	}
	if more, err := t.Logic.DropAfter(tx, tx.st.Head, t.MaxGroup); err != nil || more {
		if err != nil {
			return false, err
		}
		return true, db.commit(b)
	}
	if more, err := tx.dropPiecesAfter(tx.st.Head); err != nil || more {
		if err != nil {
			return false, err
		}
		return true, db.commit(b)
	}
	if across != nil {
		if err := events.Put(across, cut); err != nil {
			return false, err
		}
	}
	for _, k := range junk {
		// In a damaged tree the way to a key can end elsewhere than the walk that met
		// it, and then this would be done for ever.
		if v, err := index.Get(events, k); err != nil {
			return false, err
		} else if v == nil {
			return false, disk.CorruptEvent(k)
		}
		if err := events.Delete(k); err != nil {
			return false, err
		}
	}
	return true, db.commit(b)
}

// acrossHead returns the group with events on both sides of head, if there is one,
// and what is left of it without those above.
func (tx *Tx) acrossHead() (key, cut []byte, err error) {
	if tx.st.Head == 0 {
		return nil, nil, nil
	}
	events, err := tx.eventBucket()
	if err != nil {
		return nil, nil, err
	}
	k, v, err := index.Floor(events, events.Cursor(), disk.EventKey(tx.st.Head))
	if k == nil || err != nil || mustID(k) > tx.st.Head {
		return nil, nil, err
	}
	g, err := disk.OpenUnchecked(k, v)
	if err != nil {
		return nil, nil, err
	}
	var r disk.Record
	for {
		rest := len(g.Rest)
		if more, err := g.Next(&r); err != nil || !more {
			return nil, nil, err
		}
		if g.ID <= tx.st.Head {
			continue
		}
		if _, ok := index.CheckSum(k, v); !ok {
			return nil, nil, disk.CorruptEvent(k)
		}
		key = bytes.Clone(k)
		return key, index.AppendSum(bytes.Clone(v[:len(v)-disk.SumBytes-rest]), key), nil
	}
}

// dropPiecesAfter removes pieces of events above head, as many as go into one
// transaction.
func (tx *Tx) dropPiecesAfter(head int64) (more bool, err error) {
	b, err := tx.bucket(disk.BucketPieces)
	if b == nil || err != nil {
		return false, err
	}
	var junk [][]byte
	err = index.Range(b, disk.EventKey(head+1), func(k, _ []byte) (bool, error) {
		junk = append(junk, bytes.Clone(k))
		return len(junk) < tx.t.MaxGroup, nil
	})
	if err != nil {
		return false, err
	}
	return len(junk) == tx.t.MaxGroup, index.DeleteAll(b, junk)
}
