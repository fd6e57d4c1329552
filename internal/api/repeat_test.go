package api

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"net/http/httptest"
	"testing"
	"time"
)

// TestRepeatsBounds: answers are kept for a day, up to a number and a size, the newest.
func TestRepeatsBounds(t *testing.T) {
	now := time.Unix(1e9, 0)
	r := repeats{now: func() time.Time { return now }}
	keep := func(i, size int) {
		k, fresh := r.begin(sha256.Sum256(fmt.Append(nil, i)), sha256.Sum256(nil))
		if !fresh {
			t.Fatalf("%d is known", i)
		}
		r.end(k, &recorder{ResponseWriter: httptest.NewRecorder(), answer: make([]byte, size), done: true})
	}
	known := func(i int) bool { return r.of[sha256.Sum256(fmt.Append(nil, i))] != nil }
	for i := range keptAnswers + 3 {
		keep(i, 0)
	}
	if known(2) || !known(3) || len(r.of) != keptAnswers || r.order.Len() != keptAnswers {
		t.Errorf("%d are kept", len(r.of))
	}
	for i := range 20 {
		keep(-1-i, maxKeptBytes)
	}
	if r.bytes > keptBytes || known(-4) || !known(-20) {
		t.Errorf("%d bytes are kept", r.bytes)
	}
	now = now.Add(keptTime)
	keep(-100, 7)
	if len(r.of) != 1 || r.bytes != entryBytes+7 {
		t.Errorf("after a day %d are kept, %d bytes", len(r.of), r.bytes)
	}
}

// pages are a journal in memory.
type pages struct{ text []byte }

func (p *pages) Load() []byte               { return bytes.Clone(p.text) }
func (p *pages) Save(text []byte)           { p.text = bytes.Clone(text) }
func (p *pages) Append(line []byte, _ bool) { p.text = append(p.text, line...) }

// TestRepeatsRestart: after a restart answers are known, a request that was in progress is
// not started again, and one that was refused is.
func TestRepeatsRestart(t *testing.T) {
	now := time.Unix(1e9, 0)
	journal := new(pages)
	start := func() *repeats {
		r := &repeats{now: func() time.Time { return now }}
		r.load(journal)
		return r
	}
	key := func(name string) [sha256.Size]byte { return sha256.Sum256([]byte(name)) }
	r := start()
	for _, name := range []string{"old", "done", "refused", "large", "cut off"} {
		k, _ := r.begin(key(name), key("body"))
		out := &recorder{ResponseWriter: httptest.NewRecorder(), status: 201, answer: []byte(name), done: name != "refused", large: name == "large"}
		out.Header().Set("Content-Type", "text/x")
		if name == "old" {
			k.At = now.Add(-keptTime)
		}
		if name != "cut off" {
			r.end(k, out)
		}
	}
	journal.text = append(journal.text, `{"key":"AAAA`...)
	for range 2 { // the second time from what the first has written again
		r = start()
		if len(r.of) != 3 || r.bytes != 3*entryBytes+len("done")+len("large") {
			t.Errorf("%d are kept, %d bytes", len(r.of), r.bytes)
		}
		for name, want := range map[string]error{"done": nil, "large": errLarge, "cut off": errCutOff} {
			k, fresh := r.begin(key(name), key("body"))
			out := httptest.NewRecorder()
			if err := k.repeat(out, key("body")); fresh || !errors.Is(err, want) {
				t.Errorf("%s: %v, fresh %v", name, err, fresh)
			}
			if want == nil && (out.Code != 201 || out.Body.String() != name || out.Header().Get("Content-Type") != "text/x") {
				t.Errorf("%s: %d %s", name, out.Code, out.Body)
			}
		}
		if r.of[key("refused")] != nil || r.of[key("old")] != nil {
			t.Error("what is over is kept")
		}
	}
	if lines := bytes.Count(journal.text, []byte("\n")); lines != 3 {
		t.Errorf("%d lines: %s", lines, journal.text)
	}
}
