package bolt_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.etcd.io/bbolt"

	"thread/engine"
	"thread/event"
	"thread/filter"
	"thread/index"
	"thread/internal/faults"
	"thread/internal/store"
	"thread/internal/store/bolt"
	"thread/internal/store/bolt/disk"
)

// pageOf reads all events that a filter finds, in one page.
func pageOf(where string) func(th *engine.Thread) error {
	return func(th *engine.Thread) error {
		f, err := filter.Compile(where)
		if err != nil {
			return err
		}
		return view(th, func(tx *bolt.Tx) error {
			_, _, err := tx.Page(store.Scan{Selection: store.NewSelection(f, nil), Upto: 1 << 40}, 1<<40, nil)
			return err
		})
	}
}

func seriesOfAll(th *engine.Thread) error {
	return view(th, func(tx *bolt.Tx) error {
		_, err := tx.ScanSeries(store.Scan{Selection: store.NewSelection(nil, nil), Upto: 1 << 40}, func(*event.Event, func() error) (bool, error) { return true, nil })
		return err
	})
}

func pushOne(th *engine.Thread) error { _, err := th.Push(ctx, draft("new")); return err }

func keepLast(n int64) func(th *engine.Thread) error {
	return func(th *engine.Thread) error {
		_, err := th.Prune(ctx, engine.Retention{KeepLast: &n})
		return err
	}
}

// damaged is a change of a thread that no program makes, and the calls that meet it.
type damaged struct {
	damage func(s *bolt.Store) error
	met    map[string]func(th *engine.Thread) error
}

// ofFile changes events.db.
func ofFile(change func(b *bbolt.Tx) error) func(s *bolt.Store) error {
	return func(s *bolt.Store) error { return bolt.UpdateRaw(ctx, s, change) }
}

// withoutForm is the value of a group behind its form, and behind the length of the first of a
// pair.
func withoutForm(v []byte) []byte {
	if v[0] == disk.GroupFirst {
		return v[1:]
	}
	_, w := binary.Uvarint(v[1:])
	return v[1+w:]
}

func cutLast(v []byte) []byte { return v[:len(v)-3] }

// meets requires that each call returns ErrCorrupt and leaves nothing open or behind, and that
// the events from 1000 up to readable can be read after it.
func meets(t *testing.T, sound string, readable int64, all map[string]damaged) {
	t.Helper()
	for name, tt := range all {
		for call, do := range tt.met {
			dir := filepath.Join(faults.Dir(t), "t")
			must(t, os.CopyFS(dir, os.DirFS(sound)))
			th, err := engine.Open(dir)
			must(t, err)
			must(t, tt.damage(dirOf(th)))
			if err := do(th); !errors.Is(err, store.ErrCorrupt) {
				t.Errorf("%s: %s returns %v", name, call, err)
			}
			if err := view(th, func(tx *bolt.Tx) error {
				for id := int64(1000); id <= readable; id += 99 {
					if e, ok, err := tx.Event(id); !ok || err != nil || e.ID != id {
						return fmt.Errorf("event %d: %v, %w", id, ok, err)
					}
				}
				return nil
			}); err != nil {
				t.Errorf("%s, after %s: %v", name, call, err)
			}
			must(t, th.Close())
			if open, left := faults.Open(t, dir), leftovers(t, dir); open != nil || left != nil || exists(copied(dir)) {
				t.Errorf("%s: %s leaves %q open and %q behind", name, call, open, left)
			}
		}
	}
}

