package bolt

import (
	"bytes"
	"encoding/binary"
	"fmt"

	"thread/event"
	"thread/index"
	"thread/internal/store"
)

// A receipt says what became of the drafts of a pending write. It is valid if and only
// if its crc fits and it has this form:
//
//	created_at 8  milliseconds since 1970, of the new events
//	drafts        for each draft, in order, a uvarint: twice the id of its event,
//	              plus one if that was there before (a duplicate)
//	crc        4

// storePending stores the drafts of the pending writes that were taken, with a receipt
// for each, and drops the receipts that no process waits for.
func (tx *Tx) storePending(s store.Session, others *pendingWrites, createdAt string) error {
	if others.all {
		if err := tx.dropReceipts(others.waiting); err != nil {
			return err
		}
	}
	if len(others.taken) == 0 {
		return nil
	}
	receipts, err := tx.later(store.Receipts)
	if err != nil {
		return err
	}
	ms, _ := event.ParseTime(createdAt)
	for _, o := range others.taken {
		r := binary.BigEndian.AppendUint64(nil, uint64(ms))
		for i := range o.drafts {
			e, duplicate, err := s.Push(&o.drafts[i], createdAt)
			if err != nil {
				return err
			}
			n := uint64(e.ID) << 1
			if duplicate {
				n |= 1
			}
			r = binary.AppendUvarint(r, n)
		}
		if err := index.Put(receipts, o.token, index.AppendSum(r, o.token)); err != nil {
			return err
		}
	}
	return nil
}

// dropReceipts drops the receipts of all who are not waiting any more.
func (tx *Tx) dropReceipts(waiting map[string]bool) error {
	receipts, err := tx.table(store.Receipts)
	if receipts == nil {
		return err
	}
	var over [][]byte
	err = index.Range(receipts, nil, func(k, _ []byte) (bool, error) {
		if !waiting[string(k)] {
			over = append(over, bytes.Clone(k))
		}
		return true, nil
	})
	if err != nil {
		return err
	}
	return index.DeleteAll(receipts, over)
}

// receipt fills in the events of group, if there is a receipt for token.
func (tx *Tx) receipt(token []byte, group []*write) (ok bool, err error) {
	receipts, err := tx.table(store.Receipts)
	if receipts == nil {
		return false, err
	}
	v, err := index.Get(receipts, token)
	if v == nil {
		return false, err
	}
	b, whole := index.CheckSum(token, v)
	if !whole || len(b) < 8 {
		return false, corruptReceipt(token)
	}
	createdAt := string(event.AppendTime(nil, int64(binary.BigEndian.Uint64(b))))
	b = b[8:]
	subscribed := tx.t.Logic.Subscribed(tx)
	for _, w := range group {
		es := make([]event.Event, len(w.drafts))
		w.pushed = store.Pushed{Events: es, Subscribed: subscribed}
		for i := range w.drafts {
			d := &w.drafts[i]
			n, size := binary.Uvarint(b)
			if size <= 0 {
				return false, corruptReceipt(token)
			}
			b = b[size:]
			if n&1 == 0 {
				es[i] = event.Event{ID: int64(n >> 1), CreatedAt: createdAt, Source: d.Source, Type: d.Type, Subtype: d.Subtype, Content: d.Content}
				continue
			}
			if es[i], _, err = tx.Event(int64(n >> 1)); err != nil {
				return false, err
			}
			w.pushed.Duplicates = append(w.pushed.Duplicates, store.Duplicate{Index: int64(i), ID: es[i].ID})
		}
	}
	return true, nil
}

func corruptReceipt(token []byte) error {
	return fmt.Errorf("%w: receipt %x", store.ErrCorrupt, token)
}
