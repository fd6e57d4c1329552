package engine

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"thread/event"
	"thread/internal/store"
	"thread/internal/store/bolt"
	"thread/internal/store/bolt/disk"
	"thread/internal/store/bolt/journal"
)

// fuzzed makes a thread with a few pages of everything, and returns its directory,
// its database and the lines of its events.
func fuzzed(f *testing.F) (dir string, db []byte, want [][]byte) {
	dir = filepath.Join(f.TempDir(), "inbox")
	th, err := Init(dir, WithClock(func() time.Time { return time.Unix(1773830000, 0) }))
	if err != nil {
		f.Fatal(err)
	}
	var drafts []event.Draft
	for i := range 1100 {
		d := event.Draft{Source: fmt.Sprint("s", i%5), Type: "t", Content: fmt.Sprint("content ", i)}
		if i < 150 {
			d.DedupeKey = d.Content
		}
		drafts = append(drafts, d)
	}
	events, err := th.PushBatch(ctx, drafts)
	if err != nil {
		f.Fatal(err)
	}
	for i := range events {
		want = append(want, events[i].AppendJSON(nil))
	}
	err = th.Update(ctx, func(tx *Tx) error {
		var errs []error
		for i := range 150 {
			errs = append(errs, tx.putDead("c", int64(i+1), store.Failures{Attempts: 1, LastError: "exit 65", LastAt: time.Unix(1, 0)}))
		}
		return errors.Join(errs...)
	})
	for _, c := range []string{"c", "d"} {
		err = errors.Join(err, th.Subscribe(ctx, Subscription{Consumer: c, Handler: "true", Filter: event.Text("source = 's1' AND content LIKE '%9'")}))
	}
	if err != nil {
		f.Fatal(err)
	}
	if err := bolt.Fold(ctx, dirOf(th)); err != nil {
		f.Fatal(err)
	}
	if db, err = os.ReadFile(filepath.Join(dir, bolt.DatabaseName)); err != nil {
		f.Fatal(err)
	}
	return dir, db, want
}

// spoil overwrites parts of db as data says: an offset of 4 bytes, a count of one,
// and up to 15 bytes to put there, and so on.
func spoil(db, data []byte) []byte {
	db = bytes.Clone(db)
	for len(data) > 5 {
		at, n := int(binary.LittleEndian.Uint32(data)%uint32(len(db))), 1+int(data[4])%15
		n = copy(db[at:], data[5:min(len(data), 5+n)])
		data = data[5+n:]
	}
	return db
}

