package bolt_test

import (
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"testing"
	"thread/internal/store"
	"time"

	"thread/engine"
	"thread/event"
	"thread/filter"
	"thread/index"
	"thread/internal/fsck"
	"thread/internal/store/bolt"
	"thread/internal/store/bolt/disk"
)

// someTimes are created_at texts for one stretch of events: rising, falling, the
// same, or anything.
func someTimes(r *rand.Rand, clock *int64) func(i int) string {
	start := *clock
	step := oneOf(r, int64(0), 1, 1000, -1000, 3_600_000)
	odd := oneOf(r, 0, 0, 0, 700)
	*clock += r.Int64N(4_000_000) - 2_000_000
	return func(i int) string {
		at := time.UnixMilli(start + step*int64(i))
		if odd > 0 && i%odd == odd-1 {
			return []string{"", "yesterday", at.UTC().Format("2006-01-02 15:04:05"), "2026-03-18T10:30:00Z", "\xff"}[i/odd%5]
		}
		*clock = max(*clock, at.UnixMilli())
		return event.FormatTime(at)
	}
}

func oneOf[T any](r *rand.Rand, of ...T) T { return of[r.IntN(len(of))] }

// TestTimesAgainstScan compares what a search finds with what the filter says of
// every event, for imports and pushes with times in any order.
func TestTimesAgainstScan(t *testing.T) {
	missed, matched := 0, 0
	for seed := range uint64(4) {
		r := rand.New(rand.NewPCG(seed, 7))
		th, all := someThread(t, r)
		for range 30 {
			m, n := sameAsScan(t, th, all, someTimeFilter(r, all))
			missed, matched = missed+m, matched+n
		}
		keep := int64(len(all)*2/3) + 1
		if _, err := th.Prune(ctx, engine.Retention{KeepLast: &keep}); err != nil {
			t.Fatal(err)
		}
		all = all[int64(len(all))-keep:]
		for range 10 {
			sameAsScan(t, th, all, someTimeFilter(r, all))
		}
		if report, err := fsck.Check(ctx, th); err != nil || len(report.Faults) > 0 {
			t.Fatal(seed, report, err)
		}
	}
	if missed < 100 || matched < 100 {
		t.Errorf("%d blocks were passed over and %d events found: the test proves little", missed, matched)
	}
}

// someThread returns a thread with imported and pushed events, and these.
func someThread(t *testing.T, r *rand.Rand) (*engine.Thread, []event.Event) {
	t.Helper()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	dir := filepath.Join(t.TempDir(), "t")
	in, err := bolt.StartRestore(dir, false)
	must(err)
	defer in.Close()
	clock := int64(1773829800123)
	var all []event.Event
	for range 1 + r.IntN(4) {
		at, gap := someTimes(r, &clock), 1+r.Int64N(3)
		for i := range oneOf(r, 1, 500, 1024, 2500) {
			e := event.Event{ID: in.Head() + gap, CreatedAt: at(i), Source: []string{"a", "b"}[i/900%2], Type: "t", Content: []string{"x", `{"n":1}`}[i%2]}
			must(in.Event(&e))
			all = append(all, e)
		}
	}
	must(in.Finish(0, 0))
	must(in.Publish())
	now := clock
	th, err := engine.Open(dir, engine.WithClock(func() time.Time { return time.UnixMilli(now) }))
	must(err)
	dirOf(th).MaxGroup = 1000
	for range r.IntN(4) { // the clock may go back
		now += r.Int64N(10_000_000) - 5_000_000
		es, err := th.PushBatch(ctx, plainDrafts(oneOf(r, 1, 30, 1100)))
		must(err)
		all = append(all, es...)
	}
	return th, all
}

func plainDrafts(n int) []event.Draft {
	ds := make([]event.Draft, n)
	for i := range ds {
		ds[i] = event.Draft{Source: "a", Type: "t", Content: "x"}
	}
	return ds
}

func someTimeFilter(r *rand.Rand, all []event.Event) string {
	text := func() string {
		s := oneOf(r, all...).CreatedAt
		if strings.Contains(s, "\xff") {
			s = "2026"
		}
		return "'" + s[:oneOf(r, len(s), len(s), min(len(s), 16))] + "'"
	}
	term := func() string {
		switch r.IntN(6) {
		case 0:
			return "created_at BETWEEN " + text() + " AND " + text()
		case 1:
			return "created_at IN (" + text() + ", " + text() + ")"
		case 2:
			return "NOT created_at < " + text()
		case 3:
			return "created_at GLOB " + strings.TrimSuffix(text(), "'") + "*'"
		}
		return "created_at " + oneOf(r, "=", "<", "<=", ">", ">=", "<>", "IS") + " " + text()
	}
	switch r.IntN(7) {
	case 0:
		return term() + " AND " + term()
	case 1:
		return "(" + term() + " OR " + term() + ") AND source = 'b'"
	case 2:
		return "json_extract(content, '$.n') = 1 AND " + term() // fails on an event
	case 3:
		return term() + " AND content <> 'x' AND json_extract(content, '$.n') = 1"
	}
	return term()
}

