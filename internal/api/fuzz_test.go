package api

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"thread/event"
)

// read returns what a batch says, however it comes.
func read(from io.Reader, single bool) (list []event.Draft, err error) {
	b := batch{from: from, large: make(chan struct{}, largeAtOnce), single: single}
	for d, err := range b.drafts() {
		if err != nil {
			return list, err
		}
		list = append(list, d)
	}
	if len(b.large) > 0 {
		panic("a place is still taken")
	}
	return list, nil
}

// FuzzBatch: a batch says the same byte by byte as at once, line by line what its lines
// say, and an error is a refusal.
func FuzzBatch(f *testing.F) {
	const good = `{"source":"s","type":"t","content":"x"}`
	for _, text := range []string{"", "\n", good, good + "\n" + good, good + "\r\n\n" + good + "\n", "\ufeff" + good, good + "\n{", "{\n}", good + good, "\xff", `{"source":1,"type":"t","content":null}`} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		for _, single := range []bool{false, true} {
			list, err := read(bytes.NewReader(text), single)
			slow, serr := read(iotest.OneByteReader(bytes.NewReader(text)), single)
			if !slices.EqualFunc(list, slow, func(a, b event.Draft) bool {
				return a.Source == b.Source && a.Type == b.Type && a.Content == b.Content && a.DedupeKey == b.DedupeKey
			}) || (err == nil) != (serr == nil) || err != nil && err.Error() != serr.Error() {
				t.Fatalf("%+v %v\n%+v %v", list, err, slow, serr)
			}
			var refused *Error
			if err != nil && (!errors.As(err, &refused) || refused.Status != http.StatusBadRequest) {
				t.Fatal(err)
			}
			if single && len(list) > 1 {
				t.Fatalf("one event is %d", len(list))
			}
			if single {
				continue
			}
			n := 0
			for line := range strings.Lines(strings.TrimPrefix(string(text), "\ufeff")) {
				if len(strings.TrimSpace(line)) == 0 {
					continue
				}
				d, _, lerr := event.ParseDraftLossy([]byte(strings.TrimSpace(line)))
				if lerr != nil {
					if err == nil || !strings.Contains(err.Error(), lerr.Error()) {
						t.Fatalf("%q: %v, want %v", line, err, lerr)
					}
					break
				}
				if n >= len(list) || list[n].Content != d.Content {
					t.Fatalf("%q is missing: %+v %v", line, list, err)
				}
				n++
			}
			if n != len(list) {
				t.Fatalf("%d events of %d lines", len(list), n)
			}
		}
	})
}

// no process is a host without threads.
type nobody struct{ Host }

func (nobody) Audit(*http.Request, string, error) {}
func (nobody) Thread(string) (Thread, error)      { return nil, &Error{http.StatusNotFound, "no"} }

// FuzzRequest: whatever the path, header and body, a request is answered, by a refusal where
// there is no thread, and nothing that only pages answer is taken for the API.
func FuzzRequest(f *testing.F) {
	for _, path := range []string{"/threads/t/events", "/threads/%2fsrv%2Ft/events?after=1&limit=x&filter=%28", "/threads/t/consumers/c/next", "/threads/t/consumers/c/pause", "/openapi.json", "//threads//events", "/threads/t/act", "/threads/../events"} {
		f.Add("POST", path, "application/json", "application/json", []byte(`{"delivery":1}`))
		f.Add("GET", path, "", "text/event-stream;q=1, text/html", []byte(nil))
	}
	a := New(nobody{}, time.Second, nil, nil)
	f.Fuzz(func(t *testing.T, method, path, typ, accept string, text []byte) {
		q, err := http.NewRequest(method, "http://h"+path, bytes.NewReader(text))
		if err != nil || q.URL.Host != "h" {
			return
		}
		q.Header["Content-Type"], q.Header["Accept"] = []string{typ}, []string{accept}
		need, ok := Needs(q, true)
		if !ok {
			return
		}
		if strings.HasSuffix(q.URL.EscapedPath(), "/act") && strings.Count(q.URL.EscapedPath(), "/") == 3 {
			t.Fatalf("%s is a form", path)
		}
		rw := httptest.NewRecorder()
		a.ServeHTTP(rw, q)
		if rw.Code < 300 != (q.URL.Path == DescriptionPath && (method == "GET" || method == "" || method == "HEAD")) {
			t.Fatalf("%s %s: %d", method, path, rw.Code)
		}
		if rw.Code >= 400 && q.URL.Path != DescriptionPath && need == None {
			t.Fatalf("%s %s needs no right", method, path)
		}
		settled := settling{}
		taken := taking{}
		q.Body = io.NopCloser(bytes.NewReader(text))
		if decode(q, &taken) == nil {
			if o, timeout, err := taken.options(); err == nil && (o.Limit < 0 || o.Limit > maxEvents || o.Lease < 0 || o.Lease > maxLease || timeout < 0 || timeout > maxTimeout) {
				t.Fatalf("%s: %+v %v", text, o, timeout)
			}
		}
		q.Body = io.NopCloser(bytes.NewReader(text))
		_ = decode(q, &settled)
	})
}
