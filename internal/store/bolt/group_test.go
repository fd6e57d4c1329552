package bolt_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"time"

	"go.etcd.io/bbolt"

	"thread/engine"
	"thread/event"
	"thread/index"
	"thread/internal/fsck"
	"thread/internal/store/bolt"
	"thread/internal/store/bolt/disk"
)

// readGroup returns the events of an entry, encoded again, and its records.
func readGroup(key, value []byte) (again []byte, ids []int64, rs []disk.Record, err error) {
	g, err := disk.OpenGroup(key, value)
	if err != nil {
		return nil, nil, nil, err
	}
	var w disk.Group
	again = bytes.Clone(value[:len(value)-disk.SumBytes-len(g.Rest)])
	for {
		var r disk.Record
		more, err := g.Next(&r)
		if err != nil {
			return nil, nil, nil, err
		}
		if !more {
			return index.AppendSum(again, key), ids, rs, nil
		}
		ids, rs = append(ids, g.ID), append(rs, r)
		e := disk.Appended{ID: g.ID, Series: r.Series, At: &disk.TimeText{Millis: r.At, Exact: r.Verbatim == nil, Text: string(r.Verbatim)},
			Content: string(r.Content), InPieces: r.Pieces, Size: r.Size, Sum: r.Sum}
		again = w.Append(again, &e)
	}
}

// sampleEvents are events of every form, with ids that rise.
func sampleEvents(r *rand.Rand, n int) []event.Event {
	times := []string{"2026-03-18T10:30:00.123Z", "2026-03-18T10:30:00.124Z", "1969-12-31T23:59:59.999Z", "", "yesterday", "9999-12-31T23:59:59.999Z", strings.Repeat("9", 300)}
	sizes := []int{0, 1, 20, 31, 32, 230, 511, 512, 513, 1000, 2000, 2016, 2017, 4000, disk.LargeBytes, disk.LargeBytes + 1, disk.PieceBytes, disk.PieceBytes + 1, 2 * disk.PieceBytes, 100_000}
	es := make([]event.Event, n)
	id := int64(0)
	for i := range es {
		id++
		if r.IntN(10) == 0 {
			id += r.Int64N(1 << 40)
		}
		es[i] = event.Event{ID: id, CreatedAt: times[r.IntN(len(times))], Source: fmt.Sprint("s", r.IntN(300)), Type: "t",
			Content: strings.Repeat(string(rune('a'+i%26)), sizes[r.IntN(len(sizes))])}
	}
	return es
}