// TestDamageIsMetWhereItIsRead: a record that is not what a program writes is damage for the
// call that comes to it, however far that has come before.
func TestDamageIsMetWhereItIsRead(t *testing.T) {
	dir := filepath.Join(faults.Dir(t), "t")
	everything(t, dir)
	meets(t, dir, 1300, map[string]damaged{
		"the newest group with another checksum": {ofFile(func(b *bbolt.Tx) error {
			events := b.Bucket(disk.BucketEvents)
			k, v := events.Cursor().Last()
			v = bytes.Clone(v)
			v[len(v)-1] ^= 1
			return events.Put(bytes.Clone(k), v)
		}), map[string]func(*engine.Thread) error{"push": pushOne}},
		"an event that is cut, in the journal": {func(s *bolt.Store) error {
			return bolt.Write(ctx, s, func(tx *bolt.Tx, _ store.Session) error {
				events := tx.Bolt().Bucket(disk.BucketEvents)
				k, v := events.Cursor().Last()
				k, v = bytes.Clone(k), bytes.Clone(v[:len(v)-disk.SumBytes])
				return events.Put(k, index.AppendSum(cutLast(v), k))
			})
		}, map[string]func(*engine.Thread) error{"push": pushOne}},
		"an event that is cut": {ofFile(newestGroup(cutLast)), map[string]func(*engine.Thread) error{"an event": func(th *engine.Thread) error {
			return view(th, func(tx *bolt.Tx) error { _, _, err := tx.Event(1503); return err })
		}}},
		"a series that is missing": {ofFile(func(b *bbolt.Tx) error {
			series := b.Bucket(disk.BucketSeriesByID)
			k, _ := series.Cursor().Last()
			return series.Delete(bytes.Clone(k))
		}), map[string]func(*engine.Thread) error{"series": seriesOfAll}},
		"an event that is there twice": {ofFile(func(b *bbolt.Tx) error {
			events := b.Bucket(disk.BucketEvents)
			c := events.Cursor()
			_, v := c.First()
			k, _ := c.Next()
			second, err := disk.EventID(k)
			if err != nil {
				return err
			}
			key := disk.EventKey(second - 1)
			v = bytes.Clone(v[:len(v)-disk.SumBytes])
			return events.Put(key, index.AppendSum(append([]byte{disk.GroupFirst}, withoutForm(v)...), key))
		}), map[string]func(*engine.Thread) error{"page": pageOf("content <> 'x'")}},
		"the newest events gone": {ofFile(func(b *bbolt.Tx) error {
			events := b.Bucket(disk.BucketEvents)
			k, _ := events.Cursor().Last()
			return events.Delete(bytes.Clone(k))
		}), map[string]func(*engine.Thread) error{"page": pageOf("content <> 'x'"), "series": seriesOfAll}},
	})
}

// TestDamagedColumnsOfManyEvents: where the columns have fewer events than are stored, or one
// cannot be read, nothing is pruned and no copy is made, as it is not known which events stay.
func TestDamagedColumnsOfManyEvents(t *testing.T) {
	dir := filepath.Join(faults.Dir(t), "t")
	th, err := engine.Init(dir)
	must(t, err)
	_, err = th.PushAll(ctx, drafts(10_100, ""))
	must(t, errors.Join(err, th.Close()))
	first := func(change func(columns *bbolt.Bucket, k []byte) error) func(s *bolt.Store) error {
		return ofFile(func(b *bbolt.Tx) error {
			columns := b.Bucket(disk.BucketColumns)
			k, _ := columns.Cursor().First()
			return change(columns, bytes.Clone(k))
		})
	}
	calls := map[string]func(th *engine.Thread) error{"prune": keepLast(10_050), "copy": func(th *engine.Thread) error {
		_, err := copyTo(ctx, th.Dir(), bolt.CopyOptions{})
		return err
	}}
	meets(t, dir, 10_100, map[string]damaged{
		"the first is missing": {first(func(columns *bbolt.Bucket, k []byte) error { return columns.Delete(k) }), calls},
		"the first is not one": {first(func(columns *bbolt.Bucket, k []byte) error { return columns.Put(k, []byte("x")) }), calls},
	})
}

// TestDamagedHalfOfABatch: what a batch that was cut short has left is not removed from a group
// that is damaged, and nothing is stored behind it.
func TestDamagedHalfOfABatch(t *testing.T) {
	th := initThread(t)
	for range 3 {
		must(t, pushOne(th))
	}
	db, err := bolt.OpenRaw(ctx, dirOf(th))
	must(t, err)
	must(t, errors.Join(db.Update(func(b *bbolt.Tx) error {
		tx, err := bolt.NewTx(dirOf(th), b)
		if err != nil {
			return err
		}
		d := draft("lost")
		if _, err := tx.Append(&d, "2026-03-18T10:30:00.123Z"); err != nil {
			return err
		}
		if err := tx.FlushGroups(); err != nil {
			return err
		}
		events := b.Bucket(disk.BucketEvents)
		k, v := events.Cursor().Last()
		v = bytes.Clone(v)
		v[len(v)-1] ^= 1
		return events.Put(bytes.Clone(k), v)
	}), db.Close()))
	for range 2 {
		if err := pushOne(th); !errors.Is(err, store.ErrCorrupt) {
			t.Error(err)
		}
		if err := th.Subscribe(ctx, engine.Subscription{Consumer: "c", Handler: "true"}); !errors.Is(err, store.ErrCorrupt) {
			t.Errorf("a subscription: %v", err)
		}
	}
	must(t, view(th, func(tx *bolt.Tx) error {
		if st := tx.State(); st.Head != 3 || st.LastID != 3 {
			t.Errorf("%+v", st)
		}
		return nil
	}))
}

