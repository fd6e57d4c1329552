package storetest

import (
	"encoding/binary"
	"testing"

	"thread/event"
	"thread/filter"
	"thread/internal/store"
)

func id(v []byte) int64 {
	if len(v) != 8 {
		return 0
	}
	return int64(binary.BigEndian.Uint64(v))
}

const at = "2026-03-18T10:30:00.123Z"

func empty(tx store.Tx, t store.Table) bool {
	found := false
	_ = tx.Ascend(t, nil, func(_, _ []byte) (bool, error) { found = true; return false, nil })
	return !found
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func draft(content string) event.Draft { return event.Draft{Source: "s", Type: "t", Content: content} }

func push(t *testing.T, s store.Store, ds ...event.Draft) store.Pushed {
	t.Helper()
	p, err := s.Push(ctx, ds)
	must(t, err)
	return p
}

func view(t *testing.T, s store.Store, fn func(tx store.Tx) error) {
	t.Helper()
	must(t, s.View(ctx, fn))
}

// write runs fn in a write transaction of s.
func write(s store.Store, fn func(tx store.Tx) error) error {
	return s.Update(ctx, func(u store.Session) error { return fn(u.(*session).tx) })
}

func state(t *testing.T, s store.Store) (st store.State) {
	t.Helper()
	view(t, s, func(tx store.Tx) error { st = tx.State(); return nil })
	return st
}

func matching(t *testing.T, s store.Store, where string, after, upto int64) (ids []int64) {
	t.Helper()
	f, err := filter.Compile(where)
	must(t, err)
	view(t, s, func(tx store.Tx) error {
		ids = nil
		_, err := tx.Scan(store.Scan{Selection: store.NewSelection(f, nil), After: after, Upto: upto}, func(id int64) (bool, error) {
			ids = append(ids, id)
			return true, nil
		})
		return err
	})
	return ids
}
