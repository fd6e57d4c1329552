package bolt_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.etcd.io/bbolt"

	"thread/engine"
	"thread/event"
	"thread/filter"
	"thread/internal/faults"
	"thread/internal/store"
	"thread/internal/store/bolt"
	"thread/internal/store/bolt/disk"
	"thread/jsonlog"
)

// restoreAll restores everything that a restore takes, into a directory below the thread's.
func restoreAll(replace, off bool, content string) func(th *engine.Thread) (string, error) {
	return func(th *engine.Thread) (_ string, err error) {
		dir := filepath.Join(th.Dir(), "in", "t")
		if replace {
			other := filepath.Join(dir, bolt.DatabaseName)
			if err := errors.Join(os.MkdirAll(dir, 0o700), os.WriteFile(other, []byte("another kind"), 0o600)); err != nil {
				return "", err
			}
		}
		r, err := bolt.StartRestore(dir, replace)
		if err != nil {
			return "", err
		}
		defer func() { err = errors.Join(err, r.Close()) }()
		r.SetLinesOff(off)
		for i := range int64(5) {
			e := event.Event{ID: 2 * (i + 1), CreatedAt: "2026-03-18T10:30:00.123Z", Source: fmt.Sprint("s", i%2), Type: "t", Content: "old"}
			if i == 3 {
				e.Content += content
			}
			if err := r.Event(&e); err != nil {
				return "", err
			}
		}
		more := store.Subscription{Consumer: "c", AckOnSuccess: true}
		key, value := []byte("key"), []byte("value")
		for _, err := range []error{
			r.Subscription(store.Subscription{Consumer: "c", Handler: "true"}, 3, more.Options()),
			r.Progress("c", store.ProgressRecord{LastAcked: 4, UpdatedAt: "2026-03-18T10:30:00.123Z"}),
			r.Extra(store.Extra{Bucket: []string{"mine"}, Sequence: 7}),
			r.Extra(store.Extra{Bucket: []string{"mine"}, Key: key, Value: value}),
			r.Extra(store.Extra{Bucket: []string{"mine", "in", "it"}, Key: key, Value: value}),
			r.Finish(50, 2),
		} {
			if err != nil {
				return "", err
			}
		}
		return "", r.Publish()
	}
}

// restored is what restoreAll has made, "" for nothing.
func restored(th *engine.Thread) (string, error) {
	dir := filepath.Join(th.Dir(), "in", "t")
	of, err := engine.Open(dir)
	if errors.Is(err, engine.ErrNotThread) || errors.Is(err, store.ErrNotDatabase) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	defer of.Close()
	events, err := allEvents(of)
	if err != nil {
		return "", err
	}
	s, err := store.TakeSnapshot(ctx, dirOf(of))
	return fmt.Sprint(events, s, exists(filepath.Join(dir, "events.jsonl")), leftoversOf(dir)), err
}

func leftoversOf(dir string) (list []string) {
	for _, pattern := range []string{"*.new", "*.compact"} {
		names, _ := filepath.Glob(filepath.Join(dir, pattern))
		list = append(list, names...)
	}
	return list
}

