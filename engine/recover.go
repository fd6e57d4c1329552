package engine

import (
	"bytes"
	"math"

	"thread/index"
	"thread/internal/planted"
)

// clearBeyondHead removes what a long batch left above head that did not come to
// its end. It runs under the exclusive lock, before anything is written.
func (t *Thread) clearBeyondHead(db *database) error {
	for !planted.Bug("half a batch not cleared") {
		more, err := t.clearSome(db)
		if err != nil || !more {
			return err
		}
	}
	return nil
}

func (t *Thread) clearSome(db *database) (more bool, err error) {
	b, err := db.Begin(true)
	if err != nil {
		return false, err
	}
	defer b.Rollback()
	tx, err := newTx(t, b)
	if err != nil {
		return false, err
	}
	if tx.st.head == math.MaxInt64 {
		return false, nil
	}
	from := eventKey(tx.st.head + 1)
	var junk [][]byte // collected first: a cursor is slow among deleted keys
	err = index.Range(tx.events, from, func(k, _ []byte) (more bool, err error) {
		junk = append(junk, bytes.Clone(k))
		return len(junk) < t.maxGroup, nil
	})
	if err != nil || len(junk) == 0 {
		return false, err
	}
	// The events go last: as long as there is one, this is done again.
	if err := index.DropBlocksAfter(tx.columns, tx.st.head); err != nil {
		return false, err
	}
	if err := tx.dict.DropAfter(tx.st.head); err != nil {
		return false, err
	}
	if more, err := tx.dropKeysAfter(tx.st.head); err != nil || more {
		if err != nil {
			return false, err
		}
		return true, b.Commit()
	}
	for _, k := range junk {
		// In a damaged tree the way to a key can end elsewhere than the walk that met
		// it, and then this would be done for ever.
		if v, err := index.Get(tx.events, k); err != nil {
			return false, err
		} else if v == nil {
			return false, corruptEvent(k)
		}
		if err := tx.events.Delete(k); err != nil {
			return false, err
		}
	}
	return true, b.Commit()
}
