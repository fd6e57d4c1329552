//go:build linux

package serve

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"thread/engine"
	"thread/event"
)

// browser is a client that was logged in by the one-time address.
type browser struct {
	*bench
	http.Client
	opened string
}

func (b *bench) browse(o Options) *browser {
	b.Helper()
	br := &browser{bench: b}
	opened := make(chan string, 1)
	o.UI, o.Opened = true, func(address string) { opened <- address }
	b.listen(o)
	br.opened = <-opened
	br.Jar, _ = cookiejar.New(nil) // never fails
	if status, body := br.page(strings.TrimPrefix(br.opened, b.url(""))); status != 200 || !strings.Contains(body, "logged in") {
		b.Fatalf("%d %s", status, body)
	}
	return br
}

// page returns a page, once it is no longer "being counted", as on a busy machine.
func (b *browser) page(path string) (status int, body string) {
	b.Helper()
	b.until("counted", func() bool {
		status, body = b.pageNow(path)
		return status != http.StatusServiceUnavailable
	})
	return status, body
}

func (b *browser) pageNow(path string) (status int, body string) {
	b.Helper()
	r, err := b.Get(b.url(path))
	if err != nil {
		b.Fatal(err)
	}
	defer r.Body.Close()
	text, err := io.ReadAll(r.Body)
	if err != nil {
		b.Fatal(err)
	}
	return r.StatusCode, string(text)
}

var formTokens = regexp.MustCompile(`name="form" value="([0-9a-f]+)"`)

// post sends a form as a browser does from one of the pages, with the headers.
func (b *browser) post(form url.Values, header ...string) (status int, body string) {
	b.Helper()
	return b.postTo("thread", form, header...)
}

func (b *browser) postTo(thread string, form url.Values, header ...string) (status int, body string) {
	b.Helper()
	q, err := http.NewRequest("POST", b.url("/threads/"+thread+"/act"), strings.NewReader(form.Encode()))
	if err != nil {
		b.Fatal(err)
	}
	q.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	for i := 0; i+1 < len(header); i += 2 {
		q.Header.Set(header[i], header[i+1])
	}
	r, err := b.Do(q)
	if err != nil {
		b.Fatal(err)
	}
	defer r.Body.Close()
	text, _ := io.ReadAll(r.Body)
	return r.StatusCode, string(text)
}

func (b *browser) formToken() string {
	b.Helper()
	_, body := b.page("/threads/thread/info")
	m := formTokens.FindStringSubmatch(body)
	if m == nil {
		b.Fatalf("no form in %s", body)
	}
	return m[1]
}

var uiPaths = []string{"/", "/settings", "/audit", "/api", "/threads/thread/overview", "/threads/thread/info", "/threads/thread/sessions", "/threads/thread/events", "/threads/thread/events/1", "/threads/thread/dead", "/threads/thread/schedules", "/threads/thread/runs",
	"/threads.json", "/lanes.json", "/settings.json", "/audit.json", "/api.json", "/search.json", "/threads/thread/overview.json", "/threads/thread/sessions.json", "/threads/thread/info.json", "/threads/thread/events.json", "/threads/thread/events/1.json", "/threads/thread/dead.json", "/threads/thread/schedules.json", "/threads/thread/runs.json"}

// hostile is text that would be markup, in any place of a page.
const hostile = "\"'`><svg onload=alert(1)></script><!--{{.}} \u202e\x00\n&amp;"