// FuzzPages: whatever the pages of a database hold, every call returns, with an
// error or with what was stored, and nothing panics.
func FuzzPages(f *testing.F) {
	dir, db, want := fuzzed(f)
	patch := func(at int, b ...byte) []byte {
		return append(binary.LittleEndian.AppendUint32(nil, uint32(at)), append([]byte{byte(len(b) - 1)}, b...)...)
	}
	for page := range len(db) / disk.PageBytes {
		if page > 8 && page%4 != 0 {
			continue // the first ones are the metas, the free list and the roots
		}
		at := page * disk.PageBytes
		f.Add(patch(at+8, 1, 0, 2, 0))                          // another kind of page
		f.Add(patch(at+10, 0xff, 0xff))                         // more elements
		f.Add(patch(at+12, 0xff, 0xff, 0xff, 0x7f))             // overflows
		f.Add(patch(at+disk.PageHeaderBytes+8, byte(page), 0))  // a branch that is its own child
		f.Add(patch(at+disk.PageHeaderBytes+4, 0xff, 0xff, 99)) // an element outside
		f.Add(append(patch(at+100, 1, 2, 3), patch(at+2000, 9, 9, 9)...))
	}
	path, empty := filepath.Join(dir, bolt.DatabaseName), make([]byte, journal.Bytes)
	f.Fuzz(func(t *testing.T, data []byte) {
		hang := time.AfterFunc(2*time.Minute, func() { panic("it does not come to an end") })
		defer hang.Stop()
		spoiled := spoil(db, data)
		for path, b := range map[string][]byte{path: spoiled, filepath.Join(dir, bolt.JournalName): empty} {
			if err := os.WriteFile(path, b, bolt.FileMode); err != nil {
				t.Fatal(err)
			}
		}
		th, err := Open(dir)
		if err != nil {
			return
		}
		defer th.Close() // before the next one truncates what is mapped
		report, err := Check(ctx, th)
		sound := err == nil && len(report.Faults) == 0
		n := 0
		for e, err := range th.Events(ctx, Query{}) {
			if err != nil {
				if sound {
					t.Fatalf("check finds nothing, and then: %v", err)
				}
				break
			}
			if n >= len(want) || !bytes.Equal(e.AppendJSON(nil), want[n]) {
				if sound || n >= len(want) || e.ID == int64(n+1) {
					t.Fatalf("event %d is %s", n+1, e.AppendJSON(nil))
				}
				break
			}
			n++
		}
		if sound && n != len(want) {
			t.Fatalf("check finds nothing, and there are %d events of %d", n, len(want))
		}
		th.Info(ctx)
		store.TakeSnapshot(ctx, dirOf(th))
		for range th.DeadLetters(ctx, DeadLetterQuery{}) {
		}
		th.Events(ctx, Query{Filter: "source = 's1' AND content LIKE '%9'"})(func(event.Event, error) bool { return true })
		for _, fault := range report.Faults {
			if strings.HasSuffix(fault, "lies outside of it") {
				// Before bbolt writes this page it copies the key, with whatever length and
				// place it says: that takes gigabytes of memory, or the process.
				return
			}
		}
		th.Push(ctx, event.Draft{Source: "new", Type: "t", Content: "c", DedupeKey: "content 3"})
		th.Compact(ctx)
	})
}

// FuzzLines: whatever events.jsonl holds, no event is lost by it, a push works, and
// its line is the last one.
func FuzzLines(f *testing.F) {
	dir := filepath.Join(f.TempDir(), "inbox")
	th, err := Init(dir)
	if err != nil {
		f.Fatal(err)
	}
	for range 3 {
		if err := pushFourth(th); err != nil {
			f.Fatal(err)
		}
	}
	if err := bolt.Fold(ctx, dirOf(th)); err != nil {
		f.Fatal(err)
	}
	db, err := os.ReadFile(filepath.Join(dir, bolt.DatabaseName))
	if err != nil {
		f.Fatal(err)
	}
	empty := make([]byte, journal.Bytes)
	text, err := os.ReadFile(filepath.Join(dir, "events.jsonl"))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(text)
	f.Add(text[:len(text)-5])
	f.Add(append(bytes.Clone(text), "\n\n{}\n{\"id\":9"...))
	f.Add([]byte("{\"id\":3,\"created_at\":\"\"}\n"))
	f.Add([]byte("{\"id\":-1,\"created_at\":\"x\"}\n{\"id\":99999999999999999999,\"created_at\":\"x\"}"))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, lines []byte) {
		for name, data := range map[string][]byte{bolt.DatabaseName: db, bolt.JournalName: empty, "events.jsonl": lines} {
			if err := os.WriteFile(filepath.Join(dir, name), data, bolt.FileMode); err != nil {
				t.Fatal(err)
			}
		}
		e, err := th.Push(ctx, event.Draft{Source: "s", Type: "t", Content: "new"})
		if err != nil || e.ID != 4 {
			t.Fatalf("push: %v, %v", e, err)
		}
		now, err := os.ReadFile(filepath.Join(dir, "events.jsonl"))
		if want := append(e.AppendJSON(nil), '\n'); err != nil || !bytes.HasSuffix(now, want) {
			t.Fatalf("the file ends with %q (%v)", now[max(0, len(now)-200):], err)
		}
		report, err := Check(ctx, th)
		if err != nil || report.Events != 4 {
			t.Fatalf("check: %+v, %v", report, err)
		}
	})
}
