package storetest

import (
	"context"
	"encoding/binary"
	"slices"

	"thread/event"
	"thread/internal/store"
)

// logic is the least that a store can be run with: dedupe keys without an end, and a
// queue of events of which the first byte of the key says when they are due.
type logic struct {
	now byte // what is due up to here is released
}

type session struct {
	*logic
	tx store.Tx
}

func (l *logic) BeforeBatch(context.Context) error { return nil }
func (l *logic) Subscribed(tx store.Tx) bool       { return !empty(tx, store.Subscriptions) }

func (l *logic) DropAfter(tx store.Tx, head int64, most int) (more bool, err error) {
	var over [][]byte
	err = tx.Ascend(store.Dedupe, nil, func(k, v []byte) (bool, error) {
		if int64(binary.BigEndian.Uint64(v)) > head {
			over = append(over, slices.Clone(k))
		}
		return len(over) < most, nil
	})
	for _, k := range over {
		if err == nil {
			err = tx.Delete(store.Dedupe, k)
		}
	}
	return len(over) == most, err
}

func (l *logic) Write(tx store.Tx, batch bool, fn func(s store.Session) error) (w store.Written, err error) {
	s := &session{l, tx}
	if !batch {
		if err := s.release(); err != nil {
			return w, err
		}
	}
	if err := fn(s); err != nil {
		return w, err
	}
	w.Subscribed = l.Subscribed(tx)
	return w, nil
}

func (s *session) release() error {
	var keys [][]byte
	err := s.tx.Ascend(store.Scheduled, nil, func(k, _ []byte) (bool, error) {
		if k[0] <= s.now {
			keys = append(keys, slices.Clone(k))
		}
		return k[0] <= s.now, nil
	})
	for _, k := range keys {
		if err == nil {
			err = s.tx.Delete(store.Scheduled, k)
		}
		if err == nil {
			_, err = s.tx.Append(&event.Draft{Source: "due", Type: string(k)}, at)
		}
	}
	return err
}

func (s *session) Push(d *event.Draft, createdAt string) (event.Event, bool, error) {
	if d.DedupeKey == "" {
		e, err := s.tx.Append(d, createdAt)
		return e, false, err
	}
	v, err := s.tx.Get(store.Dedupe, []byte(d.DedupeKey))
	if v != nil || err != nil {
		return event.Event{ID: id(v)}, err == nil, err
	}
	e, err := s.tx.Append(d, createdAt)
	if err != nil {
		return e, false, err
	}
	err = s.tx.Put(store.Dedupe, []byte(d.DedupeKey), binary.BigEndian.AppendUint64(nil, uint64(e.ID)))
	return e, false, err
}