// TestUIHostile: what is in a thread, a path or a query never becomes markup.
func TestUIHostile(t *testing.T) {
	b := newBench(t)
	ctx := t.Context()
	text := strings.ReplaceAll(hostile, "\x00", "")
	e, err := b.t.Push(ctx, event.Draft{Source: text, Type: text, Subtype: event.Text(text), Content: `{"x":` + strconv.Quote(text) + `}` + hostile})
	if err != nil {
		t.Fatal(err)
	}
	b.subscribe(engine.Subscription{Consumer: text, Handler: "true " + text, Filter: event.Text("content <> '" + strings.ReplaceAll(text, "'", "''") + "'"), Paused: true})
	if _, err := b.t.AddSchedule(ctx, engine.Schedule{Name: text, Spec: "@yearly", Draft: event.Draft{Source: text, Type: text, Content: text}}); err != nil {
		t.Fatal(err)
	}
	kill(t, b.t, "killed", text)
	br := b.browse(Options{})
	// A count that takes long comes later, and with it the problem that the first page names.
	b.until("counted", func() bool {
		_, body := br.page("/threads/thread/overview")
		return strings.Contains(body, "&lt;svg")
	})
	for _, path := range uiPaths {
		queries := []string{""}
		query := url.Values{"filter": {"content <> '" + strings.ReplaceAll(text, "'", "''") + "'"}}
		switch strings.TrimSuffix(filepath.Base(path), ".json") {
		case "events":
			query.Set("explain", "1")
			queries = append(queries, "?"+query.Encode())
		case "dead":
			queries = append(queries, "?"+query.Encode())
		}
		if status, body := br.page(path + "?" + url.Values{text: {text}}.Encode()); status != 400 || !strings.HasSuffix(path, ".json") && strings.Contains(body, "<svg on") {
			t.Errorf("%s with an unknown parameter: %d %s", path, status, body)
		}
		for _, q := range queries {
			status, body := br.page(path + q)
			if status != 200 {
				t.Errorf("%s: %d %s", path+q, status, body)
			}
			if strings.HasSuffix(path, ".json") {
				if !json.Valid([]byte(body)) {
					t.Errorf("%s is no JSON: %s", path+q, body)
				}
			} else if strings.Contains(body, "<svg on") || strings.Contains(body, "ZgotmplZ") {
				t.Errorf("%s: markup\n%s", path+q, body)
			} else if strings.Contains(path, "/threads/") && !strings.HasSuffix(path, "runs") && !strings.HasSuffix(path, "sessions") && !strings.Contains(body, "&lt;svg") {
				t.Errorf("%s shows nothing hostile:\n%s", path+q, body)
			}
		}
	}
	for _, path := range []string{"/threads/" + url.PathEscape(text) + "/info", "/threads/thread/events?filter=" + url.QueryEscape(text), "/threads/thread/runs/" + url.PathEscape(text), "/" + url.PathEscape(text)} {
		if status, body := br.page(path); strings.Contains(body, "<svg on") || status == 500 {
			t.Errorf("%s: %d %s", path, status, body)
		}
	}
	// Names that no form could hold as they are come through one.
	form := url.Values{"form": {br.formToken()}, "do": {"resume"}, "consumer": {url.PathEscape(text)}}
	if status, body := br.post(form, "Sec-Fetch-Site", "same-origin"); status != 200 || b.paused(text) {
		t.Errorf("resume: %d %s", status, body)
	}
	form = url.Values{"form": {br.formToken()}, "do": {"push"}, "event": {fmt.Sprint(e.ID)}}
	if status, body := br.post(form, "Sec-Fetch-Site", "same-origin"); status != 200 || !strings.Contains(body, "Event 2") {
		t.Errorf("push again: %d %s", status, body)
	}
	form = url.Values{"form": {br.formToken()}, "do": {"cancel"}, "schedule": {url.PathEscape(text)}}
	if status, _ := br.post(form, "Sec-Fetch-Site", "same-origin"); status != 200 {
		t.Errorf("cancel: %d", status)
	}
	if list, err := b.t.Schedules(ctx); err != nil || len(list) != 0 {
		t.Errorf("%v %v", list, err)
	}
}

// kill makes a dead letter of each stored event for a consumer of that name.
func kill(t testing.TB, thread *engine.Thread, consumer, why string) {
	t.Helper()
	ctx := context.Background()
	if err := thread.Subscribe(ctx, engine.Subscription{Consumer: consumer, Handler: "true", Paused: false}); err != nil {
		t.Fatal(err)
	}
	feed := thread.Feed(consumer, engine.Policy{MaxAttempts: 1})
	var r *engine.Result
	for {
		d, err := feed.Next(ctx, r)
		if err != nil {
			t.Fatal(err)
		}
		if len(d.Events) == 0 {
			break
		}
		r = &engine.Result{Verdict: engine.Rejected, Error: why, ExitCode: 1}
	}
	if err := thread.Pause(ctx, consumer); err != nil {
		t.Fatal(err)
	}
}

func (b *bench) paused(consumer string) bool {
	b.Helper()
	info, err := b.t.Info(context.Background())
	if err != nil {
		b.Fatal(err)
	}
	i := slices.IndexFunc(info.Subscriptions, func(c engine.ConsumerInfo) bool { return c.Consumer == consumer })
	return info.Subscriptions[i].Paused
}