// sameAsScan returns how many blocks the search of where passed over, and how many
// events it found.
func sameAsScan(t *testing.T, th *engine.Thread, all []event.Event, where string) (missed, matched int) {
	t.Helper()
	f, err := filter.Compile(where)
	if err != nil {
		t.Fatal(err)
	}
	m := f.Matcher()
	var want []int64
	failed := false
	for i := range all {
		e := &all[i]
		ok, err := m.Match(&filter.Row{ID: e.ID, CreatedAt: e.CreatedAt, Source: e.Source, Type: e.Type, Content: e.Content})
		if failed = err != nil; failed {
			want = nil
			break
		}
		if ok {
			want = append(want, e.ID)
		}
	}
	for _, reverse := range []bool{false, true} {
		got, err := th.Peek(ctx, engine.Query{Filter: where, Reverse: reverse})
		var ids []int64
		for i := range got {
			ids = append(ids, got[i].ID)
			if reverse {
				ids[i] = got[len(got)-1-i].ID
			}
		}
		if (err != nil) != failed || fmt.Sprint(ids) != fmt.Sprint(want) {
			t.Fatalf("%s, reverse %v: %d events, %v; a scan finds %d, fails %v", where, reverse, len(ids), err, len(want), failed)
		}
	}
	err = view(th, func(tx *bolt.Tx) error {
		v := store.NewSelection(f, nil)
		blocks := index.BlocksAfter(tx.Bolt().Bucket(disk.BucketColumns), 0)
		for {
			b, ok, err := blocks.Next()
			if err != nil || !ok {
				return err
			}
			if b.Times.Miss(v.Earliest, v.Latest) {
				missed++
			}
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	return missed, len(want)
}

// TestBlocksWithoutTimes: a column that older versions wrote is searched as well,
// and is sound.
func TestBlocksWithoutTimes(t *testing.T) {
	now := int64(1773829800123)
	th, err := engine.Init(filepath.Join(t.TempDir(), "t"), engine.WithClock(func() time.Time { return time.UnixMilli(now) }))
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		now += 1000
		if _, err := th.PushBatch(ctx, plainDrafts(1000)); err != nil {
			t.Fatal(err)
		}
	}
	where := "created_at > '" + event.FormatTime(time.UnixMilli(now-1)) + "'"
	// A slow machine cuts the reading into slices, which look at a block or at the
	// tail once more; what is passed over and read stays the same.
	explain := func(passed, events int64) {
		t.Helper()
		p, err := th.Explain(ctx, engine.Query{Filter: where})
		if err != nil {
			t.Fatal(err)
		}
		if r := p.Reads; r.BlocksPassed != passed || r.Events != events || r.Matched != 1000 {
			t.Errorf("%+v, want %d blocks passed over, %d events read and 1000 matches", r, passed, events)
		}
	}
	explain(1, 3000-index.BlockEvents)
	err = write(th, func(tx *bolt.Tx) error {
		var keys, values [][]byte
		blocks := index.BlocksAfter(tx.Bolt().Bucket(disk.BucketColumns), 0)
		for {
			b, ok, err := blocks.Next()
			if err != nil {
				return err
			}
			if !ok {
				break
			}
			var ids []int64
			var series []uint32
			for i := range b.Count {
				ids, series = append(ids, b.ID(i)), append(series, b.Series(i))
			}
			keys, values = append(keys, disk.EventKey(b.First)), append(values, index.EncodeBlock(ids, series, index.Times{}))
		}
		for i := range keys {
			if err := tx.Bolt().Bucket(disk.BucketColumns).Put(keys[i], values[i]); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	explain(0, 3000)
	if report, err := fsck.Check(ctx, th); err != nil || len(report.Faults) > 0 {
		t.Error(report, err)
	}
}

// TestCheckFindsWrongTimes: bounds that leave out an event are a fault.
func TestCheckFindsWrongTimes(t *testing.T) {
	for _, createdAt := range []string{"2026-03-18T10:30:00.123Z", "yesterday"} {
		th, err := engine.Init(filepath.Join(t.TempDir(), "t"))
		if err != nil {
			t.Fatal(err)
		}
		err = write(th, func(tx *bolt.Tx) error {
			for id := range int64(index.BlockEvents) {
				if err := tx.Insert(&event.Event{ID: id + 1, CreatedAt: createdAt, Source: "s", Type: "t"}); err != nil {
					return err
				}
			}
			b, _, err := index.LastBlock(tx.Bolt().Bucket(disk.BucketColumns))
			if err != nil || b.Count != index.BlockEvents || b.Times.Known() != (createdAt != "yesterday") {
				t.Error(b, err)
			}
			ids, series := make([]int64, b.Count), make([]uint32, b.Count)
			for i := range ids {
				ids[i], series[i] = b.ID(i), b.Series(i)
			}
			var wrong index.Times
			wrong.Add(0, true)
			return tx.Bolt().Bucket(disk.BucketColumns).Put(disk.EventKey(1), index.EncodeBlock(ids, series, wrong))
		})
		if err != nil {
			t.Fatal(err)
		}
		report, err := fsck.Check(ctx, th)
		if err != nil || int64(len(report.Faults))+report.More != index.BlockEvents || !strings.Contains(report.Faults[0].What, "created_at") {
			t.Errorf("%s: %d faults, %v", createdAt, len(report.Faults), err)
		}
	}
}
