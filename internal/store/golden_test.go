package store_test

import (
	"flag"
	"fmt"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"

	"thread/event"
	"thread/internal/store"
)

var update = flag.Bool("update", false, "rewrite testdata/records.txt")

// TestRecords compares the bytes of every record with those in testdata/records.txt: what
// is on disk does not change. Each is read again, and is the same.
func TestRecords(t *testing.T) {
	at := func(n int64) time.Time { return time.UnixMilli(1_700_000_000_000 + n) }
	warn, none := 3*time.Second, time.Duration(0)
	failures := store.Failures{Attempts: 1, Round: 2, Deferrals: 3, ExitCode: -1, FirstError: "first", LastError: "last", FirstAt: at(1), LastAt: at(2), NextAt: at(3), DiedAt: at(4)}
	draft := event.Draft{Source: "s", Type: "t", Subtype: event.Text("u"), Content: "{}", DedupeKey: "k", DedupeWindow: time.Hour}
	consumer, letter, scheduled := store.ConsumerKey("c"), store.LetterKey("c", 7), store.ScheduledKey(at(9), 8)
	var got strings.Builder
	same := func(name string, encoded []byte, want, decoded any, err error) {
		fmt.Fprintf(&got, "%s %x\n", name, encoded)
		if err != nil || !reflect.DeepEqual(want, decoded) {
			t.Errorf("%s: %+v is read as %+v (%v)", name, want, decoded, err)
		}
	}
	for i, s := range []store.Subscription{{Consumer: "c"}, {Consumer: "c", Filter: event.Text(""), WarnAfter: &none},
		{Consumer: "c", Handler: "h", Filter: event.Text("a = 1"), Timeout: time.Minute, AckOnSuccess: true, Paused: true, Lane: "l", Key: "$.k",
			Parallel: 4, WarnAfter: &warn, Pull: true, MaxAttempts: 5, Ordinal: 6, Unknown: map[uint64][]byte{99: []byte("new"), 70: []byte("er")}}} {
		d, err := store.DecodeSubscription(consumer, s.Encode())
		same(fmt.Sprint("subscription", i), s.Encode(), &s, d, err)
	}
	for i, l := range []store.Limits{{}, {MaxAge: time.Hour, MaxBytes: 1, MaxEvents: 2, Force: true, Trusted: at(1), Doubted: at(2), AgeAt: at(3), TriedAt: at(4), NextID: 5, Wanted: 6}} {
		d, err := store.DecodeLimits(l.Encode())
		same(fmt.Sprint("limits", i), l.Encode(), l, d, err)
	}
	for i, f := range []store.Failures{{}, failures} {
		d, err := store.DecodeLetter(letter, f.EncodeLetter(letter))
		same(fmt.Sprint("letter", i), f.EncodeLetter(letter), f, d, err)
	}
	for i, r := range []store.Attempt{{}, {Failures: failures, State: 1, Most: 2, Group: 3, Number: 4, Resent: 1}} {
		d, err := store.DecodeAttempt(letter, r.Encode(letter))
		same(fmt.Sprint("attempt", i), r.Encode(letter), r, d, err)
	}
	for i, r := range []store.Delivery{{}, {Number: 1, First: 2, Last: 3, Count: 4, Retry: 5, Suspect: 6, Failing: 7, Letter: failures, Retried: 8, Moved: 9,
		Window: 10, Mark: 11, LeasedAt: 12, LeaseEnd: 13}, {Failing: 7}} {
		d, err := store.DecodeDelivery(consumer, r.Encode(consumer))
		same(fmt.Sprint("delivery", i), r.Encode(consumer), r, d, err)
	}
	p := store.ProgressRecord{LastAcked: 5, Newest: 6, UpdatedAt: "2026"}
	pd, err := store.DecodeProgress(consumer, p.Encode(consumer))
	same("progress", p.Encode(consumer), p, pd, err)
	r := store.SettledRange{First: 7, Last: 9, Count: 2}
	rd, err := store.DecodeSettledRange(letter, r.Encode(letter))
	same("settled", r.Encode(letter), r, rd, err)
	for i, k := range []store.KeyRecord{{ID: 1, StoredAt: 2, Window: 3}, {ID: 1, StoredAt: 2, Window: 3, Before: &store.KeyRecord{ID: 4, StoredAt: 5, Window: 6}}} {
		d, err := store.DecodeKeyRecord([]byte("kx"), k.Encode([]byte("kx")))
		same(fmt.Sprint("key", i), k.Encode([]byte("kx")), k, d, err)
	}
	for i, s := range []store.ScheduledEntry{{Draft: draft, Since: at(5)}, {Draft: event.Draft{Source: "s", Type: "t"}}, {Schedule: "name", Repeats: true}} {
		d, err := store.DecodeScheduled(scheduled, s.Encode(scheduled))
		same(fmt.Sprint("scheduled", i), s.Encode(scheduled), s, d, err)
	}
	s := store.Schedule{Name: "n", Spec: "@daily", Draft: draft, Next: scheduled}
	sd, err := store.DecodeSchedule(store.ScheduleKey("n"), s.Encode())
	same("schedule", s.Encode(), s, sd, err)

	const file = "testdata/records.txt"
	if *update {
		if err := os.WriteFile(file, []byte(got.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil || string(want) != got.String() {
		t.Errorf("the records are\n%s\nand not\n%s(%v)", got.String(), want, err)
	}
}
