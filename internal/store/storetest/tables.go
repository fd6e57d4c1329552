package storetest

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"

	"thread/event"
	"thread/internal/store"
)

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
				if err != nil {
					return err
				}
				if err = check(tx); err != nil {
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

// whole: a snapshot has what is stored but the events. The model in memory takes none.
func whole(t *testing.T, open func(l store.Logic) store.Store) {
	s := open(&logic{})
	if _, ok := s.(store.Whole); !ok {
		return
	}
	push(t, s, draft("a"), draft("b"))
	sub := store.Subscription{Consumer: "c", Handler: "h", Ordinal: 7}
	at := store.ProgressRecord{LastAcked: 1, Newest: 2, UpdatedAt: "2026-03-18T10:30:00.123Z"}
	must(t, write(s, func(tx store.Tx) error {
		key := store.ConsumerKey("c")
		return errors.Join(tx.Put(store.Subscriptions, key, sub.Encode()), tx.Put(store.Progress, key, at.Encode(key)),
			tx.Put(store.Dead, []byte("k"), []byte("v")), tx.SetSequence(store.Dead, 9), tx.Put(store.Checked, []byte("advice"), nil))
	}))
	got, err := store.TakeSnapshot(ctx, s)
	must(t, err)
	want := store.Snapshot{
		Head: 2, LastID: 2, Stored: 2, Subscriptions: []store.Subscription{sub},
		Progress: []store.ConsumerProgress{{Consumer: "c", ProgressRecord: at}},
		Extras:   []store.Extra{{Bucket: []string{"dead"}, Sequence: 9}, {Bucket: []string{"dead"}, Key: []byte("k"), Value: []byte("v")}},
	}
	// What a store keeps for itself is not compared.
	got.Extras = slices.DeleteFunc(got.Extras, func(x store.Extra) bool { return x.Bucket[0] != "dead" })
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}
