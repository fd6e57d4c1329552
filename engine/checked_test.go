package engine

import (
	"encoding/binary"
	"hash/fnv"
	"path/filepath"
	"testing"

	"thread/event"
	"thread/filter"
	"thread/index"
	"thread/internal/store"
	"thread/internal/store/bolt"
)

// TestCheckedVersion: what a program remembers of events that it passed over does
// not count for one to which filters mean something else, and neither does what
// programs remembered before there was a version. These records are swept.
func TestCheckedVersion(t *testing.T) {
	th, err := Init(filepath.Join(t.TempDir(), "inbox"))
	if err != nil {
		t.Fatal(err)
	}
	ds := make([]event.Draft, 2*rememberAfter)
	for i := range ds {
		ds[i] = event.Draft{Source: "a", Type: "t", Content: "x"}
	}
	if _, err := th.PushBatch(ctx, ds); err != nil {
		t.Fatal(err)
	}
	where := "content LIKE '%x%'"
	for _, c := range []Subscription{
		{Consumer: "c", Handler: "true", Filter: &where},
		{Consumer: "other", Handler: "true", Filter: event.Text("content = 'y'")},
	} {
		if err := th.Subscribe(ctx, c); err != nil {
			t.Fatal(err)
		}
	}
	hash := func(b ...byte) uint64 {
		h := fnv.New64a()
		h.Write(append(b, where...))
		return h.Sum64()
	}
	// remember writes what a program of that hash would that passed everything over.
	remember := func(consumer string, sequence, hash uint64) {
		t.Helper()
		err := th.Update(ctx, func(tx *Tx) error {
			if err := tx.s.SetSequence(store.Checked, sequence); err != nil {
				return err
			}
			key := store.ConsumerKey(consumer)
			v := binary.BigEndian.AppendUint64(nil, hash)
			v = binary.BigEndian.AppendUint64(v, 0)
			v = binary.BigEndian.AppendUint64(v, uint64(tx.Head()))
			return tx.s.Put(store.Checked, key, index.AppendSum(v, key))
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	first := func() int64 {
		t.Helper()
		d, err := th.DueFor(ctx, "c", 0)
		if err != nil || d.Err != nil {
			t.Fatal(err, d.Err)
		}
		return d.First
	}
	remember("c", filter.Version, hash(filter.Version))
	if id := first(); id != 0 {
		t.Errorf("what this version remembers is not used: first is %d", id)
	}
	for name, h := range map[string]uint64{"none": hash(), "older": hash(filter.Version - 1), "newer": hash(filter.Version + 1)} {
		remember("c", filter.Version, h)
		if id := first(); id != 1 {
			t.Errorf("version %s: first is %d", name, id)
		}
		if err := th.Update(ctx, func(tx *Tx) error { return bolt.Raw(tx.s).Bucket(bucketChecked).Delete(store.ConsumerKey("other")) }); err != nil {
			t.Fatal(err)
		}
		remember("c", filter.Version-1, h)
		if _, err := th.Due(ctx); err != nil { // the other consumer's look is long
			t.Fatal(err)
		}
		err := th.View(ctx, func(tx *Tx) error {
			b := bolt.Raw(tx.s).Bucket(bucketChecked)
			if b.Get(store.ConsumerKey("c")) != nil || b.Get(store.ConsumerKey("other")) == nil || b.Sequence() != filter.Version {
				t.Errorf("version %s: not swept", name)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}
