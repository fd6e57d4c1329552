package pgstore

import (
	"context"
	"crypto/rand"
	"fmt"
	"regexp"
	"strings"
	"testing"

	"thread/internal/store"
)

// planOf returns how the server executes a statement.
func planOf(t *testing.T, s *Store, of statement) (plan string) {
	t.Helper()
	ctx := context.Background()
	if err := s.run(ctx, false, nil, func(tx *tx) error {
		var data [][]byte
		var types []uint32
		for _, v := range of.args {
			data, types = append(data, v.data), append(types, v.oid)
		}
		r := tx.conn.ExecParams(ctx, "EXPLAIN "+of.sql, data, types, []int16{1}, nil).Read() // no result of EXPLAIN is binary
		for _, row := range r.Rows {
			plan += string(row[0]) + "\n"
		}
		return r.Err
	}); err != nil {
		t.Fatal(err)
	}
	return plan
}

// TestWantedByKey: records that a transaction wants are found by the index, also in a table that
// has grown since the server has looked at it.
func TestWantedByKey(t *testing.T) {
	s := opened(t, newThread(t, newSchema(t)), plain{})
	ctx := context.Background()
	grow := sql("INSERT INTO records SELECT $1, 't', convert_to(i::text, 'UTF8'), '' FROM generate_series(1, 1000) i", text(s.thread))
	if err := s.run(ctx, true, nil, func(tx *tx) error { _, err := tx.do(grow); return err }); err != nil {
		t.Fatal(err)
	}
	wanted := store.Wanted{Records: []store.WantedRecord{{Table: "t", Key: []byte("7")}, {Table: "t", Key: []byte("none")}, {Table: "t", Key: []byte("999")}}}
	if plan := planOf(t, s, recordsOf(text(s.thread), wanted)); !regexp.MustCompile(`Index Cond: .*key = `).MatchString(plan) {
		t.Errorf("not by the key:\n%s", plan)
	}
	if err := s.run(store.Wanted.With(wanted, ctx), false, nil, func(tx *tx) error {
		for key, there := range map[string]bool{"7": true, "none": false, "999": true} {
			if v, known := tx.known[recordKey{"t", key}]; !known || (v != nil) != there {
				t.Errorf("%s: %q, %v", key, v, known)
			}
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}

// TestWantedFrom: what a transaction has read from a key on follows what it puts and deletes
// there, and is read on behind that.
func TestWantedFrom(t *testing.T) {
	s := opened(t, newThread(t, newSchema(t)), plain{})
	ctx := store.Wanted{From: []store.WantedRecord{{Table: "t", Key: []byte("k03")}, {Table: "none", Key: []byte("k")}}}.With(context.Background())
	if err := s.run(context.Background(), true, nil, func(tx *tx) error {
		for i := range 20 {
			if err := tx.Put("t", fmt.Appendf(nil, "k%02d", i), []byte("v")); err != nil {
				return err
			}
		}
		return tx.flush()
	}); err != nil {
		t.Fatal(err)
	}
	if err := s.run(ctx, true, nil, func(tx *tx) error {
		for _, err := range []error{tx.Delete("t", []byte("k05")), tx.Put("t", []byte("k03x"), []byte("v")), tx.Put("t", []byte("k02x"), []byte("v")), tx.Put("none", []byte("k1"), []byte("v"))} {
			if err != nil {
				return err
			}
		}
		for _, c := range []struct{ table, from, want string }{
			{"t", "k03", "k03 k03x k04 k06 k07 k08 k09 k10 k11 k12 "}, {"t", "k02", "k02 k02x k03 k03x k04 k06 k07 k08 k09 k10 "}, {"none", "k", "k1 "},
		} {
			got := ""
			err := tx.Ascend(store.Table(c.table), []byte(c.from), func(key, _ []byte) (bool, error) {
				got += string(key) + " "
				return strings.Count(got, " ") < 10, nil
			})
			if got != c.want {
				t.Errorf("%s from %s: %q, want %q", c.table, c.from, got, c.want)
			}
			if err != nil {
				return err
			}
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}

// TestSweep: what a write forgets of commits is bounded, however many there are, and goes by
// the index; all old ones go in the end, and no other.
func TestSweep(t *testing.T) {
	s := opened(t, newThread(t, newSchema(t)), plain{})
	ctx := context.Background()
	in := func(list ...statement) []rowset {
		t.Helper()
		var r []rowset
		if err := s.run(ctx, true, nil, func(tx *tx) (err error) { r, err = tx.do(list...); return err }); err != nil {
			t.Fatal(err)
		}
		return r
	}
	const old, fresh = 10 * mostSwept, 1000
	fill := func(n int64, age string) statement {
		return sql("INSERT INTO commits SELECT $1, decode(md5(random()::text), 'hex'), clock_timestamp() - interval '"+age+"' FROM generate_series(1, $2)", text(s.thread), int8(n))
	}
	in(fill(old, "61 minutes"), fill(fresh, "59 minutes"))
	left := func() int64 {
		return number(in(sql("SELECT count(*) FROM commits WHERE thread = $1 AND at < clock_timestamp() - interval '1 hour'", text(s.thread)))[0].rows[0][0])
	}
	random := func() []byte {
		b := make([]byte, 15)
		_, _ = rand.Read(b)
		return b
	}
	plan := planOf(t, s, s.sweep(random()))
	if strings.Contains(plan, "Seq Scan on commits") || !strings.Contains(plan, "commits_pkey") {
		t.Errorf("the sweep goes through the whole table:\n%s", plan)
	}
	before := left()
	in(s.sweep(random()))
	if gone := before - left(); gone > mostSwept {
		t.Errorf("one sweep has forgotten %d", gone)
	}
	for sweeps := 0; left() > 0; sweeps++ {
		if sweeps == 1000 {
			t.Fatalf("%d are left after %d sweeps", left(), sweeps)
		}
		in(s.sweep(random()))
	}
	if n := number(in(sql("SELECT count(*) FROM commits WHERE thread = $1 AND at < clock_timestamp() - interval '50 minutes'", text(s.thread)))[0].rows[0][0]); n != fresh {
		t.Errorf("%d of %d younger ones are there", n, fresh)
	}
	// A write of which the first byte is 0 sweeps.
	in(fill(1, "61 minutes"))
	for range 20 {
		if err := s.run(ctx, true, nil, func(tx *tx) error { _, err := tx.do(s.nonce(append([]byte{0}, random()...))...); return err }); err != nil {
			t.Fatal(err)
		}
	}
	if n := left(); n != 0 {
		t.Errorf("%d are left", n)
	}
}
