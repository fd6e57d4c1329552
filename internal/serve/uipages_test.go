//go:build linux

package serve

import (
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"thread/engine"
	"thread/event"
	"thread/history"
)

// have asks for a page as an open window does that shows a version.
func (b *browser) have(path, version string) (p struct {
	V     string
	Parts map[string]string
	Lists map[string][]string
	Main  *string
}) {
	b.Helper()
	q, _ := http.NewRequest("GET", b.url(path), nil)
	q.Header.Set("X-Thread-Have", version)
	r, err := b.Do(q)
	if err != nil {
		b.Fatal(err)
	}
	defer r.Body.Close()
	if err := json.NewDecoder(r.Body).Decode(&p); err != nil {
		b.Fatal(err)
	}
	return p
}

// TestUIPatches: an open page gets what has changed since its version, and nothing else.
func TestUIPatches(t *testing.T) {
	b := newBench(t)
	b.push("first")
	b.subscribe(engine.Subscription{Consumer: "one", Handler: "true", Paused: true})
	b.subscribe(engine.Subscription{Consumer: "two", Handler: "true", Paused: true})
	br := b.browse(Options{})
	// Where the host is busy, counts and charts follow the page. Then nothing changes.
	var version string
	b.until("all counts", func() bool {
		_, body := br.page("/threads/thread/info")
		_, rest, _ := strings.Cut(body, `data-v="`)
		version, _, _ = strings.Cut(rest, `"`)
		for _, known := range []string{`data-l="Unread">1<`, `data-l="Oldest"><time`, `gone past">0<`, `aria-label="0 a minute now"`} {
			if strings.Count(body, known) != 2 {
				return false
			}
		}
		return true
	})
	if p := br.have("/threads/thread/info", version); p.V != version || len(p.Parts) != 0 || p.Main != nil {
		t.Errorf("nothing has changed: %+v", p)
	}
	if err := b.t.Seek(t.Context(), "two", 1); err != nil {
		t.Fatal(err)
	}
	p := br.have("/threads/thread/info", version)
	rows := 0
	for id, html := range p.Parts {
		if strings.HasPrefix(id, "c-") {
			rows++
			if !strings.Contains(html, `title="two"`) {
				t.Errorf("another row has changed: %s", html)
			}
		}
	}
	if p.V == version || rows != 1 || p.Main != nil {
		t.Errorf("%d rows of %+v", rows, p)
	}
	if p = br.have("/threads/thread/info", "none"); len(p.Lists["rows"]) != 2 || len(p.Parts) < 4 {
		t.Errorf("of a version that is not known: %+v", p)
	}
}

// TestUIUndo: pause and cancel are undone within the session that did them; each change is
// listed and logged.
func TestUIUndo(t *testing.T) {
	b := newBench(t)
	b.subscribe(engine.Subscription{Consumer: "c", Handler: "true"})
	if _, err := b.t.AddSchedule(t.Context(), engine.Schedule{Name: "tick", Spec: "@yearly", Draft: event.Draft{Source: "s", Type: "t"}}); err != nil {
		t.Fatal(err)
	}
	var log logged
	br := b.browse(Options{Log: slog.New(slog.NewTextHandler(&log, nil))})
	undo := func(body string) {
		t.Helper()
		_, rest, ok := strings.Cut(body, `name="undo" value="`)
		key, _, _ := strings.Cut(rest, `"`)
		if !ok {
			t.Fatalf("no undo in %s", body)
		}
		for _, want := range []int{200, 409} {
			q, _ := http.NewRequest("POST", b.url("/undo"), strings.NewReader(url.Values{"form": {br.formToken()}, "undo": {key}}.Encode()))
			q.Header.Set("Content-Type", "application/x-www-form-urlencoded")
			q.Header.Set("Sec-Fetch-Site", "same-origin")
			r, err := br.Do(q)
			if err != nil || r.StatusCode != want {
				t.Fatalf("%+v %v", r, err)
			}
			r.Body.Close()
		}
	}
	_, body := br.post(url.Values{"form": {br.formToken()}, "do": {"pause"}, "consumer": {"c"}, "back": {"/threads/thread/info"}}, "Sec-Fetch-Site", "same-origin")
	if !b.paused("c") || !strings.Contains(body, "c is paused") {
		t.Fatal(body)
	}
	if undo(body); b.paused("c") {
		t.Error("still paused")
	}
	_, body = br.post(url.Values{"form": {br.formToken()}, "do": {"cancel"}, "schedule": {"tick"}}, "Sec-Fetch-Site", "same-origin")
	undo(body)
	if list, err := b.t.Schedules(t.Context()); err != nil || len(list) != 1 || list[0].Name != "tick" {
		t.Errorf("%v %v", list, err)
	}
	_, body = br.page("/audit.json")
	for _, do := range []string{"pause", "cancel", "undo"} {
		if !strings.Contains(body, `"action":"`+do+`"`) || !strings.Contains(log.String(), "verb="+do) {
			t.Errorf("%s is not noted: %s", do, body)
		}
	}
	for _, back := range []string{"//evil.example/", "http://evil.example/", `/\evil.example`} {
		_, body = br.post(url.Values{"form": {br.formToken()}, "do": {"resume"}, "consumer": {"c"}, "back": {back}}, "Sec-Fetch-Site", "same-origin")
		if !strings.Contains(body, "Consumers of thread") {
			t.Errorf("back to %s: %s", back, body)
		}
	}
}

