package engine

import (
	"bytes"
	"errors"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"go.etcd.io/bbolt"
)

// TestTornRecordNamesNoSeries: the series in a record that a card tore can be any
// number. Nothing of that size is allocated for it.
func TestTornRecordNamesNoSeries(t *testing.T) {
	dir, _ := threeEvents(t, pushFourth)
	db, err := bbolt.Open(filepath.Join(dir, databaseName), fileMode, nil)
	if err != nil {
		t.Fatal(err)
	}
	err = db.Update(func(tx *bbolt.Tx) error {
		events := tx.Bucket(bucketEvents)
		key := eventKey(1)
		v := bytes.Clone(events.Get(key))
		g, err := openGroup(key, v)
		var r record
		for err == nil && g.id < 3 {
			_, err = g.next(&r)
		}
		if err != nil {
			return err
		}
		torn := g.append(v[:len(v)-sumBytes-len(g.rest)], &appended{id: 4, series: 0x736f6d65, at: &timeText{exact: true}, content: "x"})
		return events.Put(key, append(torn, "torn"...))
	})
	if err := errors.Join(err, db.Close()); err != nil {
		t.Fatal(err)
	}
	th, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	began := time.Now()
	for _, e := range th.Events(ctx, Query{Filter: "type = 't' AND content LIKE 'x%'"}) {
		err = e
	}
	runtime.ReadMemStats(&after)
	if !errors.Is(err, ErrCorrupt) {
		t.Errorf("events say %v", err)
	}
	if n := after.TotalAlloc - before.TotalAlloc; n > 64<<20 {
		t.Errorf("%d bytes were allocated in %v", n, time.Since(began))
	}
}
