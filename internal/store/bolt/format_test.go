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

// initThread returns a new thread.
func initThread(t *testing.T) *engine.Thread {
	t.Helper()
	th, err := engine.Init(filepath.Join(t.TempDir(), "inbox"))
	if err != nil {
		t.Fatal(err)
	}
	return th
}

// TestGoldenBytes pins every byte of every key and value. A change of these files
// is a change of the format: it needs a new formatVersion.
func TestGoldenBytes(t *testing.T) {
	const version = disk.FormatVersion
	now := time.UnixMilli(1773829800123)
	th, err := engine.Init(filepath.Join(t.TempDir(), "inbox"), engine.WithClock(func() time.Time { return now }))
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(err)
	_, err = th.PushBatch(ctx, []event.Draft{
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
	raw, err := bolt.OpenRaw(ctx, dirOf(th))
	must(err)
	must(raw.View(func(tx *bbolt.Tx) error {
		return tx.ForEach(func(name []byte, bucket *bbolt.Bucket) error {
			fmt.Fprintf(&b, "%s\n", name)
			n := 0
			return bucket.ForEach(func(k, v []byte) error {
				if string(k) == string(disk.KeyJournal) {
					v = v[:8] // the salt behind it is random
				}
				if n++; n <= 6 { // the first few say it all, and the rest is long
					fmt.Fprintf(&b, "  %s\n    %s\n", wrap(k), wrap(v))
				}
				return nil
			})
		})
	}))
	must(raw.Close())
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

// TestNewerFormat: a directory of a newer version is refused as one, whatever
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
		if err := meta.Put(disk.KeyFormat, []byte("thrd\x00\x00\x00\x04")); err != nil {
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