// TestUIStrangers: without the cookie or the token nothing of a thread is seen, and
// the one-time address opens once.
func TestUIStrangers(t *testing.T) {
	b := newBench(t)
	b.push("secretsource")
	br := b.browse(Options{})
	stranger := &browser{bench: b}
	for _, path := range append([]string{strings.TrimPrefix(br.opened, b.url("")), "/open?key=", "/live", "/login", "/metrics", "/events"}, uiPaths...) {
		if status, body := stranger.page(path); status != 401 || strings.Contains(body, "secretsource") || strings.Contains(body, b.t.Dir()) {
			t.Errorf("%s: %d %s", path, status, body)
		}
	}
	for _, path := range uiPaths {
		if status, _, body := b.get(path); status != 200 {
			t.Errorf("%s with the token: %d %s", path, status, body)
		}
		q := b.request(path, "Authorization", "")
		q.Host = "evil.example"
		if r, err := http.DefaultClient.Do(q); err != nil || r.StatusCode != 421 {
			t.Errorf("%s at another name: %+v %v", path, r, err)
		}
	}
	for token, want := range map[string]int{"": 401, "wrong": 401, testToken: 200} {
		r, err := stranger.PostForm(b.url("/login"), url.Values{"token": {token}})
		if err != nil || r.StatusCode != 403 {
			t.Errorf("no Origin: %+v %v", r, err)
		}
		q, _ := http.NewRequest("POST", b.url("/login"), strings.NewReader(url.Values{"token": {token}}.Encode()))
		q.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		q.Header.Set("Origin", b.url(""))
		if r, err = stranger.Do(q); err != nil || r.StatusCode != want || (want == 200) != (len(r.Cookies()) == 1) {
			t.Errorf("token %q: %+v %v", token, r, err)
		}
		for _, c := range r.Cookies() {
			if !c.HttpOnly || c.SameSite != http.SameSiteStrictMode || c.Path != "/" {
				t.Errorf("%+v", c)
			}
		}
	}
	r, err := br.Get(b.url("/"))
	if err != nil || !strings.HasPrefix(r.Header.Get("Content-Security-Policy"), "default-src 'none';") || r.Header.Get("Cache-Control") != "no-store" {
		t.Errorf("%+v %v", r, err)
	}
}

// TestUIReadOnly: no form is shown, and none carried out.
func TestUIReadOnly(t *testing.T) {
	b := newBench(t)
	b.push("self")
	kill(t, b.t, "c", "why")
	br := b.browse(Options{ReadOnly: true})
	for _, path := range uiPaths {
		if _, body := br.page(path); strings.Contains(body, `method="post" action="/threads/`) {
			t.Errorf("%s has a form", path)
		}
	}
	if status, _ := br.post(url.Values{"do": {"resume"}, "consumer": {"c"}}, "Sec-Fetch-Site", "same-origin"); status != 403 || !b.paused("c") {
		t.Errorf("%d", status)
	}
}

// TestUILetters: all that match are changed, if there are as many as was confirmed.
func TestUILetters(t *testing.T) {
	b := newBench(t)
	for range 3 {
		b.push("self")
	}
	kill(t, b.t, "c", "line 1\nline 2")
	b.push("other")
	kill(t, b.t, "d", "another")
	left := func() (n int) {
		for _, err := range b.t.DeadLetters(t.Context(), engine.DeadLetterQuery{}) {
			if err != nil {
				t.Fatal(err)
			}
			n++
		}
		return n
	}
	br := b.browse(Options{})
	form := url.Values{"form": {br.formToken()}, "do": {"drop"}, "error": {url.PathEscape("line 1\nline 2")}}
	status, body := br.post(form, "Sec-Fetch-Site", "same-origin")
	if status != 200 || !strings.Contains(body, "Drop 3 dead letters?") || left() != 7 {
		t.Fatalf("%d %d %s", left(), status, body)
	}
	form.Set("count", "2")
	if status, body = br.post(form, "Sec-Fetch-Site", "same-origin"); status != 409 || left() != 7 {
		t.Errorf("%d %d %s", left(), status, body)
	}
	form.Set("count", "3")
	if status, body = br.post(form, "Sec-Fetch-Site", "same-origin"); status != 200 || left() != 4 {
		t.Errorf("%d %d %s", left(), status, body)
	}
	form = url.Values{"form": {br.formToken()}, "do": {"retry"}, "filter": {url.PathEscape("source = 'other'")}, "count": {"1"}}
	if status, body = br.post(form, "Sec-Fetch-Site", "same-origin"); status != 200 || left() != 3 {
		t.Errorf("%d %d %s", left(), status, body)
	}
}

