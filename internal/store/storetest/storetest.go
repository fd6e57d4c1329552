// Package storetest holds what every store must do: a battery of tests that is run on
// each of them, and on a model in memory, so that it asks nothing that only one kind of
// store can do.
package storetest

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"thread/event"
	"thread/filter"
	"thread/internal/store"
)

// A Maker makes a new, empty thread. Open returns a handle on it: another one each
// time, as other processes would have.
type Maker func(t *testing.T) (open func(l store.Logic) store.Store)

// Run runs the battery on the threads of make.
func Run(t *testing.T, make Maker) {
	for name, test := range map[string]func(t *testing.T, open func(l store.Logic) store.Store){
		"dense ids, nothing skipped by a live reader": denseIDs,
		"all or nothing":           atomic,
		"a view is one moment":     oneMoment,
		"own writes in byte order": records,
		"dedupe":                   dedupe,
		"what is due comes first":  due,
		"a long batch at once":     longBatch,
		"contents":                 contents,
		"scans":                    scans,
		"prune":                    prune,
		"contexts and closing":     ended,
	} {
		t.Run(name, func(t *testing.T) { test(t, make(t)) })
	}
}

var ctx = context.Background()

// logic is the least that a store can be run with: dedupe keys without an end, and a
// queue of events of which the first byte of the key says when they are due.
type logic struct {
	now byte // what is due up to here is released
}

type session struct {
	*logic
	tx store.Tx
}

func (l *logic) Begin(tx store.Tx) store.Session   { return &session{l, tx} }
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

func (s *session) Before() error {
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
	if err == nil {
		err = s.tx.Put(store.Dedupe, []byte(d.DedupeKey), binary.BigEndian.AppendUint64(nil, uint64(e.ID)))
	}
	return e, false, err
}

func (s *session) After() error { return nil }
func (s *session) Ended()       {}

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

func denseIDs(t *testing.T, open func(l store.Logic) store.Store) {
	const writers, each = 4, 25
	var wg sync.WaitGroup
	for range writers {
		s := open(&logic{})
		wg.Go(func() {
			for n := range each {
				ds := make([]event.Draft, 1+n%3)
				for i := range ds {
					ds[i] = draft(fmt.Sprint(n))
				}
				if _, err := s.Push(ctx, ds); err != nil {
					t.Error(err)
				}
			}
		})
	}
	done := make(chan struct{})
	go func() { wg.Wait(); close(done) }()
	s, last := open(&logic{}), int64(0)
	for over := false; ; {
		for _, id := range matching(t, s, "", last, math.MaxInt64) {
			if id != last+1 {
				t.Fatalf("event %d after %d", id, last)
			}
			last = id
		}
		if over {
			break
		}
		select {
		case <-done:
			over = true
		default:
		}
	}
	if st := state(t, s); st.Head != last || st.LastID != last || st.Count != last || st.Stored != last || last < writers*each {
		t.Errorf("%+v, and %d events were read", st, last)
	}
}

func atomic(t *testing.T, open func(l store.Logic) store.Store) {
	s := open(&logic{})
	wrong := errors.New("wrong")
	change := func(tx store.Tx) error {
		d := draft("x")
		if _, err := tx.Append(&d, at); err != nil {
			return err
		}
		if err := tx.SetSequence("mine", 7); err != nil {
			return err
		}
		return tx.Put("mine", []byte("k"), []byte("v"))
	}
	look := func(want bool) {
		t.Helper()
		view(t, s, func(tx store.Tx) error {
			v, err := tx.Get("mine", []byte("k"))
			n, serr := tx.Sequence("mine")
			_, stored, eerr := tx.Event(1)
			if (v != nil) != want || (n == 7) != want || stored != want || (tx.State().Head == 1) != want {
				t.Errorf("%q, sequence %d, event %v, %+v; want %v", v, n, stored, tx.State(), want)
			}
			return errors.Join(err, serr, eerr)
		})
	}
	if err := write(s, func(tx store.Tx) error { return errors.Join(change(tx), wrong) }); !errors.Is(err, wrong) {
		t.Error(err)
	}
	look(false)
	func() {
		defer func() {
			if r := recover(); r != "mine" {
				t.Errorf("recovered %v", r)
			}
		}()
		_ = write(s, func(tx store.Tx) error {
			_ = change(tx)
			panic("mine")
		})
	}()
	look(false)
	must(t, write(s, change))
	look(true)
	must(t, write(s, func(tx store.Tx) error { return tx.Drop("mine") }))
	view(t, s, func(tx store.Tx) error {
		if n, err := tx.Sequence("mine"); n != 0 || err != nil || !empty(tx, "mine") {
			t.Errorf("dropped, and sequence %d, %v", n, err)
		}
		return nil
	})
}