// TestGroups stores events of every form one by one and many at a time, and reads
// them back, by id, in order and newest first; compact keeps them.
func TestGroups(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	th := initThread(t)
	es := sampleEvents(r, 700)
	for rest := es; len(rest) > 0; {
		n := min(len(rest), 1+r.IntN(40))
		err := write(th, func(tx *bolt.Tx) error {
			for i := range rest[:n] {
				if err := tx.Insert(&rest[i]); err != nil {
					return err
				}
				if r.IntN(5) == 0 { // what was written in this transaction is read in it
					if e, ok, err := tx.Event(rest[i].ID); err != nil || !ok || e != rest[i] {
						return fmt.Errorf("event %d, just written: %v %v", rest[i].ID, ok, err)
					}
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		rest = rest[n:]
	}
	look := func() {
		t.Helper()
		sound(t, th)
		i := 0
		for e, err := range th.Events(ctx, engine.Query{}) {
			if err != nil {
				t.Fatal(err)
			}
			if e != es[i] {
				t.Fatalf("event %d: %.100v, want %.100v", i, e, es[i])
			}
			i++
		}
		if i != len(es) {
			t.Fatalf("%d of %d events", i, len(es))
		}
		for e, err := range th.Events(ctx, engine.Query{Reverse: true, Filter: "content LIKE '%a%' OR id > 0"}) {
			if i--; err != nil || e != es[i] {
				t.Fatalf("backwards, event %d: %v %.100v", i, err, e)
			}
		}
		err := view(th, func(tx *bolt.Tx) error {
			for range 500 {
				i := r.IntN(len(es))
				e, ok, err := tx.Event(es[i].ID)
				if err != nil || !ok || e != es[i] {
					return fmt.Errorf("event %d: %v, %v", es[i].ID, ok, err)
				}
				if i > 0 && es[i-1].ID < es[i].ID-1 {
					if ok, err := tx.Has(es[i].ID - 1); ok || err != nil {
						return fmt.Errorf("event %d is there: %v", es[i].ID-1, err)
					}
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	look()
	if _, err := th.Compact(ctx); err != nil {
		t.Fatal(err)
	}
	look()
	keep := int64(150)
	if _, err := th.Prune(ctx, engine.Retention{KeepLast: &keep}); err != nil {
		t.Fatal(err)
	}
	es = es[len(es)-int(keep):]
	look()
}

// TestGroupsFillPages: after single pushes and after a batch alike, less than a
// tenth of the pages of events is not the events' own.
func TestGroupsFillPages(t *testing.T) {
	for _, size := range []int{20, 100, 230, 1000} {
		th := initThread(t)
		n := 400_000 / (size + 20)
		d := event.Draft{Source: "s", Type: "t", Content: strings.Repeat("x", size)}
		for i := 0; i < n; i += 50 {
			ds := make([]event.Draft, 50)
			for j := range ds {
				ds[j] = d
			}
			if _, err := th.PushBatch(ctx, ds); err != nil {
				t.Fatal(err)
			}
		}
		must(t, bolt.Fold(ctx, dirOf(th)))
		err := view(th, func(tx *bolt.Tx) error {
			s := tx.Bolt().Bucket(disk.BucketEvents).Stored().Stats()
			pages := (s.LeafPageN + s.LeafOverflowN) * disk.PageBytes
			stored := tx.DiskState().Stored * int64(size+5)
			if int64(pages) > stored*110/100 {
				t.Errorf("%d events of %d bytes take %d bytes of pages, %.2f of what they need", tx.DiskState().Stored, size, pages, float64(pages)/float64(stored))
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

// TestHalfABatchInAGroup: a batch that was cut short left events in a group with
// visible ones, separate groups, and pieces. The next push clears them.
func TestHalfABatchInAGroup(t *testing.T) {
	for _, before := range []int{0, 3, 50} {
		th := initThread(t)
		for i := range before {
			if _, err := th.Push(ctx, event.Draft{Source: "s", Type: "t", Content: fmt.Sprint("before ", i)}); err != nil {
				t.Fatal(err)
			}
		}
		want := ""
		if before > 0 {
			want = sound(t, th)
		}
		db, err := bolt.OpenRaw(ctx, dirOf(th))
		if err != nil {
			t.Fatal(err)
		}
		err = db.Update(func(b *bbolt.Tx) error {
			tx, err := bolt.NewTx(dirOf(th), b)
			if err != nil {
				return err
			}
			for i := range 100 {
				d := event.Draft{Source: "s", Type: fmt.Sprint("t", i%7), Content: strings.Repeat("lost", 1+i*i%6000)}
				if _, err := tx.Append(&d, "2026-03-18T10:30:00.123Z"); err != nil {
					return err
				}
			}
			return tx.FlushGroups() // and no state
		})
		if err := errors.Join(err, db.Close()); err != nil {
			t.Fatal(err)
		}
		if before > 0 {
			if got := sound(t, th); got != want {
				t.Errorf("with half a batch: digest %s, was %s", got, want)
			}
		}
		es, err := th.Peek(ctx, engine.Query{})
		if err != nil || len(es) != before {
			t.Fatalf("%d events are visible of %d: %v", len(es), before, err)
		}
		e, err := th.Push(ctx, event.Draft{Source: "s", Type: "after", Content: strings.Repeat("after", 5000)})
		if err != nil || e.ID != int64(before+1) {
			t.Fatalf("event %d, %v", e.ID, err)
		}
		sound(t, th)
		if es, err = th.Peek(ctx, engine.Query{After: int64(before)}); err != nil || len(es) != 1 || es[0] != e {
			t.Errorf("after it: %d events, %v", len(es), err)
		}
	}
}

// TestDamagedPieces: when a piece of a large content is damaged, gone or another
// event's, the content is not given out, check names the event, and repair saves it
// from wherever it still is.
func TestDamagedPieces(t *testing.T) {
	// Four pieces.
	content := strings.Repeat("0123456789abcdef", 2500) + "the only one" + strings.Repeat("0123456789abcdef", 1500)
	damages := map[string]func(b *bbolt.Bucket) error{
		"a bit": func(b *bbolt.Bucket) error {
			k, v := b.Cursor().Seek(append(disk.EventKey(2), 0, 0, 0, 2))
			v = bytes.Clone(v)
			v[len(v)/2] ^= 4
			return b.Put(k, v)
		},
		"every copy": func(*bbolt.Bucket) error { return nil },
		"gone": func(b *bbolt.Bucket) error {
			k, _ := b.Cursor().Seek(append(disk.EventKey(2), 0, 0, 0, 1))
			return b.Delete(k)
		},
		"all gone": func(b *bbolt.Bucket) error { return b.Tx().DeleteBucket(disk.BucketPieces) },
		"the last gone": func(b *bbolt.Bucket) error {
			k, _ := b.Cursor().Seek(append(disk.EventKey(2), 0, 0, 0, 3))
			return b.Delete(k)
		},
		"another event's, whole": func(b *bbolt.Bucket) error {
			_, v := b.Cursor().Seek(append(disk.EventKey(3), 0, 0, 0, 1))
			v = bytes.Clone(v)
			own, _ := b.Cursor().Seek(append(disk.EventKey(2), 0, 0, 0, 1))
			own = bytes.Clone(own)
			if err := b.Delete(own); err != nil {
				return err
			}
			return b.Put(binary.BigEndian.AppendUint32(own[:12:12], index.Sum(own[:12], v)), v)
		},
	}
	for name, damage := range damages {
		t.Run(name, func(t *testing.T) {
			th := initThread(t)
			for _, c := range []string{"small", content, strings.ToUpper(content), "small too"} {
				if _, err := th.Push(ctx, event.Draft{Source: "s", Type: "t", Content: c}); err != nil {
					t.Fatal(err)
				}
			}
			db, err := bolt.OpenRaw(ctx, dirOf(th))
			if err != nil {
				t.Fatal(err)
			}
			err = db.Update(func(b *bbolt.Tx) error { return damage(b.Bucket(disk.BucketPieces)) })
			if err := errors.Join(err, db.Close()); err != nil {
				t.Fatal(err)
			}
			every := strings.HasPrefix(name, "every")
			if every { // in pages that are free, too
				b, err := os.ReadFile(dirOf(th).Path(bolt.DatabaseName))
				if err == nil {
					err = os.WriteFile(dirOf(th).Path(bolt.DatabaseName), bytes.ReplaceAll(b, []byte("the only one"), []byte("the onlz one")), bolt.FileMode)
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			if _, err := th.Peek(ctx, engine.Query{}); !errors.Is(err, engine.ErrCorrupt) {
				t.Errorf("peek: %v", err)
			}
			if es, err := th.Peek(ctx, engine.Query{After: 3}); err != nil || len(es) != 1 {
				t.Errorf("the event after it: %v", err)
			}
			r, err := fsck.Check(ctx, th)
			if err != nil || len(r.Faults) == 0 || !strings.Contains(fmt.Sprint(r.Faults), "event 2") {
				t.Errorf("check: %v, %v", r.Faults, err)
			}
			to := t.TempDir() + "/saved"
			report, err := fsck.Repair(ctx, th.Dir(), to)
			if err != nil || report.FromDatabase > 3 || every && report.FromLines != 1 || len(report.Lost) > 0 {
				t.Fatalf("%+v, %v", report, err)
			}
			saved, err := engine.Open(to)
			if err != nil {
				t.Fatal(err)
			}
			es, err := saved.Peek(ctx, engine.Query{})
			if err != nil || len(es) != 4 || es[1].Content != content {
				t.Errorf("%d saved, %v", len(es), err)
			}
		})
	}
}

// TestFilterOnLargeContent: filters see all of a large content, and one that does
// not look at it does not read it.
func TestFilterOnLargeContent(t *testing.T) {
	th := initThread(t)
	for i := range 5 {
		content := strings.Repeat("x", 50_000) + fmt.Sprint("end ", i)
		if _, err := th.Push(ctx, event.Draft{Source: "s", Type: fmt.Sprint("t", i%2), Content: content}); err != nil {
			t.Fatal(err)
		}
	}
	for where, want := range map[string]int{"content LIKE '%end 3'": 1, "length(content) = 50005": 5, "type = 't0'": 3, "id > 2 AND type LIKE '%1'": 1} {
		if es, err := th.Peek(ctx, engine.Query{Filter: where}); err != nil || len(es) != want {
			t.Errorf("%s: %d events, want %d, %v", where, len(es), want, err)
		}
	}
}

// FuzzGroup: an entry of bucket events that is read without an error is what its
// events are written as, and no other one does any harm.
func FuzzGroup(f *testing.F) {
	key := disk.EventKey(7)
	r := rand.New(rand.NewPCG(3, 4))
	for range 8 {
		var g disk.Group
		b := []byte{disk.GroupFirst}
		for _, e := range sampleEvents(r, 1+r.IntN(5)) {
			var at disk.TimeText
			at.SetText(e.CreatedAt)
			a := disk.Appended{ID: e.ID + 6, Series: uint32(r.IntN(1 << 20)), At: &at, Content: e.Content[:min(len(e.Content), 50)]}
			if r.IntN(3) == 0 {
				a.Content, a.InPieces, a.Size, a.Sum = "", true, 70_000, 5
			}
			b = g.Append(b, &a)
		}
		f.Add(b)
	}
	f.Add([]byte{disk.GroupSecond, 0x80, 0x10, 4, 1, 0, 'x'})
	f.Fuzz(func(t *testing.T, body []byte) {
		value := index.AppendSum(bytes.Clone(body), key)
		again, ids, rs, err := readGroup(key, value)
		if err != nil {
			if !errors.Is(err, engine.ErrCorrupt) {
				t.Error(err)
			}
			return
		}
		if len(ids) == 0 || ids[0] != 7 {
			t.Errorf("ids %v", ids)
		}
		_, ids2, rs2, err := readGroup(key, again)
		if err != nil || fmt.Sprint(ids, rs) != fmt.Sprint(ids2, rs2) {
			t.Errorf("%x: written again it is %x, %v", value, again, err)
		}
	})
}

// BenchmarkLargePush pushes 8 MiB next to others of that size, and small events
// next to them.
func BenchmarkLargePush(b *testing.B) {
	for _, size := range []int{100, 8 << 20} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			th, err := engine.Init(b.TempDir()+"/t", engine.WithClock(time.Now))
			if err != nil {
				b.Fatal(err)
			}
			large := strings.Repeat("x", 8<<20)
			for range 5 {
				if _, err := th.Push(ctx, event.Draft{Source: "s", Type: "t", Content: large}); err != nil {
					b.Fatal(err)
				}
			}
			b.SetBytes(int64(size))
			for b.Loop() {
				if _, err := th.Push(ctx, event.Draft{Source: "s", Type: "t", Content: large[:size]}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
