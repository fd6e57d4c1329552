package floods

import (
	"encoding/json"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"regexp"
	"strings"
	"testing"
)

// markup is text that would be markup, in any place of a page.
const markup = "\"'`><svg onload=alert(1)></script><!--{{.}} \u202e\n&amp;"

// browser is a client of the pages that is logged in.
type browser struct {
	*Server
	t      *testing.T
	client *http.Client
	thread string // the path of the thread
}

// HostilePages stores what would be markup, and forges forms. The server has pages.
func HostilePages(t *testing.T, s *Server) {
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	b := &browser{s, t, &http.Client{Jar: jar}, strings.TrimSuffix(s.Path, "/events")}
	if a := b.post("/login", url.Values{"token": {s.Token}}, "Origin", "http://"+s.Address); a.StatusCode != http.StatusOK {
		t.Fatalf("login: %d %s", a.StatusCode, a.text)
	}
	b.contents()
	b.forgery()
}

func (b *browser) get(path string) answer {
	b.t.Helper()
	q, err := http.NewRequest("GET", "http://"+b.Address+path, nil)
	if err != nil {
		b.t.Fatal(err)
	}
	return do(b.t, b.client.Do, q)
}

// post sends a form.
func (b *browser) post(path string, form url.Values, header ...string) answer {
	b.t.Helper()
	q, err := http.NewRequest("POST", "http://"+b.Address+path, strings.NewReader(form.Encode()))
	if err != nil {
		b.t.Fatal(err)
	}
	q.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	for i := 0; i+1 < len(header); i += 2 {
		q.Header.Set(header[i], header[i+1])
	}
	return do(b.t, b.client.Do, q)
}

// change makes a request of a program, which succeeds.
func (b *browser) change(method, path string, body any) answer {
	b.t.Helper()
	text, err := json.Marshal(body)
	if err != nil {
		b.t.Fatal(err)
	}
	a := b.ask(b.t, method, b.thread+path, string(text), nil)
	if a.StatusCode/100 != 2 {
		b.t.Fatalf("%s %s: %d %s", method, path, a.StatusCode, a.text)
	}
	return a
}

// contents: what is in a thread never becomes markup.
func (b *browser) contents() {
	b.t.Helper()
	type object = map[string]any
	consumer := "/consumers/" + url.PathEscape(markup)
	event := object{"source": markup, "type": markup, "subtype": markup, "content": `{"x":"` + markup}
	b.change("PUT", consumer, object{"max_attempts": 1})
	b.change("POST", "/events", event)
	var d struct{ Delivery string }
	if err := json.Unmarshal([]byte(b.change("POST", consumer+"/next", object{"lease": "1h"}).text), &d); err != nil {
		b.t.Fatal(err)
	}
	b.change("POST", consumer+"/retry", object{"delivery": d.Delivery, "error": markup})
	b.change("POST", "/schedules", object{"name": markup, "when": "@yearly", "event": event})
	b.change("POST", "/sessions", object{"id": "s", "subject_ref": markup, "agent_name": markup, "title": markup})
	b.change("POST", "/sessions/s/messages", object{"role": "user", "content": markup})
	b.change("POST", "/runs/start", object{"id": "r", "session_id": "s", "agent_name": markup})
	b.change("POST", "/runs/r/steps", object{"name": markup, "input": markup})
	b.change("POST", "/runs/r/end", object{"status": "failed", "error_message": markup})
	for _, page := range []string{"/overview", "/info", "/events", "/events/1", "/dead", "/schedules", "/sessions", "/session?id=s", "/runs", "/runs/r", "/consumer?id=" + url.QueryEscape(markup)} {
		path, query, some := strings.Cut(page, "?")
		a := b.counted(b.thread + page)
		if a.StatusCode != http.StatusOK || strings.Contains(a.text, "<svg on") || strings.Contains(a.text, "ZgotmplZ") || !strings.HasPrefix(a.Header.Get("Content-Security-Policy"), "default-src 'none';") {
			b.t.Errorf("%s: %d %s", page, a.StatusCode, a.text)
		} else if path != "/overview" && !strings.Contains(a.text, "&lt;svg") {
			b.t.Errorf("%s shows nothing hostile:\n%s", page, a.text)
		}
		if path += ".json"; some {
			path += "?" + query
		}
		if a := b.counted(b.thread + path); path != "/runs/r.json" && (a.StatusCode != http.StatusOK || !json.Valid([]byte(a.text)) || a.Header.Get("X-Content-Type-Options") != "nosniff") {
			b.t.Errorf("%s: %d %s", path, a.StatusCode, a.text)
		}
	}
	for _, path := range []string{"/threads/" + url.PathEscape(markup) + "/info", b.thread + "/events?filter=" + url.QueryEscape(markup), b.thread + "/runs/" + url.PathEscape(markup), "/" + url.PathEscape(markup), "/search?q=" + url.QueryEscape(markup)} {
		if a := b.counted(path); strings.Contains(a.text, "<svg on") || a.StatusCode >= 500 {
			b.t.Errorf("%s: %d %s", path, a.StatusCode, a.text)
		}
	}
}

