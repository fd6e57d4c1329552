package engine

import (
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"thread/event"
	"thread/internal/store"
	"thread/internal/store/bolt"
)

// TestZeroPolicy: a feed without any settings gives single events out, finds one
// that lies behind many others, and does not wait between failures.
func TestZeroPolicy(t *testing.T) {
	defer func(old time.Duration) { bolt.SliceTime = old }(bolt.SliceTime)
	bolt.SliceTime = 0
	th, err := Init(filepath.Join(t.TempDir(), "inbox"))
	if err != nil {
		t.Fatal(err)
	}
	ds := make([]event.Draft, 3000)
	for i := range ds {
		ds[i] = event.Draft{Source: "a", Type: "t", Content: "x"}
	}
	ds[2500].Content = "wanted"
	if _, err := th.PushBatch(ctx, ds); err != nil {
		t.Fatal(err)
	}
	where := "content = 'wanted'"
	if err := th.Subscribe(ctx, Subscription{Consumer: "c", Handler: "true", Filter: &where}); err != nil {
		t.Fatal(err)
	}
	f := th.Feed("c", Policy{})
	for _, v := range []Verdict{Deferred, Deferred, Failed} {
		d, err := f.Next(ctx, nil)
		if err != nil || len(d.Events) != 1 || d.Events[0].ID != 2501 {
			t.Fatalf("%+v, %v", d, err)
		}
		if _, err := f.Settle(ctx, Result{Verdict: v}); err != nil {
			t.Fatal(err)
		}
	}
	if d, err := f.Next(ctx, nil); err != nil || len(d.Events) != 0 || f.Dead != 1 || f.LastDead != 2501 {
		t.Errorf("%+v, %v, %+v", d, err, f)
	}
}

// TestErrorText: the text of an error that is kept is valid UTF-8, within its
// bound, and cut between two characters.
func TestErrorText(t *testing.T) {
	e := "é"
	for text, want := range map[string]string{
		"":                                   "",
		"short":                              "short",
		"bad \xff\xfe byte":                  "bad \uFFFD byte",
		strings.Repeat("x", 1024):            strings.Repeat("x", 1024),
		strings.Repeat("x", 1025):            strings.Repeat("x", 1024),
		strings.Repeat("x", 1023) + e:        strings.Repeat("x", 1023),
		strings.Repeat("x", 1022) + e + "y":  strings.Repeat("x", 1022) + e,
		strings.Repeat("\xffa", 600):         strings.Repeat("\uFFFDa", 256),
		strings.Repeat("x", 1023) + "\xff":   strings.Repeat("x", 1023),
		strings.Repeat("\xff", 1<<20) + "y":  "\uFFFD",
		strings.Repeat("\x80", 2000) + "end": "\uFFFDend",
		strings.Repeat("😀", 300):             strings.Repeat("😀", 256),
	} {
		var l store.Failures
		fail(&l, Result{Verdict: Failed, Error: text}, time.Now(), true)
		if l.LastError != want || l.FirstError != want {
			t.Errorf("%.20q… of %d bytes became %.20q… of %d, want %d", text, len(text), l.LastError, len(l.LastError), len(want))
		}
		if len(l.LastError) > MaxErrorBytes || !utf8.ValidString(l.LastError) {
			t.Errorf("%.20q… of %d bytes: %d", text, len(text), len(l.LastError))
		}
	}
}
