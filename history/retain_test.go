package history

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"thread/engine"
)

// TestEventsLimited: with a limit of their number the oldest history events go at the next
// Open, rows are the rows of a map that is written the same way, and where almost all
// events are the newest of a row, an error says so. More with -rapid.checks 1000.
func TestEventsLimited(t *testing.T) {
	if f := flag.Lookup("rapid.checks"); f.Value.String() == f.DefValue { // each waits for the disk
		ok(t, f.Value.Set("20"))
		defer f.Value.Set(f.DefValue)
	}
	base := t.TempDir()
	rapid.Check(t, func(t *rapid.T) {
		dir := one[string](t)(os.MkdirTemp(base, ""))
		defer os.RemoveAll(dir)
		c := newClock()
		h := openIn(t, dir, WithClock(c.Now))
		rows, count := map[string]string{}, 1 // the history of the workspace
		r := DefaultRunRetention
		r.MaxEvents = rapid.Int64Range(1, 40).Draw(t, "limit")
		ok(t, h.SetRunRetention(ctx, r))
		for range rapid.IntRange(1, 5).Draw(t, "rounds") {
			ops := rapid.SliceOfN(rapid.StringMatching(`[a-f][dp]`), 1, 40).Draw(t, "writes")
			ok(t, h.Update(ctx, func(tx *Tx) error {
				for i, op := range ops {
					id := op[:1]
					switch {
					case op[1] == 'p':
						rows[id] = fmt.Sprint(op, i)
						count++
						if err := tx.Put(&SessionRow{ID: id, Status: "active", Title: rows[id]}); err != nil {
							return err
						}
					case rows[id] != "":
						delete(rows, id)
						count++
						if err := tx.Delete(Session, id); err != nil {
							return err
						}
					}
				}
				return nil
			}))
			c.add(retryEvents)
			h.Close()
			h = reopen(t, h.parent, WithClock(c.Now))
			n, most, stay := len(all(t, h.Changes(ctx, 0, ""))), int(r.MaxEvents), len(rows)+1
			held := h.RetainEvents(ctx, true)
			switch old := n - stay; {
			case count <= most && (n != count || held != nil):
				t.Fatalf("%d events of %d, at most %d: %v", n, count, most, held)
			case count > most && n > most-most/8 && old >= max(1, most/8):
				t.Fatalf("%d events of %d are left, at most %d and %d rows", n, count, most, stay)
			case n > most:
				var rows *RowsHeldError
				if !errors.As(held, &rows) || rows.Over != int64(n-most) || rows.Old != int64(old) || rows.Unit != "events" {
					t.Fatalf("%d events, at most %d and %d rows: %v", n, most, stay, held)
				}
			}
			count = n
			got := map[string]string{}
			for _, s := range all(t, h.Sessions(ctx, Query{})) {
				got[s.ID] = s.Title
			}
			if fmt.Sprint(got) != fmt.Sprint(rows) {
				t.Fatalf("rows are %v, want %v", got, rows)
			}
		}
		rebuilt(t, h)
	})
}

// TestBytesLimited: with a limit of bytes older versions go, and with them what was
// rotated of their lines; rows that are longer together stay.
func TestBytesLimited(t *testing.T) {
	c := newClock()
	h := inbox(t, WithClock(c.Now))
	r := DefaultRunRetention
	for _, bad := range []int64{-1, engine.MinLimitBytes - 1} {
		r.MaxBytes = bad
		if err := h.SetRunRetention(ctx, r); !errors.Is(err, ErrInvalid) {
			t.Errorf("%d bytes: %v", bad, err)
		}
	}
	const most = 2 << 20
	r.MaxBytes = most
	ok(t, h.SetRunRetention(ctx, r))
	long := strings.Repeat("x", 50_000)
	largest := int64(0)
	for round := range 5 {
		ok(t, h.Update(ctx, func(tx *Tx) error {
			for i := range 50 { // 2.5 MB
				if err := tx.Put(&SessionRow{ID: "s", Status: "active", Title: fmt.Sprint(round, i, long)}); err != nil {
					return err
				}
			}
			return nil
		}))
		c.add(retryEvents)
		h.Close()
		h = reopen(t, h.parent, WithClock(c.Now))
		if s := one[os.FileInfo](t)(os.Stat(filepath.Join(h.Dir(), "events.db"))).Size(); s > most {
			t.Errorf("events.db has %d bytes", s)
		}
		size := int64(0)
		for _, name := range one[[]string](t)(filepath.Glob(filepath.Join(h.Dir(), "events*.jsonl"))) {
			size += one[os.FileInfo](t)(os.Stat(name)).Size()
		}
		largest = max(largest, size)
	}
	if largest > 3*most {
		t.Errorf("the lines took %d bytes", largest)
	}
	var s SessionRow
	if ok(t, h.Get(ctx, &s, "s")); s.Title != fmt.Sprint(4, 49, long) {
		t.Errorf("the row is %.20s…", s.Title)
	}
	text := []byte(`"` + long + `"`)
	ok(t, h.Update(ctx, func(tx *Tx) error {
		for i := range 60 {
			if err := tx.Put(&MessageRow{ID: fmt.Sprint(i), SessionID: "s", Role: "user", Content: bytes.Clone(text)}); err != nil {
				return err
			}
		}
		return nil
	}))
	c.add(retryEvents)
	h = reopen(t, h.parent, WithClock(c.Now))
	var held *RowsHeldError
	if err := h.RetainEvents(ctx, true); !errors.As(err, &held) || held.Unit != "bytes" || held.Over < 60*50_000-most || len(all(t, h.Messages(ctx, Query{Session: "s"}))) != 60 {
		t.Errorf("%v", err)
	}
	h = reopen(t, h.parent, WithClock(c.Now)) // nothing is left that could go
	parent := one[*engine.Thread](t)(engine.Open(h.parent))
	if at := one[time.Time](t)(LimitsHeld(ctx, parent)); !at.Equal(c.Now().Truncate(time.Millisecond)) {
		t.Errorf("held at %v, want %v", at, c.Now())
	}
	ok(t, h.Update(ctx, func(tx *Tx) error {
		for i := range 60 {
			if err := tx.Delete(Message, fmt.Sprint(i)); err != nil {
				return err
			}
		}
		return nil
	}))
	c.add(retryEvents)
	reopen(t, h.parent, WithClock(c.Now))
	if at := one[time.Time](t)(LimitsHeld(ctx, parent)); !at.IsZero() {
		t.Errorf("held at %v, after the rows are gone", at)
	}
}
