package page

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"thread/engine"
	"thread/event"
)

// one is a host with one thread, and that thread.
type one struct{ t *engine.Thread }

func (h one) Threads() []Thread        { return []Thread{h} }
func (h one) Lanes() []Lane            { return []Lane{{Name: markup}} }
func (h one) Changed() <-chan struct{} { return nil }
func (h one) Done() <-chan struct{}    { return nil }
func (h one) Dir() string              { return h.t.Dir() }
func (h one) Engine() *engine.Thread   { return h.t }
func (one) Version() int64             { return 0 }
func (h one) Runs() []Run              { return []Run{{Consumer: markup, State: "running"}} }
func (h one) Wake()                    {}
func (h one) Abort(string) bool        { return false }

// markup would be an element if it were not escaped.
const markup = `"'><fuzzed onload=x>`

func newOne(t testing.TB) one {
	t.Helper()
	th, err := engine.Init(filepath.Join(t.TempDir(), "inbox"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { th.Close() })
	ctx := t.Context()
	if err := th.Subscribe(ctx, engine.Subscription{Consumer: markup, Handler: markup}); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if _, err := th.Push(ctx, event.Draft{Source: markup, Type: markup, Subtype: event.Text(markup), Content: markup}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := th.AddSchedule(ctx, engine.Schedule{Name: "s", Spec: "@hourly", Draft: event.Draft{Source: markup, Type: markup, Content: markup}}); err != nil {
		t.Fatal(err)
	}
	return one{th}
}

// FuzzPage: whatever is asked, or sent as a form by one of our own pages, is answered and
// is not a fault of the server; what is stored or asked becomes no element of a page, and a
// twin is JSON.
func FuzzPage(f *testing.F) {
	paths := []string{"/", "/threads.json", "/lanes", "/lanes.json", "/ui.css", "/login", "/open?key=x", "/threads/inbox/info", "/threads/inbox/info.json",
		"/threads/inbox/events?filter=type+%3D+'x'&explain=1&before=3&limit=2", "/threads/inbox/events.json?filter=%28", "/threads/inbox/events/1", "/threads/inbox/events/1.json",
		"/threads/inbox/events/-1", "/threads/inbox/dead?consumer=c&filter=id+%3E+1", "/threads/inbox/dead.json", "/threads/inbox/schedules", "/threads/inbox/schedules.json", "/threads/inbox/runs",
		"/threads/inbox/runs/x", "/threads/%2e%2e/info", "/threads/" + url.PathEscape(markup) + "/info", "/x?" + url.QueryEscape(markup)}
	for _, path := range paths {
		f.Add("GET", path, "")
	}
	for _, form := range []string{"do=pause&consumer=x", "do=resume", "do=retry&filter=id+%3E+0&count=1", "do=drop&error=" + url.QueryEscape(markup), "do=cancel&schedule=s", "do=cancel&delayed=1", "do=push&event=1", "do=" + url.QueryEscape(markup)} {
		f.Add("POST", "/threads/inbox/act", form)
	}
	h := newOne(f)
	p, err := New(h, Options{LogIn: func(*http.Request, string) (string, time.Duration) { return "", 0 }, Known: func(string) (bool, bool) { return true, true }})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, method, path, form string) {
		if method != "POST" {
			method, form = "GET", ""
		}
		at, err := url.ParseRequestURI(path)
		if err != nil || !strings.HasPrefix(path, "/") || at.Path == "/live" {
			return
		}
		q := httptest.NewRequest(method, "http://localhost/", strings.NewReader(form+"&form="+p.formToken(httptest.NewRequest("GET", "/", nil))))
		q.URL, q.Host = &url.URL{Path: at.Path, RawPath: at.RawPath, RawQuery: at.RawQuery}, "localhost"
		q.Header.Set("Sec-Fetch-Site", "same-origin")
		q.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		rw := httptest.NewRecorder()
		p.ServeHTTP(rw, q, true)
		body := rw.Body.String()
		if rw.Code >= http.StatusInternalServerError && rw.Code != http.StatusServiceUnavailable {
			t.Fatalf("%s %s %q: %d %s", method, path, form, rw.Code, body)
		}
		switch typ := rw.Header().Get("Content-Type"); {
		case typ == "application/json" && !json.Valid([]byte(body)):
			t.Fatalf("%s: no JSON: %s", path, body)
		case strings.HasPrefix(typ, "text/html") && strings.Contains(body, "<fuzzed"):
			t.Fatalf("%s %s %q: an element: %s", method, path, form, body)
		case rw.Code == http.StatusOK && rw.Header().Get("Content-Security-Policy") != csp:
			t.Fatalf("%s: without the policy", path)
		}
	})
}
