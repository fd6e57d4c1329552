package engine

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// TestRecords: a table is a map with ordered keys, in the transaction that changes
// it and in those after it.
func TestRecords(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		th, err := Init(t.TempDir() + "/t")
		if err != nil {
			rt.Fatal(err)
		}
		defer th.Close()
		model := map[string]string{}
		key := rapid.SliceOfN(rapid.ByteRange(0, 3), 1, 3)
		check := func(tx *Tx) error {
			r, err := tx.Records("mine")
			if err != nil {
				return err
			}
			from, to := key.Draw(rt, "from"), key.Draw(rt, "to")
			if rapid.Bool().Draw(rt, "open") {
				to = nil
			}
			want := []string{}
			for k := range model {
				if k >= string(from) && (to == nil || k < string(to)) {
					want = append(want, k)
				}
			}
			slices.Sort(want)
			for i, k := range want {
				want[i] = k + "=" + model[k]
			}
			for _, descend := range []bool{false, true} {
				seq := r.Ascend(from, to)
				if descend {
					seq = r.Descend(from, to)
					slices.Reverse(want)
				}
				got := []string{}
				for rec, err := range seq {
					if err != nil {
						return err
					}
					if !bytes.Equal(r.Get(rec.Key), rec.Value) {
						rt.Fatalf("%q has two values", rec.Key)
					}
					got = append(got, string(rec.Key)+"="+string(rec.Value))
				}
				if !slices.Equal(got, want) {
					rt.Fatalf("[%q, %q): %q, want %q", from, to, got, want)
				}
			}
			return nil
		}
		for range rapid.IntRange(1, 4).Draw(rt, "transactions") {
			err := th.Update(context.Background(), func(tx *Tx) error {
				r, err := tx.Records("mine")
				if err != nil {
					return err
				}
				for range rapid.IntRange(0, 8).Draw(rt, "steps") {
					k := key.Draw(rt, "key")
					if rapid.Bool().Draw(rt, "delete") {
						delete(model, string(k))
						err = r.Delete(k)
					} else {
						model[string(k)] = rapid.StringN(0, 4, -1).Draw(rt, "value")
						err = r.Put(k, []byte(model[string(k)]))
					}
					if err != nil {
						return err
					}
				}
				return check(tx)
			})
			if err != nil {
				rt.Fatal(err)
			}
			if err := th.View(context.Background(), check); err != nil {
				rt.Fatal(err)
			}
		}
	})
}

func TestRecordsRefused(t *testing.T) {
	th, err := Init(t.TempDir() + "/t")
	if err != nil {
		t.Fatal(err)
	}
	defer th.Close()
	err = th.Update(context.Background(), func(tx *Tx) error {
		if _, err := tx.Records("meta"); !errors.Is(err, ErrInvalid) {
			t.Errorf("meta: %v", err)
		}
		r, err := tx.Records("mine")
		if err != nil {
			return err
		}
		for _, key := range [][]byte{nil, make([]byte, 32769)} {
			if err := r.Put(key, nil); !errors.Is(err, ErrInvalid) {
				t.Errorf("a key of %d bytes: %v", len(key), err)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
