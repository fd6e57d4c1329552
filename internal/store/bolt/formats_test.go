package bolt_test

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"errors"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"go.etcd.io/bbolt"

	"thread/engine"
	"thread/event"
	"thread/internal/fsck"
	"thread/internal/store"
	"thread/internal/store/bolt"
	"thread/internal/store/bolt/disk"
)

// The file was written by the first program that knew format 2, of which format 3 differs in the journal: 2,104 events of 303
// series, one with 20,000 bytes of content, of which three have dedupe keys; two
// subscriptions with progress, a dead letter, one that is tried again, an event that is to
// be pushed in the year 2300 and a schedule.
const (
	formatFile   = "format3.db.gz"
	formatDigest = "50154ee3cd1fd19592317dfa3f24575aad26c62104f8cd2413b36ae1b7ce2af2"
)

// openFormat returns a thread whose database is a file of testdata, at a time.
func openFormat(t *testing.T, name string, now time.Time) *engine.Thread {
	t.Helper()
	if binary.NativeEndian.Uint16([]byte{1, 0}) != 1 {
		t.Skip("the file is of a little-endian host")
	}
	f, err := os.Open(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	b, err := io.ReadAll(z)
	if err != nil {
		t.Fatal(err)
	}
	th, err := engine.Init(filepath.Join(t.TempDir(), "inbox"), engine.WithClock(func() time.Time { return now }))
	if err == nil {
		err = os.WriteFile(dirOf(th).Path(bolt.DatabaseName), b, bolt.FileMode)
	}
	if err != nil {
		t.Fatal(err)
	}
	return th
}

// sound runs a check that must find no fault, and returns the digest.
func sound(t *testing.T, th *engine.Thread) string {
	t.Helper()
	r, err := fsck.Check(ctx, th)
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Faults) > 0 {
		t.Fatalf("faults: %v", r.Faults)
	}
	return r.Digest
}

// TestFormat3 reads, writes, checks, moves and compacts a file of format 3. What a later program puts into it, an
// earlier one reads: nothing of what it had is written in another way.
func TestFormat3(t *testing.T) {
	th := openFormat(t, formatFile, time.Date(2026, 12, 1, 0, 0, 0, 0, time.UTC))
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	if got := sound(t, th); got != formatDigest {
		t.Errorf("digest %s", got)
	}
	first, err := th.Push(ctx, event.Draft{Source: "s", Type: "keyed", Content: "again", DedupeKey: "key 2", DedupeWindow: 100 * 365 * 24 * time.Hour})
	must(err)
	if first.ID != 2103 || first.Content != "keyed 2" {
		t.Errorf("the first event with the key: %+v", first)
	}
	var letters []int64
	for l, err := range th.DeadLetters(ctx, engine.DeadLetterQuery{}) {
		must(err)
		letters = append(letters, l.Event.ID)
	}
	if len(letters) != 1 || letters[0] != 2102 {
		t.Errorf("dead letters: %v", letters)
	}
	delayed, err := th.Delayed(ctx, 0)
	must(err)
	schedules, err := th.Schedules(ctx)
	must(err)
	if len(delayed) != 1 || delayed[0].Draft.Content != "later" || len(schedules) != 1 || schedules[0].Spec != "@every 100000h" {
		t.Errorf("later: %+v %+v", delayed, schedules)
	}
	for _, content := range []string{"", "new", strings.Repeat("0123456789abcdef", 1<<13)} {
		_, err := th.Push(ctx, event.Draft{Source: "new", Type: "v", Content: content})
		must(err)
	}
	before := sound(t, th)
	was, err := store.TakeSnapshot(ctx, dirOf(th))
	must(err)
	_, err = th.Compact(ctx)
	must(err)
	is, err := store.TakeSnapshot(ctx, dirOf(th))
	must(err)
	if got := sound(t, th); got != before || !reflect.DeepEqual(is, was) {
		t.Errorf("compacted: digest %s, was %s; %+v, was %+v", got, before, is, was)
	}
}

// TestFormats: versions that no program ever wrote are not a thread database, earlier and
// later ones are named, and the file of one stays as it is.
func TestFormats(t *testing.T) {
	for version, want := range map[uint32]error{0: engine.ErrNotDatabase, 1: store.ErrOldFormat, 2: store.ErrOldFormat, 3: nil, 4: engine.ErrNewerFormat, 1 << 31: engine.ErrNewerFormat} {
		if got, err := disk.DecodeFormat(disk.EncodeFormat(version)); !errors.Is(err, want) || err == nil && got != version {
			t.Errorf("%d: %d, %v", version, got, err)
		}
	}
	th, err := engine.Init(filepath.Join(t.TempDir(), "inbox"))
	if err == nil {
		err = bolt.UpdateRaw(ctx, dirOf(th), func(b *bbolt.Tx) error {
			return b.Bucket(disk.BucketMeta).Put(disk.KeyFormat, disk.EncodeFormat(2))
		})
	}
	if err != nil {
		t.Fatal(err)
	}
	before, err := os.ReadFile(dirOf(th).Path(bolt.DatabaseName))
	if err != nil {
		t.Fatal(err)
	}
	_, pushed := th.Push(ctx, event.Draft{Source: "s", Type: "t"})
	_, compacted := th.Compact(ctx)
	_, checked := fsck.Check(ctx, th)
	_, repaired := fsck.Repair(ctx, th.Dir(), filepath.Join(t.TempDir(), "repaired"))
	for i, err := range []error{pushed, compacted, checked, repaired} {
		if !errors.Is(err, store.ErrOldFormat) {
			t.Errorf("call %d: %v", i, err)
		}
	}
	if after, err := os.ReadFile(dirOf(th).Path(bolt.DatabaseName)); err != nil || !bytes.Equal(after, before) {
		t.Errorf("the file was changed (%v)", err)
	}
}