// oneMoment changes an event and a record together: no reader sees one without the other.
func oneMoment(t *testing.T, open func(l store.Logic) store.Store) {
	s, reader := open(&logic{}), open(&logic{})
	const updates = 100
	done := make(chan struct{})
	go func() {
		defer close(done)
		for range updates {
			d := draft("x")
			if err := write(s, func(tx store.Tx) error {
				e, err := tx.Append(&d, at)
				if err != nil {
					return err
				}
				return tx.Put("mine", []byte("k"), binary.BigEndian.AppendUint64(nil, uint64(e.ID)))
			}); err != nil {
				t.Error(err)
				return
			}
		}
	}()
	last := int64(0)
	for over := false; !over; {
		select {
		case <-done:
			over = true
		default:
		}
		view(t, reader, func(tx store.Tx) error {
			first, err := tx.Get("mine", []byte("k"))
			head, events := tx.State().Head, int64(0)
			eerr := tx.EventsAfter(0, func(*event.Event) error { events++; return nil })
			second, serr := tx.Get("mine", []byte("k"))
			if id(first) != head || events != head || id(second) != head || head < last {
				t.Fatalf("record %d, state %d, %d events, record %d, after %d", id(first), head, events, id(second), last)
			}
			last = head
			return errors.Join(err, eerr, serr)
		})
	}
	if last != updates {
		t.Errorf("the last view saw %d of %d updates", last, updates)
	}
}

func records(t *testing.T, open func(l store.Logic) store.Store) {
	s := open(&logic{})
	r := rand.New(rand.NewPCG(1, 2))
	key := func() string {
		k := make([]byte, 1+r.IntN(3))
		for i := range k {
			k[i] = []byte{0, 1, 'a', 0x7f, 0x80, 0xff}[r.IntN(6)]
		}
		return string(k)
	}
	model := map[string]string{}
	check := func(tx store.Tx) error {
		from := key()
		var want, up, down []string
		for _, k := range slices.Sorted(maps.Keys(model)) {
			want = append(want, k+"="+model[k])
		}
		i, _ := slices.BinarySearchFunc(want, from, func(kv, from string) int { return strings.Compare(kv[:strings.LastIndexByte(kv, '=')], from) })
		if err := tx.Ascend("mine", []byte(from), func(k, v []byte) (bool, error) {
			up = append(up, string(k)+"="+string(v))
			return true, nil
		}); err != nil {
			return err
		}
		if err := tx.Descend("mine", []byte(from), func(k, v []byte) (bool, error) {
			down = append(down, string(k)+"="+string(v))
			return true, nil
		}); err != nil {
			return err
		}
		slices.Reverse(down)
		if !slices.Equal(up, want[i:]) || !slices.Equal(down, want[:i]) {
			t.Fatalf("around %q: %q and %q, want %q", from, down, up, want)
		}
		k := key()
		v, err := tx.Get("mine", []byte(k))
		if w, ok := model[k]; (v != nil) != ok || string(v) != w {
			t.Fatalf("%q is %q, want %q", k, v, w)
		}
		return err
	}
	for range 30 {
		must(t, write(s, func(tx store.Tx) error {
			for range r.IntN(20) {
				k := key()
				var err error
				if r.IntN(3) == 0 {
					delete(model, k)
					err = tx.Delete("mine", []byte(k))
				} else {
					model[k] = fmt.Sprint(r.IntN(1000))
					err = tx.Put("mine", []byte(k), []byte(model[k]))
				}
				if err == nil {
					err = check(tx)
				}
				if err != nil {
					return err
				}
			}
			return nil
		}))
		view(t, s, check)
	}
}