// TestUIEvents: the pages, one after the other, are what peek finds.
func TestUIEvents(t *testing.T) {
	b := newBench(t)
	var drafts []event.Draft
	for i := range 5000 {
		drafts = append(drafts, event.Draft{Source: "s" + strconv.Itoa(i%7), Type: "t", Content: strconv.Itoa(i)})
	}
	if _, err := b.t.PushBatch(t.Context(), drafts); err != nil {
		t.Fatal(err)
	}
	br := b.browse(Options{})
	for _, where := range []string{"", "source = 's3'", "content LIKE '%77%' -- a comment\n", "id < 100 OR id > 4900", "id = 0"} {
		want, err := b.t.Peek(t.Context(), engine.Query{Filter: where, Reverse: true})
		if err != nil {
			t.Fatal(err)
		}
		var got []int64
		query := url.Values{"filter": {where}, "limit": {"300"}, "explain": {"1"}}
		for pages := 0; ; pages++ {
			_, body := br.page("/threads/thread/events.json?" + query.Encode())
			var page struct {
				Events []struct{ ID int64 }
				Before *int64
				All    bool `json:"complete"`
			}
			if err := json.Unmarshal([]byte(body), &page); err != nil {
				t.Fatalf("%v: %s", err, body)
			}
			for _, e := range page.Events {
				got = append(got, e.ID)
			}
			if page.All != (page.Before == nil) || pages > 100 {
				t.Fatal(body)
			}
			if page.All {
				break
			}
			query.Set("before", strconv.FormatInt(*page.Before, 10))
		}
		ids := []int64(nil)
		for _, e := range want {
			ids = append(ids, e.ID)
		}
		if !slices.Equal(got, ids) {
			t.Errorf("%q: %d ids, want %d", where, len(got), len(ids))
		}
	}
	// Only a filter that is one by itself is searched for.
	for _, where := range []string{"id = 1) OR (id = 2", "(", "nothing = 1"} {
		if status, body := br.page("/threads/thread/events.json?filter=" + url.QueryEscape(where)); status != 400 {
			t.Errorf("%q: %d %s", where, status, body)
		}
		if status, body := br.page("/threads/thread/events?filter=" + url.QueryEscape(where)); status != 200 || !strings.Contains(body, `role="alert"`) {
			t.Errorf("%q: %d %s", where, status, body)
		}
	}
	for _, path := range []string{"events.json", "events", "dead", "dead.json"} {
		if status, _ := br.page("/threads/thread/" + path + "?filter=type%20LIKE%20'a%'"); status != 400 {
			t.Errorf("%s with a query that cannot be decoded: %d", path, status)
		}
	}
}

// TestUILive: a push is told of at once.
func TestUILive(t *testing.T) {
	b := newBench(t)
	br := b.browse(Options{})
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	q, _ := http.NewRequestWithContext(ctx, "GET", b.url("/live"), nil)
	r, err := br.Do(q)
	if err != nil || r.StatusCode != 200 {
		t.Fatalf("%+v %v", r, err)
	}
	defer r.Body.Close()
	buf := make([]byte, len("data: beat\n\n"))
	if _, err := io.ReadFull(r.Body, buf); err != nil || string(buf) != "data: beat\n\n" {
		t.Fatalf("%q %v", buf, err)
	}
	b.push("self")
	buf = make([]byte, len("data: changed\n\n"))
	if _, err := io.ReadFull(r.Body, buf); err != nil || string(buf) != "data: changed\n\n" {
		t.Fatalf("%q %v", buf, err)
	}
}

func newJar() http.CookieJar {
	jar, _ := cookiejar.New(nil) // never fails
	return jar
}

// TestUICancelDelayed: one delayed event is cancelled, and the others stay.
func TestUICancelDelayed(t *testing.T) {
	b := newBench(t)
	for _, content := range []string{"first", "second"} {
		if _, _, err := b.t.DelayFor(t.Context(), event.Draft{Source: "s", Type: "t", Content: content}, time.Hour); err != nil {
			t.Fatal(err)
		}
	}
	b.subscribe(engine.Subscription{Consumer: "c", Handler: "true"}) // with a form in the first page
	br := b.browse(Options{})
	list, err := b.t.Delayed(t.Context(), 10)
	if err != nil || len(list) != 2 {
		t.Fatalf("%+v %v", list, err)
	}
	if _, body := br.page("/threads/thread/schedules"); strings.Count(body, `value="cancel-delayed"`) != 2 {
		t.Errorf("the forms are\n%s", body)
	}
	for id, want := range map[string]int{"": 400, "x": 400, "99": 404, strconv.FormatInt(list[0].ID, 10): 200} {
		form := url.Values{"form": {br.formToken()}, "do": {"cancel-delayed"}, "delayed": {id}}
		if status, body := br.post(form, "Sec-Fetch-Site", "same-origin"); status != want {
			t.Errorf("%q: %d %s", id, status, body)
		}
	}
	if left, err := b.t.Delayed(t.Context(), 10); err != nil || len(left) != 1 || left[0].Draft.Content != list[1].Draft.Content {
		t.Errorf("%+v %v", left, err)
	}
}