// counted returns a page, once its events are counted.
func (b *browser) counted(path string) (a answer) {
	b.t.Helper()
	for a = b.get(path); a.StatusCode == http.StatusServiceUnavailable && b.t.Context().Err() == nil; a = b.get(path) {
	}
	return a
}

var formTokens = regexp.MustCompile(`name="form" value="([0-9a-f]+)"`)

// forgery: a form is carried out only from a page of this server.
func (b *browser) forgery() {
	b.t.Helper()
	b.change("PUT", "/consumers/c", map[string]any{})
	paused := func() bool {
		var info struct {
			Subscriptions []struct {
				Consumer string `json:"consumer_id"`
				Paused   bool
			}
		}
		text := b.ask(b.t, "GET", b.thread+"/consumers", "", nil).text
		if err := json.Unmarshal([]byte(text), &info); err != nil {
			b.t.Fatal(err)
		}
		for _, c := range info.Subscriptions {
			if c.Consumer == "c" {
				return c.Paused
			}
		}
		b.t.Fatalf("the consumer is gone: %s", text)
		return false
	}
	form := formTokens.FindStringSubmatch(b.counted(b.thread + "/info").text)
	if form == nil {
		b.t.Fatal("the page has no form")
	}
	good := url.Values{"form": form[1:], "do": {"pause"}, "consumer": {"c"}}
	bad := url.Values{"form": {strings.Repeat("0", 64)}, "do": {"pause"}, "consumer": {"c"}}
	here := "http://" + b.Address
	for _, tt := range []struct {
		form   url.Values
		header []string
	}{
		{good, nil}, {good, []string{"Origin", "null"}}, {good, []string{"Origin", "http://evil.example"}}, {good, []string{"Origin", "http://127.0.0.1:1"}},
		{good, []string{"Sec-Fetch-Site", "cross-site"}}, {good, []string{"Sec-Fetch-Site", "same-site"}}, {good, []string{"Sec-Fetch-Site", "none"}},
		{good, []string{"Sec-Fetch-Site", "cross-site", "Origin", here}},
		{bad, []string{"Sec-Fetch-Site", "same-origin"}}, {url.Values{"do": {"pause"}, "consumer": {"c"}}, []string{"Sec-Fetch-Site", "same-origin"}},
	} {
		if a := b.post(b.thread+"/act", tt.form, tt.header...); a.StatusCode != 403 || paused() {
			b.t.Errorf("%v %v: %d %s", tt.form, tt.header, a.StatusCode, a.text)
		}
	}
	if a := b.post(b.thread+"/act", good, "Origin", here); a.StatusCode != 200 || !paused() {
		b.t.Errorf("not paused: %d %s", a.StatusCode, a.text)
	}
	if a := b.post(b.thread+"/act", url.Values{"form": good["form"], "do": {"nothing"}}, "Origin", here); a.StatusCode != 400 {
		b.t.Errorf("an unknown action: %d", a.StatusCode)
	}
}