func dedupe(t *testing.T, open func(l store.Logic) store.Store) {
	var wg sync.WaitGroup
	var mu sync.Mutex
	var fresh, duplicates int
	for range 4 {
		s := open(&logic{})
		wg.Go(func() {
			for n := range 10 {
				d := draft(fmt.Sprint(n))
				d.DedupeKey = fmt.Sprint("key ", n)
				p, err := s.Push(ctx, []event.Draft{d})
				if err != nil {
					t.Error(err)
					return
				}
				if p.Events[0].Content != d.Content {
					t.Errorf("%+v of %q", p.Events[0], d.Content)
				}
				mu.Lock()
				duplicates += len(p.Duplicates)
				fresh += 1 - len(p.Duplicates)
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	if st := state(t, open(&logic{})); fresh != 10 || duplicates != 30 || st.Count != 10 {
		t.Errorf("%d new, %d duplicates, %+v", fresh, duplicates, st)
	}
}

func due(t *testing.T, open func(l store.Logic) store.Store) {
	l := &logic{}
	s := open(l)
	must(t, write(s, func(tx store.Tx) error {
		for _, k := range []string{"\x02b", "\x01a", "\x05c"} {
			if err := tx.Put(store.Scheduled, []byte(k), nil); err != nil {
				return err
			}
		}
		return nil
	}))
	l.now = 3
	if p := push(t, s, draft("after")); p.Events[0].ID != 3 {
		t.Errorf("the push is event %d", p.Events[0].ID)
	}
	var got []string
	view(t, s, func(tx store.Tx) error {
		return tx.EventsAfter(0, func(e *event.Event) error { got = append(got, e.Source+" "+e.Type); return nil })
	})
	if want := []string{"due \x01a", "due \x02b", "s t"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

func longBatch(t *testing.T, open func(l store.Logic) store.Store) {
	const n = 25_000
	s, reader := open(&logic{}), open(&logic{})
	push(t, s, draft("first"))
	wrong := errors.New("wrong")
	batch := func(n int, err error) (store.Batch, error) {
		return s.PushAll(ctx, func(yield func(event.Draft, error) bool) {
			for i := range n {
				d := draft(fmt.Sprint(i))
				if i%1000 == 0 {
					d.DedupeKey = fmt.Sprint("key ", i%2000)
				}
				if !yield(d, nil) {
					return
				}
			}
			if err != nil {
				yield(event.Draft{}, err)
			}
		})
	}
	if _, err := batch(n, wrong); !errors.Is(err, wrong) {
		t.Errorf("got %v", err)
	}
	if st := state(t, reader); st.Head != 1 || st.Count != 1 {
		t.Errorf("of a batch that failed there is %+v", st)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		b, err := batch(n, nil)
		if err != nil || b.First != 2 || b.Count != n || len(b.Duplicates) != n/1000-2 || b.Last != 1+n-int64(len(b.Duplicates)) {
			t.Errorf("%+v %v", b, err)
		}
	}()
	for over := false; !over; {
		select {
		case <-done:
			over = true
		default:
		}
		if st := state(t, reader); st.Head != 1 && st.Head != 1+n-(n/1000-2) {
			t.Fatalf("a part is visible, up to %d", st.Head)
		}
	}
}

func contents(t *testing.T, open func(l store.Logic) store.Store) {
	s := open(&logic{})
	texts := []string{"", "\x00", "a\x00b", strings.Repeat("é\x00", 40_000), strings.Repeat("x", 4096), strings.Repeat("y", 4097)}
	if !testing.Short() {
		texts = append(texts, strings.Repeat("long", event.MaxContentBytes/4))
	}
	for i, text := range texts {
		sub := fmt.Sprint(i)
		push(t, s, event.Draft{Source: "\x00s" + sub, Type: "\x00", Subtype: &sub, Content: text})
	}
	view(t, s, func(tx store.Tx) error {
		for i, text := range texts {
			e, ok, err := tx.Event(int64(i + 1))
			if err != nil || !ok || e.Content != text || e.Source != "\x00s"+fmt.Sprint(i) || e.Subtype == nil || *e.Subtype != fmt.Sprint(i) {
				t.Errorf("event %d of %d bytes: %v %v, %d bytes", i+1, len(text), ok, err, len(e.Content))
			}
		}
		return nil
	})
}

func scans(t *testing.T, open func(l store.Logic) store.Store) {
	s := open(&logic{})
	r := rand.New(rand.NewPCG(3, 4))
	var all []event.Event
	for len(all) < 3000 {
		ds := make([]event.Draft, 1+r.IntN(500))
		for i := range ds {
			ds[i] = event.Draft{Source: fmt.Sprint("agent:", r.IntN(40)), Type: fmt.Sprint("t", r.IntN(5)), Content: fmt.Sprint(r.IntN(100))}
			if r.IntN(3) == 0 {
				ds[i].Subtype = event.Text("sub")
			}
		}
		all = append(all, push(t, s, ds...).Events...)
	}
	for _, where := range []string{
		"", "source = 'agent:7'", "source LIKE 'agent:1%'", "type = 't3' AND subtype IS NULL", "type = 'none'", "content > '95'",
		"source = 'agent:7' OR content LIKE '%7'", "id > 2000 AND type <> 't0'", "created_at > '2020'",
	} {
		f, err := filter.Compile(where)
		must(t, err)
		m := f.Matcher()
		after := r.Int64N(2000)
		upto := after + r.Int64N(2000)
		var want []int64
		for _, e := range all {
			row := filter.Row{ID: e.ID, CreatedAt: e.CreatedAt, Source: e.Source, Type: e.Type, Content: e.Content}
			if e.Subtype != nil {
				row.Subtype, row.HasSubtype = *e.Subtype, true
			}
			if ok, err := m.Match(&row); err != nil {
				t.Fatal(err)
			} else if ok && e.ID > after && e.ID <= upto {
				want = append(want, e.ID)
			}
		}
		if got := matching(t, s, where, after, upto); !slices.Equal(got, want) {
			t.Errorf("%s in (%d, %d]: %d events, want %d", where, after, upto, len(got), len(want))
		}
		// In pages, and in slices.
		sel := store.NewSelection(f, nil)
		var got []int64
		for pos, n := after, 0; pos < min(upto, int64(len(all))); n++ {
			view(t, s, func(tx store.Tx) error {
				es, p, err := tx.Page(store.Scan{Selection: sel, After: pos, Upto: upto, Slice: true, Long: n > 0}, 7, nil)
				if p <= pos && err == nil || len(es) > 7 {
					t.Fatalf("%s: from %d to %d, %d events", where, pos, p, len(es))
				}
				for _, e := range es {
					if e != all[e.ID-1] && *e.Subtype != *all[e.ID-1].Subtype {
						t.Errorf("event %+v, want %+v", e, all[e.ID-1])
					}
					got = append(got, e.ID)
				}
				pos = p
				return err
			})
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s in pages of (%d, %d]: %d events, want %d", where, after, upto, len(got), len(want))
		}
	}
}

func prune(t *testing.T, open func(l store.Logic) store.Store) {
	s := open(&logic{})
	ds := make([]event.Draft, 3000)
	for i := range ds {
		ds[i] = event.Draft{Source: fmt.Sprint("s", i/100), Type: "t", Content: fmt.Sprint(i)}
	}
	push(t, s, ds...)
	must(t, write(s, func(tx store.Tx) error { return tx.Put("mine", []byte("k"), []byte("v")) }))
	no := errors.New("no")
	through := func(tx store.Tx) (int64, error) { return tx.BeforeNewest(500) }
	if _, err := s.Prune(ctx, store.Dropping{Through: through, May: func(store.Tx, int64) error { return no }}); !errors.Is(err, no) {
		t.Errorf("refused: %v", err)
	}
	if st := state(t, s); st.Stored != 3000 {
		t.Errorf("refused, and %+v", st)
	}
	c, err := s.Prune(ctx, store.Dropping{Through: through, May: func(store.Tx, int64) error { return nil }})
	if err != nil || c.Dropped != 2500 || c.Through != 2500 || c.Kept != 500 {
		t.Errorf("%+v %v", c, err)
	}
	if c, err := s.Compact(ctx); err != nil || c.Dropped != 0 || c.Kept != 500 {
		t.Errorf("%+v %v", c, err)
	}
	if p := push(t, s, draft("next")); p.Events[0].ID != 3001 {
		t.Errorf("event %d", p.Events[0].ID)
	}
	view(t, s, func(tx store.Tx) error {
		oldest, err := tx.Oldest()
		has, herr := tx.Has(2500)
		v, gerr := tx.Get("mine", []byte("k"))
		if st := tx.State(); oldest != 2501 || has || string(v) != "v" || st.Stored != 501 || st.Count != 3001 || st.LastID != 3001 {
			t.Errorf("oldest %d, %v, %q, %+v", oldest, has, v, st)
		}
		return errors.Join(err, herr, gerr)
	})
	if got := matching(t, s, "source IN ('s3', 's24', 's25')", 0, math.MaxInt64); len(got) != 100 || got[0] != 2501 {
		t.Errorf("%d events", len(got))
	}
}

func ended(t *testing.T, open func(l store.Logic) store.Store) {
	s := open(&logic{})
	why := errors.New("why")
	over, cancel := context.WithCancelCause(ctx)
	cancel(why)
	_, err := s.Push(over, []event.Draft{draft("x")})
	_, err2 := s.PushAll(over, func(yield func(event.Draft, error) bool) { yield(draft("x"), nil) })
	for _, err := range []error{err, err2, s.View(over, func(store.Tx) error { return nil }), s.Update(over, func(store.Session) error { return nil })} {
		if !errors.Is(err, why) {
			t.Errorf("got %v", err)
		}
	}
	if st := state(t, s); st.Count != 0 {
		t.Errorf("%+v", st)
	}
	must(t, s.Close())
	if _, err := s.Push(ctx, []event.Draft{draft("x")}); !errors.Is(err, store.ErrClosed) {
		t.Errorf("closed: %v", err)
	}
	if err := s.View(ctx, func(store.Tx) error { return nil }); !errors.Is(err, store.ErrClosed) {
		t.Errorf("closed: %v", err)
	}
}