// TestBaseOfAnotherFormat: a copy whose base has no format that is known, or whose state is
// gone, is made without it.
func TestBaseOfAnotherFormat(t *testing.T) {
	dir := filepath.Join(faults.Dir(t), "t")
	fiveEvents(t, dir)
	s, err := openStore(dir, bolt.Options{})
	must(t, err)
	defer s.Close()
	one := func(*os.File) (string, error) { return "one", nil }
	base := copied(dir) + ".base"
	for _, key := range [][]byte{disk.KeyFormat, disk.KeyState} {
		since, _, err := s.CopyTo(ctx, bolt.CopyOptions{To: base, Identity: one})
		must(t, err)
		db, err := bbolt.Open(base, 0o600, nil)
		must(t, err)
		must(t, errors.Join(db.Update(func(b *bbolt.Tx) error { return b.Bucket(disk.BucketMeta).Put(key, []byte("x")) }), db.Close()))
		since.Copy++
		_, more, err := s.CopyTo(ctx, bolt.CopyOptions{To: copied(dir), Identity: one, Base: base, Since: since})
		if err != nil || more != 5 {
			t.Errorf("%q: %d events were copied, %v", key, more, err)
		}
		to := filepath.Join(faults.Dir(t), "t")
		must(t, os.Mkdir(to, 0o700))
		must(t, os.Rename(copied(dir), filepath.Join(to, bolt.DatabaseName)))
		if list := contents(t, to); len(list) != 5 {
			t.Errorf("%q: %q", key, list)
		}
		must(t, os.Remove(base))
	}
}

// TestWayToAKeyIsDamaged: where the way to a key ends elsewhere than the walk that has met it, the
// next writer returns ErrCorrupt and does not try for ever to remove what a batch has left.
func TestWayToAKeyIsDamaged(t *testing.T) {
	s := five(t, bolt.Options{MaxGroup: 560})
	ds := make([]event.Draft, 561)
	for i := range ds {
		ds[i] = draft(fmt.Sprint("lost ", strings.Repeat("x", 100), i))
	}
	must(t, bolt.CutBatch(ctx, s, ds))
	db, err := bbolt.Open(s.Path(bolt.DatabaseName), 0o600, &bbolt.Options{ReadOnly: true})
	must(t, err)
	var root int64
	must(t, errors.Join(db.View(func(b *bbolt.Tx) error {
		root = int64(b.Bucket(disk.BucketEvents).RootPage())
		return nil
	}), db.Close()))
	f, err := os.OpenFile(s.Path(bolt.DatabaseName), os.O_RDWR, 0)
	must(t, err)
	page := make([]byte, disk.PageBytes)
	_, err = f.ReadAt(page, root*disk.PageBytes)
	must(t, err)
	const elementBytes = 16
	last := disk.PageHeaderBytes + elementBytes*(int(binary.NativeEndian.Uint16(page[10:]))-1)
	key := page[last+int(binary.NativeEndian.Uint32(page[last:])):][:8]
	binary.BigEndian.PutUint64(key, binary.BigEndian.Uint64(key)+1)
	_, err = f.WriteAt(page, root*disk.PageBytes)
	must(t, errors.Join(err, f.Close()))
	for name, call := range calls {
		err := call(ctx, s)
		if name == "push" || name == "batch" || name == "start of lines" {
			if !errors.Is(err, store.ErrCorrupt) {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
	if list := contents(t, s.Dir); len(list) != 5 || leftovers(t, s.Dir) != nil {
		t.Errorf("%d events, left are %q", len(list), leftovers(t, s.Dir))
	}
}
