package fsck

import (
	"bytes"
	"errors"
	"runtime"
	"testing"
	"time"

	"go.etcd.io/bbolt"

	"thread/engine"
	"thread/internal/store/bolt"
	"thread/internal/store/bolt/disk"
)

// TestTornRecordNamesNoSeries: the series in a record that a card tore can be any
// number. Nothing of that size is allocated for it.
func TestTornRecordNamesNoSeries(t *testing.T) {
	dir, _ := threeEvents(t, pushFourth)
	th, err := engine.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	db, err := bolt.OpenRaw(ctx, storeOf(th))
	if err != nil {
		t.Fatal(err)
	}
	err = db.Update(func(tx *bbolt.Tx) error {
		events := tx.Bucket(disk.BucketEvents)
		key := disk.EventKey(1)
		v := bytes.Clone(events.Get(key))
		g, err := disk.OpenGroup(key, v)
		var r disk.Record
		for err == nil && g.ID < 3 {
			_, err = g.Next(&r)
		}
		if err != nil {
			return err
		}
		torn := g.Append(v[:len(v)-disk.SumBytes-len(g.Rest)], &disk.Appended{ID: 4, Series: 0x736f6d65, At: &disk.TimeText{Exact: true}, Content: "x"})
		return events.Put(key, append(torn, "torn"...))
	})
	if err := errors.Join(err, db.Close()); err != nil {
		t.Fatal(err)
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	began := time.Now()
	for _, e := range th.Events(ctx, engine.Query{Filter: "type = 't' AND content LIKE 'x%'"}) {
		err = e
	}
	runtime.ReadMemStats(&after)
	if !errors.Is(err, engine.ErrCorrupt) {
		t.Errorf("events say %v", err)
	}
	if n := after.TotalAlloc - before.TotalAlloc; n > 64<<20 {
		t.Errorf("%d bytes were allocated in %v", n, time.Since(began))
	}
}
