package bolt_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"testing"
	"thread/internal/store"

	"thread/engine"
	"thread/event"
	"thread/filter"
	"thread/index"
	"thread/internal/store/bolt"
	"thread/internal/store/bolt/disk"
)

// crowd is a thread with thousands of distinct series, next to its events as rows.
type crowd struct {
	longThread
	next int // the number of the next source that was never there
}

// sources are of many senders, each with a separate message; some are redelivered.
func (c *crowd) draft() event.Draft {
	n := c.next
	if c.rand.IntN(4) == 0 && n > 0 {
		n = c.rand.IntN(n) // dropped meanwhile, perhaps
	} else {
		c.next++
	}
	d := event.Draft{
		Source: fmt.Sprintf("%s:%04x:user%d", []string{"mail", "Mail", "chat", "e\u00e9"}[n%4], n*40503&0xffff, n%97),
		Type:   []string{"message", "record", "5"}[n%3], Content: []string{"", "abc", `{"a":1}`, "5"}[c.rand.IntN(4)],
	}
	switch {
	case n%1000 == 7:
		d.Type = "rare"
	case n%3 == 0:
		d.Subtype = event.Text(fmt.Sprint("s", n%700))
	}
	return d
}

// grow pushes events: alone, in a batch, and in a batch of several transactions.
func (c *crowd) grow(t *testing.T, events int) {
	t.Helper()
	drafts := make([]event.Draft, events)
	for i := range drafts {
		drafts[i] = c.draft()
	}
	var es []event.Event
	for _, part := range [][]event.Draft{drafts[:3], drafts[3:]} {
		done, err := c.t.PushBatch(ctx, part)
		if err != nil {
			t.Fatal(err)
		}
		es = append(es, done...)
	}
	for i := range es {
		c.add(&es[i])
	}
}

func (c *crowd) add(e *event.Event) {
	row := filter.Row{ID: e.ID, CreatedAt: e.CreatedAt, Source: e.Source, Type: e.Type, Content: e.Content}
	if e.Subtype != nil {
		row.Subtype, row.HasSubtype = *e.Subtype, true
	}
	c.rows = append(c.rows, row)
}

func newCrowd(t *testing.T) *crowd {
	c := new(crowd)
	c.t = initThread(t)
	c.rand = rand.New(rand.NewPCG(5, disk.FormatVersion))
	dirOf(c.t).MaxGroup = 700 // so that long batches take several transactions
	return c
}

// imported adds ids with gaps, by a copy of the thread.
func (c *crowd) imported(t *testing.T) {
	t.Helper()
	dir := t.TempDir()
	r, err := bolt.StartRestore(filepath.Join(dir, "copy"), false)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	add := func(e *event.Event) {
		if err := r.Event(e); err != nil {
			t.Fatal(err)
		}
	}
	for e, err := range c.t.Events(ctx, engine.Query{}) {
		if err != nil {
			t.Fatal(err)
		}
		add(&e)
	}
	id := r.Head()
	for range 2500 {
		d := c.draft()
		id += 1 + c.rand.Int64N(3)*c.rand.Int64N(50)
		e := event.Event{ID: id, CreatedAt: "2026-03-18T10:30:00.123Z", Source: d.Source, Type: d.Type, Subtype: d.Subtype, Content: d.Content}
		add(&e)
		c.add(&e)
	}
	if err := errors.Join(r.Finish(id+7, 0), r.Publish()); err != nil {
		t.Fatal(err)
	}
	group := dirOf(c.t).MaxGroup
	if c.t, err = engine.Open(filepath.Join(dir, "copy")); err != nil {
		t.Fatal(err)
	}
	dirOf(c.t).MaxGroup = group
}

// compare asks filters that types, sources, series and events answer.
func (c *crowd) compare(t *testing.T, random int) {
	t.Helper()
	r := c.row()
	filters := []string{
		"type = 'nope'", "type = 'rare'", "type LIKE 'R%'", "subtype = 's7'", "subtype IS NULL", "type = 'message'",
		"source LIKE 'mail:%'", "source LIKE 'MAIL:0%' AND type = 'rare'", "source LIKE 'm%' AND type = 'nope'", "source LIKE '%:user7'", "source LIKE '%:nobody'",
		"source = '" + r.Source + "'", "source LIKE '" + r.Source[:6] + "%'", "source GLOB 'Mail:*'", "source LIKE 'mail:4%' OR source LIKE 'chat:4%'",
		"source LIKE 'chat:%' AND content = '5'", "type = 'record' AND content = 'abc'", "source >= 'mail:8' AND source < 'mail:9'", "source LIKE 'e\u00e9:0%'",
		"type BETWEEN 'm' AND 'n' AND subtype LIKE 's1%'", "id % 3 = 1 AND type = '5'", "source LIKE 'nobody:%' OR type = 'rare'",
	}
	for range random {
		filters = append(filters, closed(c.condition(c.rand.IntN(3))))
	}
	for _, where := range filters {
		f, err := filter.Compile(where)
		if err != nil || f.CanFail() {
			continue
		}
		var all []int64
		m := f.Matcher()
		for i := range c.rows {
			if ok, err := m.Match(&c.rows[i]); err != nil {
				t.Fatal(err)
			} else if ok {
				all = append(all, c.rows[i].ID)
			}
		}
		after := c.row().ID - c.rand.Int64N(2)
		first, _ := slices.BinarySearch(all, after+1)
		for _, limit := range []int64{0, 1, 100} {
			c.peek(t, engine.Query{Filter: where, Limit: limit}, all)
			c.peek(t, engine.Query{After: after, Limit: limit, Filter: where}, all[first:])
		}
		c.peek(t, engine.Query{Limit: 100, Filter: where, Reverse: true}, all)
		c.subscribed(t, where, after, all)
	}
}

