package pgstore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"thread/event"
	"thread/filter"
	"thread/internal/store"
)

// model is a thread as plain maps.
type model struct {
	records  map[recordKey]string
	sequence map[store.Table]uint64
	events   []string // contents, by id - 1
	sources  []string
}

func (m *model) clone() *model {
	return &model{maps.Clone(m.records), maps.Clone(m.sequence), slices.Clone(m.events), slices.Clone(m.sources)}
}

// TestModel: random transactions, half of them called off, on a thread and on plain maps.
// Tables whose first records every transaction reads are among them, and some have more
// than these. Some transactions want records, and the first ones from a key on.
func TestModel(t *testing.T) {
	a := newThread(t, newSchema(t))
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 1))
	tables := []store.Table{store.Subscriptions, store.Scheduled, store.Dead, "own"}
	handles := []*Store{opened(t, a, plain{}), opened(t, a, plain{})}
	m := &model{map[recordKey]string{}, map[store.Table]uint64{}, nil, nil}
	key := func() []byte { return fmt.Appendf(nil, "k%02d", r.IntN(40)) }
	errOff := errors.New("called off")
	for i := range 150 {
		next, off := m.clone(), r.IntN(2) == 0
		var wanted store.Wanted
		for range r.IntN(8) {
			wanted.Records = append(wanted.Records, store.WantedRecord{Table: tables[r.IntN(len(tables))], Key: key()})
			wanted.From = append(wanted.From, store.WantedRecord{Table: tables[r.IntN(len(tables))], Key: key()})
		}
		err := handles[r.IntN(2)].Update(wanted.With(context.Background()), func(u store.Session) error {
			tx := u.(plainSession).tx
			for range 1 + r.IntN(12) {
				if err := next.step(tx, r, tables[r.IntN(len(tables))], key); err != nil {
					return err
				}
			}
			if off {
				return errOff
			}
			return nil
		})
		switch {
		case off && errors.Is(err, errOff):
		case err != nil:
			t.Fatalf("transaction %d: %v", i, err)
		default:
			m = next
		}
	}
	if len(m.events) == 0 || len(m.records) < 20 {
		t.Errorf("%d events and %d records say little", len(m.events), len(m.records))
	}
	if err := handles[0].View(context.Background(), func(tx store.Tx) error {
		for _, table := range tables {
			if err := m.same(tx, table, nil, false); err != nil {
				return err
			}
		}
		return m.sameEvents(tx)
	}); err != nil {
		t.Error(err)
	}
}

// step does one thing to both, or compares them.
func (m *model) step(tx store.Tx, r *rand.Rand, table store.Table, key func() []byte) error {
	switch k := key(); r.IntN(9) {
	case 0, 1, 2:
		v := fmt.Sprint(r.IntN(1000))
		m.records[recordKey{table, string(k)}] = v
		return tx.Put(table, k, []byte(v))
	case 3:
		delete(m.records, recordKey{table, string(k)})
		return tx.Delete(table, k)
	case 4:
		want, ok := m.records[recordKey{table, string(k)}]
		got, err := tx.Get(table, k)
		if err == nil && (ok != (got != nil) || string(got) != want) {
			err = fmt.Errorf("%s %s is %q, want %q", table, k, got, want)
		}
		return err
	case 5:
		return m.same(tx, table, k, false)
	case 6:
		return m.same(tx, table, k, true)
	case 7:
		n, err := tx.Sequence(table)
		if err == nil && n != m.sequence[table] {
			err = fmt.Errorf("the number of %s is %d, want %d", table, n, m.sequence[table])
		}
		m.sequence[table] = n + 1
		return errors.Join(err, tx.SetSequence(table, n+1))
	}
	d := event.Draft{Source: fmt.Sprint("s", r.IntN(50)), Type: "t", Content: fmt.Sprint(r.IntN(1000))}
	e, err := tx.Append(&d, "2026-03-18T10:30:00.123Z")
	m.events, m.sources = append(m.events, d.Content), append(m.sources, d.Source)
	if err == nil && e.ID != int64(len(m.events)) {
		err = fmt.Errorf("id %d, want %d", e.ID, len(m.events))
	}
	if err == nil && r.IntN(3) == 0 {
		err = m.sameEvents(tx)
	}
	return err
}

// same compares a table from a key on, or before it, backwards.
func (m *model) same(tx store.Tx, table store.Table, at []byte, back bool) error {
	var want, got []string
	for k, v := range m.records {
		if c := bytes.Compare([]byte(k.key), at); k.table == table && (c < 0) == back {
			want = append(want, k.key+"="+v)
		}
	}
	slices.Sort(want)
	read := func(k, v []byte) (bool, error) {
		got = append(got, string(k)+"="+string(v))
		return true, nil
	}
	var err error
	if back {
		slices.Reverse(want)
		err = tx.Descend(table, at, read)
	} else {
		err = tx.Ascend(table, at, read)
	}
	if err == nil && !slices.Equal(got, want) {
		err = fmt.Errorf("%s at %q, back %v: %q, want %q", table, at, back, got, want)
	}
	return err
}

func (m *model) sameEvents(tx store.Tx) error {
	var got []string
	err := tx.EventsAfter(0, func(e *event.Event) error {
		got = append(got, e.Content)
		return nil
	})
	if err == nil && (!slices.Equal(got, m.events) || tx.State().Head != int64(len(m.events))) {
		err = fmt.Errorf("events %q up to %d, want %q", got, tx.State().Head, m.events)
	}
	if err != nil {
		return err
	}
	var want, matching []int64
	for i, source := range m.sources {
		if source >= "s2" {
			want = append(want, int64(i+1))
		}
	}
	f, err := filter.Compile("source >= 's2'")
	if err == nil {
		_, err = tx.Scan(store.Scan{Selection: store.NewSelection(f, nil), Upto: math.MaxInt64}, func(id int64) (bool, error) {
			matching = append(matching, id)
			return true, nil
		})
	}
	if err == nil && !slices.Equal(matching, want) {
		err = fmt.Errorf("the filter finds %v, want %v", matching, want)
	}
	return err
}
