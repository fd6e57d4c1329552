package bolt_test

import (
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.etcd.io/bbolt"

	"thread/engine"
	"thread/event"
	"thread/internal/store/bolt"
	"thread/internal/store/bolt/disk"
)

var update = flag.Bool("update", false, "write the golden files anew")

// initFormat returns a new thread in the format of a version.
func initFormat(t *testing.T, version uint32, opts ...engine.Option) *engine.Thread {
	t.Helper()
	th, err := engine.Init(filepath.Join(t.TempDir(), "inbox"), opts...)
	if err == nil {
		err = os.Remove(dirOf(th).Path(bolt.DatabaseName))
	}
	if err == nil {
		err = bolt.CreateDatabase(dirOf(th).Path(bolt.DatabaseName), version, func(b *bbolt.Tx) error {
			return b.Bucket(disk.BucketMeta).Put(disk.KeyLines, disk.LogStart{From: 1}.Encode())
		})
	}
	if err != nil {
		t.Fatal(err)
	}
	return th
}

// eachFormat runs a test in every format.
func eachFormat(t *testing.T, test func(t *testing.T, version uint32)) {
	for version := uint32(disk.FormatFirst); version <= disk.FormatVersion; version++ {
		t.Run(fmt.Sprint("format ", version), func(t *testing.T) { test(t, version) })
	}
}

// TestGoldenBytes pins every byte of every key and value. A change of these files
// is a change of the format: it needs a new formatVersion.
func TestGoldenBytes(t *testing.T) { eachFormat(t, testGoldenBytes) }

func testGoldenBytes(t *testing.T, version uint32) {
	now := time.UnixMilli(1773829800123)
	th := initFormat(t, version, engine.WithClock(func() time.Time { return now }))
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	_, err := th.PushBatch(ctx, []event.Draft{
		{Source: "self", Type: "record", Subtype: event.Text("toolcall"), Content: "x"},
		{Source: "a\x00b", Type: "message", Content: ""},
	})
	must(err)
	must(write(th, func(tx *bolt.Tx) error {
		return tx.Insert(&event.Event{ID: 4, CreatedAt: "yesterday", Source: strings.Repeat("s", 4097), Type: "", Subtype: event.Text(""), Content: "imported"})
	}))
	many := make([]event.Draft, 2100) // a block without times, for "yesterday", and one with
	for i := range many {
		many[i] = event.Draft{Source: fmt.Sprint(i % 300), Type: "t", Content: "y"}
	}
	_, err = th.PushBatch(ctx, many)
	must(err)
	must(th.Subscribe(ctx, engine.Subscription{Consumer: "../c", Handler: "true", Filter: event.Text("id > 1"), Timeout: time.Minute, AckOnSuccess: true}))
	must(th.Subscribe(ctx, engine.Subscription{Consumer: "d", Handler: "false"}))
	_, err = th.Pop(ctx, "d", engine.PopQuery{LastAcked: 7, Limit: 1})
	must(err)

	var b strings.Builder
	must(view(th, func(tx *bolt.Tx) error {
		return tx.Bolt().ForEach(func(name []byte, bucket *bbolt.Bucket) error {
			fmt.Fprintf(&b, "%s\n", name)
			n := 0
			return bucket.ForEach(func(k, v []byte) error {
				if n++; n <= 6 { // the first few say it all, and the rest is long
					fmt.Fprintf(&b, "  %s\n    %s\n", wrap(k), wrap(v))
				}
				return nil
			})
		})
	}))
	golden := filepath.Join("testdata", fmt.Sprintf("format%d.golden", version))
	if *update {
		must(os.MkdirAll("testdata", 0o755))
		must(os.WriteFile(golden, []byte(b.String()), 0o644))
	}
	want, err := os.ReadFile(golden)
	must(err)
	if b.String() != string(want) {
		t.Errorf("the bytes on disk have changed:\n%s\nwant:\n%s", b.String(), want)
	}
}

func wrap(b []byte) string {
	s := hex.EncodeToString(b)
	if len(s) > 400 {
		s = fmt.Sprintf("%s…%s (%d bytes)", s[:200], s[len(s)-100:], len(b))
	}
	return s
}

// TestNewerFormat: a directory of a newer version is refused as such, whatever
// else in it is unknown.
func TestNewerFormat(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "inbox")
	th, err := engine.Init(dir)
	if err != nil {
		t.Fatal(err)
	}
	db, err := bbolt.Open(filepath.Join(dir, bolt.DatabaseName), 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	err = db.Update(func(b *bbolt.Tx) error {
		meta := b.Bucket(disk.BucketMeta)
		if err := meta.Put(disk.KeyFormat, []byte("thrd\x00\x00\x00\x03")); err != nil {
			return err
		}
		return errors.Join(meta.Put(disk.KeyState, []byte("something else")), b.DeleteBucket(disk.BucketColumns))
	})
	if err := errors.Join(err, db.Close()); err != nil {
		t.Fatal(err)
	}
	if _, err := th.Push(ctx, event.Draft{Source: "a", Type: "b"}); !errors.Is(err, engine.ErrNewerFormat) {
		t.Errorf("push: %v", err)
	}
	if _, err := th.Peek(ctx, engine.Query{}); !errors.Is(err, engine.ErrNewerFormat) || errors.Is(err, engine.ErrCorrupt) {
		t.Errorf("peek: %v", err)
	}
}

// decodeOne reads the first event of an entry.
func decodeOne(key, v []byte) (r disk.Record, err error) {
	g, err := disk.OpenGroup(key, v)
	if err == nil {
		_, err = g.Next(&r)
	}
	return r, err
}

// TestRecordRoundTrip: what is encoded is decoded the same, and no single
// changed byte goes unnoticed.
func TestRecordRoundTrip(t *testing.T) {
	for _, at := range []string{"2026-03-18T10:30:00.123Z", "", "2026-03-18 10:30:00", "0000-01-01T00:00:00.000Z", "9999-12-31T23:59:59.999Z", "2026-02-30T10:30:00.123Z", "not UTF-8: \xff"} {
		for _, content := range []string{"", "x", strings.Repeat("é\x00", 300)} {
			var tt disk.TimeText
			tt.SetText(at)
			key := disk.EventKey(7)
			v := disk.AppendRecord(nil, key, 9, &tt, content)
			if e := (event.Event{CreatedAt: at, Content: content}); len(v) > disk.RecordBytes(&e) {
				t.Errorf("%d bytes, bound %d", len(v), disk.RecordBytes(&e))
			}
			r, err := decodeOne(key, v)
			if err != nil {
				t.Fatal(err)
			}
			tx := &bolt.Tx{}
			if got := tx.TimeOf(&r); got != at || string(r.Content) != content || r.Series != 9 {
				t.Errorf("got %q %q %d", got, r.Content, r.Series)
			}
			for i := range v {
				v[i] ^= 0x10
				if _, err := decodeOne(key, v); !errors.Is(err, engine.ErrCorrupt) {
					t.Errorf("byte %d of %d changed: %v", i, len(v), err)
				}
				v[i] ^= 0x10
			}
			if _, err := decodeOne(disk.EventKey(8), v); !errors.Is(err, engine.ErrCorrupt) {
				t.Errorf("under another key: %v", err)
			}
		}
	}
}