// held returns the ids of the series that are there, by what they are.
func (c *crowd) held(t *testing.T) (held map[string]uint32, last uint32) {
	t.Helper()
	held = make(map[string]uint32)
	err := view(c.t, func(tx *bolt.Tx) (err error) {
		if last, err = tx.Dictionary().Last(); err != nil {
			return err
		}
		return tx.Dictionary().Each(1, 1<<32-1, func(id uint32, v *index.SeriesView) (bool, error) {
			held[fmt.Sprintf("%q %q %q %v", v.Source, v.Type, v.Subtype, v.HasSubtype)] = id
			return true, nil
		})
	})
	if err != nil {
		t.Fatal(err)
	}
	return held, last
}

// TestManySeries compares every way in which the engine answers a filter with an
// evaluation of each event, in a thread whose series are many, dropped with their
// events, and made again. Series that are kept keep their ids, and no id is given a
// second time, since readers remember what their filter says of it.
func TestManySeries(t *testing.T) {
	c := newCrowd(t)
	given := map[uint32]string{} // what every id was ever given to
	remember := func() {
		t.Helper()
		held, last := c.held(t)
		for series, id := range held {
			if other, ok := given[id]; ok && other != series {
				t.Fatalf("series id %d is of %s, and was of %s", id, series, other)
			}
			if given[id] = series; id > last {
				t.Fatalf("series %d is above the last, %d", id, last)
			}
		}
		sound(t, c.t)
	}
	must := func(_ engine.Compaction, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	for round := range 3 {
		c.grow(t, 2600)
		if round == 0 {
			c.compare(t, 5)
		}
		remember()
		before, last := c.held(t)
		keep := []int64{1500, 40, 0}[round]
		must(c.t.Prune(ctx, engine.Retention{KeepLast: &keep, Force: true}))
		c.rows = c.rows[len(c.rows)-int(keep):]
		remember()
		want := map[string]bool{}
		for _, r := range c.rows {
			want[fmt.Sprintf("%q %q %q %v", r.Source, r.Type, r.Subtype, r.HasSubtype)] = true
		}
		after, lastAfter := c.held(t)
		if len(after) != len(want) || lastAfter != last {
			t.Fatalf("%d series, up to %d, after a prune to %d of them; the last was %d", len(after), lastAfter, len(want), last)
		}
		for series, id := range after {
			if before[series] != id {
				t.Fatalf("series %s has id %d, had %d", series, id, before[series])
			}
		}
		c.grow(t, 900)
		must(c.t.Compact(ctx))
		remember()
		if round == 0 {
			c.compare(t, 0)
		}
	}
	c.imported(t)
	c.grow(t, 100)
	sound(t, c.t)
	c.compare(t, 5)
}

// TestVerdictsOutliveCompaction searches in slices, with a prune, new series and a
// compaction between each two: what the search knows of series must stay true.
func TestVerdictsOutliveCompaction(t *testing.T) {
	c := newCrowd(t)
	c.grow(t, 4000)
	f, err := filter.Compile("source LIKE '%:user7' OR type = 'rare'")
	if err != nil {
		t.Fatal(err)
	}
	v := store.NewSelection(f, nil)
	found := map[int64]bool{}
	for round := range 4 {
		err := view(c.t, func(tx *bolt.Tx) error {
			_, err := tx.Scan(store.Scan{Selection: v, Upto: tx.State().Head}, func(id int64) (bool, error) {
				found[id] = true
				return true, nil
			})
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		m := f.Matcher()
		for i := range c.rows {
			if ok, err := m.Match(&c.rows[i]); ok != found[c.rows[i].ID] || err != nil {
				t.Fatalf("round %d: event %+v: %v, want %v, %v", round, c.rows[i], found[c.rows[i].ID], ok, err)
			}
		}
		keep := int64(700)
		if _, err := c.t.Prune(ctx, engine.Retention{KeepLast: &keep}); err != nil {
			t.Fatal(err)
		}
		c.rows = c.rows[len(c.rows)-int(keep):]
		c.grow(t, 2500)
	}
}