// layered makes a thread with buckets in buckets, of a version that let others make them, and
// a copy of it that continuing takes: since then entries became buckets, buckets entries,
// and a bucket is gone.
func layered(t *testing.T, dir string) (since bolt.Moment) {
	t.Helper()
	fiveEvents(t, dir)
	th, err := engine.Open(dir)
	must(t, err)
	defer th.Close()
	put := func(b *bbolt.Bucket, text string) error {
		return errors.Join(b.Put([]byte("key"), []byte(text)), b.SetSequence(uint64(len(text))))
	}
	must(t, bolt.UpdateRaw(ctx, dirOf(th), func(tx *bbolt.Tx) error {
		_, err := tx.CreateBucket([]byte("gone"))
		b, berr := tx.CreateBucket([]byte("layers"))
		if err := errors.Join(err, berr); err != nil {
			return err
		}
		in, err := b.CreateBucket([]byte("entry later"))
		if err != nil {
			return err
		}
		deep, err := in.CreateBucket([]byte("deep"))
		if err != nil {
			return err
		}
		same, err := b.CreateBucket([]byte("same"))
		if err != nil {
			return err
		}
		return errors.Join(put(deep, "deep"), put(same, "same"), b.Put([]byte("bucket later"), []byte("entry")), b.Put([]byte("gone"), nil))
	}))
	since, err = copyTo(ctx, dir, bolt.CopyOptions{})
	must(t, err)
	must(t, os.Rename(copied(dir), copied(dir)+".base"))
	must(t, bolt.UpdateRaw(ctx, dirOf(th), func(tx *bbolt.Tx) error {
		b := tx.Bucket([]byte("layers"))
		err := errors.Join(tx.DeleteBucket([]byte("gone")), b.DeleteBucket([]byte("entry later")), b.Delete([]byte("bucket later")), b.Delete([]byte("gone")))
		if err != nil {
			return err
		}
		in, err := b.CreateBucket([]byte("bucket later"))
		if err != nil {
			return err
		}
		// More than is merged in one step.
		for i := range 3 {
			if err := in.Put(fmt.Append(nil, "large ", i), []byte(large+strings.Repeat("x", 900_000))); err != nil {
				return err
			}
		}
		return errors.Join(put(in, "in"), b.Put([]byte("entry later"), []byte("entry")), put(b.Bucket([]byte("same")), "changed"))
	}))
	_, err = th.Push(ctx, draft("behind it"))
	must(t, err)
	return since
}

// dump lists a bucket with all that is in it.
func dump(b *bbolt.Bucket, path string) (text string) {
	text = fmt.Sprintf("%s %d\n", path, b.Sequence())
	_ = b.ForEach(func(k, v []byte) error {
		if v == nil {
			text += dump(b.Bucket(k), path+"/"+string(k))
			return nil
		}
		text += fmt.Sprintf("%s/%s=%.10s %d\n", path, k, v, len(v))
		return nil
	})
	return text
}

// layersOf returns the buckets of others in a database.
func layersOf(path string) (text string, err error) {
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{ReadOnly: true})
	if err != nil {
		return "", err
	}
	defer db.Close()
	err = db.View(func(tx *bbolt.Tx) error {
		return tx.ForEach(func(name []byte, b *bbolt.Bucket) error {
			if !store.Reserved(store.Table(name)) {
				text += dump(b, string(name))
			}
			return nil
		})
	})
	return text, err
}

// TestStepsOfLayers is TestSteps for a database with buckets in buckets: a copy behind an
// earlier one, and a compaction, have the same ones.
func TestStepsOfLayers(t *testing.T) {
	dir := filepath.Join(faults.Dir(t), "t")
	since := layered(t, dir)
	want, err := layersOf(filepath.Join(dir, bolt.DatabaseName))
	must(t, err)
	if strings.Count(want, "\n") != 9 {
		t.Fatalf("there are %s", want)
	}
	at := func(name string) func(th *engine.Thread) (string, error) {
		return func(th *engine.Thread) (string, error) {
			path := filepath.Join(th.Dir(), name)
			if !exists(path) {
				return "", nil
			}
			got, err := layersOf(path)
			if err == nil && got != want {
				err = fmt.Errorf("%s, want %s", got, want)
			}
			return got, err
		}
	}
	failEachStep(t, dir, map[string]deed{
		"copy behind": {do: done(func(th *engine.Thread) error {
			defer os.Remove(copied(th.Dir()) + ".new")
			_, err := copyTo(ctx, th.Dir(), bolt.CopyOptions{Base: copied(th.Dir()) + ".base", Since: since})
			return err
		}), then: at("copy")},
		"compact":  {do: done(func(th *engine.Thread) error { _, err := th.Compact(ctx); return err }), then: at(bolt.DatabaseName)},
		"snapshot": {do: questions()["snapshot"]},
		"extras": {do: func(th *engine.Thread) (string, error) {
			s, err := store.TakeSnapshot(ctx, dirOf(th))
			return fmt.Sprint(len(s.Extras)), err
		}},
	})
}

