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

	"thread/engine"
	"thread/event"
	"thread/internal/fsck"
	"thread/internal/store/bolt"
	"thread/internal/store/bolt/disk"
)

// The file was written by the last program that knew format 1 only: 2,107 events
// up to id 2108, one of them imported with a gap before it and a created_at that
// is no time, one with 20,000 bytes of content; two subscriptions with progress, four
// dedupe keys, a dead letter, one that was sent back, a delivery, an event that is
// to be pushed in the year 3000 and a schedule.
const (
	format1File   = "format1.db.gz"
	format1Digest = "0dc87c087e7bb60396319a7d0bf6a1da05194d3c6be4cfcba22bde68b39249c9"
)

// This one was written by the first program that knew format 2: 2,104 events of 303
// series, one with 20,000 bytes of content, of which three have dedupe keys; two
// subscriptions with progress, a dead letter, one that is tried again, an event that is to
// be pushed in the year 2300 and a schedule.
const (
	format2File   = "format2.db.gz"
	format2Digest = "50154ee3cd1fd19592317dfa3f24575aad26c62104f8cd2413b36ae1b7ce2af2"
)

func openFormat1(t *testing.T) *engine.Thread {
	return openFormat(t, format1File, time.UnixMilli(1773829900000))
}

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

func formatOf(t *testing.T, th *engine.Thread) (format uint32) {
	t.Helper()
	if err := view(th, func(tx *bolt.Tx) error { format = bolt.FormatVersion(tx); return nil }); err != nil {
		t.Fatal(err)
	}
	return format
}

// TestFormat1 reads, writes, checks, moves and compacts a file of format 1. Until
// it is compacted it stays what it is, because an older program may use it, too.
func TestFormat1(t *testing.T) {
	th := openFormat1(t)
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	if got := sound(t, th); got != format1Digest {
		t.Errorf("digest %s", got)
	}
	first, err := th.Push(ctx, event.Draft{Source: "s", Type: "t", Content: "again", DedupeKey: "key 3", DedupeWindow: 100 * 365 * 24 * time.Hour})
	must(err)
	if first.ID != 4 || first.Content != "keyed 3" {
		t.Errorf("the first event with the key: %+v", first)
	}
	for _, content := range [][]byte{nil, []byte("new"), bytes.Repeat([]byte("0123456789abcdef"), 1<<16)} {
		_, err := th.Push(ctx, event.Draft{Source: "new", Type: "v", Content: string(content)})
		must(err)
	}
	if f := formatOf(t, th); f != 1 {
		t.Errorf("after pushes the format is %d", f)
	}
	before := sound(t, th)
	s, err := bolt.TakeSnapshot(ctx, dirOf(th))
	must(err)

	to := filepath.Join(t.TempDir(), "repaired")
	report, err := fsck.Repair(ctx, th.Dir(), to)
	must(err)
	if len(report.Lost) > 0 || len(report.Problems) > 0 || report.Saved != s.Stored {
		t.Errorf("repair: %+v", report)
	}
	repaired, err := engine.Open(to, engine.WithClock(dirOf(th).Now))
	must(err)
	if f := formatOf(t, repaired); f != disk.FormatVersion {
		t.Errorf("repair made format %d", f)
	}
	if got := sound(t, repaired); got != before {
		t.Errorf("repaired: digest %s, was %s", got, before)
	}

	_, err = th.Compact(ctx)
	must(err)
	if f := formatOf(t, th); f != disk.FormatVersion {
		t.Errorf("after compact the format is %d", f)
	}
	if got := sound(t, th); got != before {
		t.Errorf("compacted: digest %s, was %s", got, before)
	}
	again, err := th.Push(ctx, event.Draft{Source: "s", Type: "t", DedupeKey: "key 3", DedupeWindow: 100 * 365 * 24 * time.Hour})
	must(err)
	if again.ID != first.ID || again.Content != first.Content {
		t.Errorf("after compact: %+v", again)
	}
	letters := 0
	for _, err := range th.DeadLetters(ctx, engine.DeadLetterQuery{}) {
		must(err)
		letters++
	}
	if letters == 0 {
		t.Error("no dead letters")
	}
}

// TestFormat2 does the same with a file of format 2. What a later program puts into it, an
// earlier one reads: nothing of what it had is written in another way.
func TestFormat2(t *testing.T) {
	th := openFormat(t, format2File, time.Date(2026, 12, 1, 0, 0, 0, 0, time.UTC))
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	if got := sound(t, th); got != format2Digest {
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
	was, err := bolt.TakeSnapshot(ctx, dirOf(th))
	must(err)
	_, err = th.Compact(ctx)
	must(err)
	is, err := bolt.TakeSnapshot(ctx, dirOf(th))
	must(err)
	if got := sound(t, th); got != before || !reflect.DeepEqual(is, was) {
		t.Errorf("compacted: digest %s, was %s; %+v, was %+v", got, before, is, was)
	}
	if f := formatOf(t, th); f != disk.FormatVersion {
		t.Errorf("after compact the format is %d", f)
	}
}

// TestFormats: versions that no program ever wrote are no thread database, later
// ones are named.
func TestFormats(t *testing.T) {
	for version, want := range map[uint32]error{0: engine.ErrNotDatabase, 1: nil, 2: nil, 3: engine.ErrNewerFormat, 1 << 31: engine.ErrNewerFormat} {
		if got, err := disk.DecodeFormat(disk.EncodeFormat(version)); !errors.Is(err, want) || err == nil && got != version {
			t.Errorf("%d: %d, %v", version, got, err)
		}
	}
}