// TestUISignOut: sign out everywhere ends each browser with the same token.
func TestUISignOut(t *testing.T) {
	b := newBench(t)
	br := b.browse(Options{})
	_, body := br.page("/settings")
	q, _ := http.NewRequest("POST", b.url("/logout"), strings.NewReader(url.Values{"form": {formTokens.FindStringSubmatch(body)[1]}, "all": {"1"}}.Encode()))
	q.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	q.Header.Set("Sec-Fetch-Site", "same-origin")
	if r, err := br.Do(q); err != nil || r.StatusCode != 401 { // the form to log in
		t.Fatalf("%+v %v", r, err)
	}
	if status, _ := br.page("/"); status != 401 {
		t.Errorf("%d after the end", status)
	}
}

// TestUIRecorded: the pages of runs and sessions, for one who may change something: a run can
// be cancelled while it runs, and queued again after it has failed.
func TestUIRecorded(t *testing.T) {
	b := newBench(t)
	h, err := history.Open(t.Context(), b.t.Dir())
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	now := time.Now()
	for _, row := range []history.Row{
		&history.SessionRow{ID: "talk", SubjectRef: "user:7", AgentName: "coder", CreatedAt: now},
		&history.RunRow{ID: "now", SessionID: "talk", TriggerType: "system", Status: history.Running, AgentName: "coder", Attempt: 1, CreatedAt: now, StartedAt: now},
		&history.RunRow{ID: "bad", SessionID: "talk", TriggerType: "system", Status: history.Failed, AgentName: "coder", Attempt: 1, CreatedAt: now, StartedAt: now, EndedAt: now},
		&history.RunRow{ID: "good", SessionID: "talk", TriggerType: "system", Status: history.Completed, AgentName: "coder", Attempt: 1, CreatedAt: now, StartedAt: now, EndedAt: now},
		&history.StepRow{ID: "step", RunID: "good", Seq: 1, StepType: "command", Name: "sh", Status: history.Completed, StartedAt: now, EndedAt: now},
	} {
		if err := h.Put(t.Context(), row); err != nil {
			t.Fatal(err)
		}
	}
	br := b.browse(Options{})
	for path, want := range map[string]string{"runs/now": `value="cancel-run"`, "runs/bad": `value="requeue"`, "runs/good": "coder", "session?id=talk": "talk"} {
		status, body := br.page("/threads/thread/" + path)
		if status != 200 || !strings.Contains(body, want) {
			t.Errorf("%s: %d %s", path, status, body)
		}
	}

	// A queued run shows what holds it.
	join := history.RunRow{ID: "joins", TriggerType: "system"}
	if err := history.SetJob(&join, history.Job{After: []string{"now"}}); err != nil {
		t.Fatal(err)
	}
	if _, err := h.Enqueue(t.Context(), join); err != nil {
		t.Fatal(err)
	}
	if _, body := br.page("/threads/thread/runs/joins"); !strings.Contains(body, "<dt>Next</dt><dd>after now</dd>") {
		t.Errorf("it does not say what it waits for: %s", body)
	}
	if _, body := br.page("/threads/thread/runs/joins.json"); !strings.Contains(body, `"hold":{"for":"join","runs":["now"]}`) {
		t.Errorf("its twin does not say what it waits for: %s", body)
	}

	// A run that waits shows what it waits for, and the form of an approval answers it once.
	if _, err := h.Enqueue(t.Context(), history.RunRow{ID: "asks", TriggerType: "system"}); err != nil {
		t.Fatal(err)
	}
	r, _, err := h.Claim(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.Wait(t.Context(), "refund/7", history.Wait{For: history.ForApproval, Ask: "refund 80 <b>EUR</b>?"}); !errors.Is(err, history.ErrWaiting) {
		t.Fatal(err)
	}
	if err := r.End(t.Context(), history.End{Status: history.Waiting}); err != nil {
		t.Fatal(err)
	}
	_, body := br.page("/threads/thread/runs/asks")
	for _, want := range []string{"Waits for an approval", "refund 80 &lt;b&gt;", `name="do" value="approve"`, `name="key" value="refund%2F7"`} {
		if !strings.Contains(body, want) {
			t.Errorf("no %s in %s", want, body)
		}
	}
	if _, body := br.page("/threads/thread/runs?status=waiting"); !strings.Contains(body, "runs/asks") {
		t.Error("it is not listed as waiting")
	}
	form := url.Values{"form": {br.formToken()}, "run": {"asks"}, "do": {"deny"}, "key": {"other"}, "reason": {"too much"}}
	if status, body := br.post(form, "Sec-Fetch-Site", "same-origin"); status != http.StatusConflict {
		t.Errorf("another key: %d %s", status, body)
	}
	form.Set("key", "refund%2F7")
	if status, body := br.post(form, "Sec-Fetch-Site", "same-origin"); status != http.StatusOK || !strings.Contains(body, "Denied") {
		t.Errorf("%d %s", status, body)
	}
	if status, _ := br.post(form, "Sec-Fetch-Site", "same-origin"); status != http.StatusConflict {
		t.Errorf("a second answer: %d", status)
	}
	if r, _, err = h.Claim(t.Context()); err != nil {
		t.Fatal(err)
	}
	a, err := r.Wait(t.Context(), "refund/7", history.Wait{For: history.ForApproval})
	if err != nil || a.Result != history.Denied || a.Reason != "too much" || a.By != "127.0.0.1" {
		t.Errorf("%+v %v", a, err)
	}
}

// TestUIBudget: a page with its stylesheet and scripts is at most 40 KB as sent.
func TestUIBudget(t *testing.T) {
	b := newBench(t)
	for range 60 {
		b.push("self")
	}
	kill(t, b.t, "c", "line 1\nline 2")
	br := b.browse(Options{})
	size := func(path string) int {
		q, _ := http.NewRequest("GET", b.url(path), nil)
		q.Header.Set("Accept-Encoding", "gzip")
		r, err := br.Do(q)
		if err != nil {
			t.Fatal(err)
		}
		defer r.Body.Close()
		text, err := io.ReadAll(r.Body)
		if err != nil || r.Header.Get("Content-Encoding") != "gzip" {
			t.Fatalf("%s: %v %v", path, r.Header, err)
		}
		return len(text)
	}
	shared := size("/ui.css") + size("/ui.js")
	for _, path := range uiPaths {
		if strings.HasSuffix(path, ".json") {
			continue
		}
		n := shared + size(path)
		t.Logf("%s: %d bytes", path, n)
		if n > 40<<10 {
			t.Errorf("%s: %d bytes", path, n)
		}
	}
}