// manySeries makes a thread of more series than are asked about one after another.
const manySeries = 9000

// TestStepsOfManySeries is TestSteps where filters are answered by series and types ahead of
// the events, which gives the same events.
func TestStepsOfManySeries(t *testing.T) {
	dir := filepath.Join(faults.Dir(t), "t")
	th, err := engine.Init(dir)
	must(t, err)
	_, err = th.PushAll(ctx, func(yield func(event.Draft, error) bool) {
		for i := range manySeries {
			if !yield(event.Draft{Source: fmt.Sprint("source ", i), Type: fmt.Sprint("t", i%5), Content: "c"}, nil) {
				return
			}
		}
	})
	must(t, err)
	must(t, th.Close())
	all := map[string]deed{}
	for where, keep := range map[string]func(i int) bool{
		"type = 't1' OR type <> 't0' AND source LIKE '%7'": func(i int) bool { return i%5 == 1 || i%5 != 0 && i%10 == 7 },
		"type = 't9'": func(int) bool { return false },
		"source = 'source 8999' AND content = 'c'": func(i int) bool { return i == 8999 },
		"source LIKE '%99'":                        func(i int) bool { return i%100 == 99 },
		"type <> 't9' AND source LIKE '%1%'":       func(i int) bool { return strings.Contains(fmt.Sprint(i), "1") },
		"type IN ('t1', 't2') AND source > 'source 9'": func(i int) bool {
			return (i%5 == 1 || i%5 == 2) && fmt.Sprint(i) > "9"
		},
	} {
		f, err := filter.Compile(where)
		must(t, err)
		var want []int64
		for i := range manySeries {
			if keep(i) {
				want = append(want, int64(i+1))
			}
		}
		all[where] = deed{do: func(th *engine.Thread) (string, error) {
			var got []int64
			err := view(th, func(tx *bolt.Tx) error {
				_, err := tx.Scan(store.Scan{Selection: store.NewSelection(f, nil), Upto: manySeries}, func(id int64) (bool, error) {
					got = append(got, id)
					return true, nil
				})
				return err
			})
			if err == nil && !slices.Equal(got, want) {
				err = fmt.Errorf("%d events, want %d", len(got), len(want))
			}
			return fmt.Sprint(len(got)), err
		}}
		all["learn "+where] = deed{do: func(th *engine.Thread) (string, error) {
			second, err := filter.Compile("source LIKE '%5'")
			if err != nil {
				return "", err
			}
			both := []*store.Selection{store.NewSelection(f, nil), store.NewSelection(second, nil), store.NewSelection(nil, nil)}
			err = view(th, func(tx *bolt.Tx) error {
				done, err := false, error(nil)
				for !done && err == nil {
					done, err = tx.Learn(both)
				}
				return err
			})
			if err != nil {
				return "", err
			}
			n := 0
			err = view(th, func(tx *bolt.Tx) error {
				_, err := tx.Scan(store.Scan{Selection: both[0], Upto: manySeries}, func(int64) (bool, error) { n++; return true, nil })
				return err
			})
			if err == nil && n != len(want) {
				err = fmt.Errorf("%d events, want %d", n, len(want))
			}
			return fmt.Sprint(n), err
		}}
	}
	failEachStep(t, dir, all)
}

// linesDeeds change where the lines of a thread are.
func linesDeeds() map[string]deed {
	return map[string]deed{
		"start of lines": {do: done(func(th *engine.Thread) error { return dirOf(th).SetLogStart(ctx, disk.LogStart{From: 3}) }), then: startOfLines},
		"replace lines": {do: done(func(th *engine.Thread) error {
			return dirOf(th).ReplaceLines(ctx, func(store.Tx) (jsonlog.Position, error) { return jsonlog.Position{First: 5, Size: 1}, nil })
		}), then: startOfLines},
		"view lines": {do: startOfLines},
	}
}

func startOfLines(th *engine.Thread) (text string, err error) {
	err = dirOf(th).ViewLines(ctx, func(st disk.State, start disk.LogStart) error {
		text = fmt.Sprint(st.Log, start)
		return nil
	})
	return text, err
}
