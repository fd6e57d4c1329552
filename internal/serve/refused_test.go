//go:build linux

package serve

import (
	"crypto/sha256"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"thread/engine"
	"thread/history"
)

// TestUnknownNames: what a request names that is not known is refused with the nearest
// name, and changes nothing; the description names the parameters that are known.
func TestUnknownNames(t *testing.T) {
	b := newBench(t)
	b.subscribe(engine.Subscription{Consumer: "w", Pull: true, Handler: engine.PullHandler})
	b.push("s")
	b.listen(Options{})
	for _, tt := range []struct{ method, path, body, says string }{
		{"GET", eventsAt + "?limt=5", "", `the parameter "limt" is not known: did you mean limit?`},
		{"GET", eventsAt + "?limit=5&fliter=1", "", `the parameter "fliter" is not known: did you mean filter?`},
		{"GET", eventsAt + "?consumer=c", "", `the parameter "consumer" is not known: use one of after, limit, filter`},
		{"GET", "/openapi.json?x", "", "there are none here"},
		{"POST", "/threads/thread/consumers/w/next?ack=true", "{}", "there are none here"},
		{"POST", "/threads/thread/consumers/w/next", `{"akc":true}`, `the member "akc" is not known: did you mean ack?`},
		{"POST", "/threads/thread/consumers/w/pause", `{"for":"1h"}`, `the member "for" is not known: there are none here`},
	} {
		typ := ""
		if tt.body != "" {
			typ = oneType
		}
		status, a := b.exchange(tt.method, tt.path, typ, tt.body)
		if status != 400 || !strings.Contains(fmt.Sprint(a["detail"]), tt.says) {
			t.Errorf("%s %s: %d %v, want %q", tt.method, tt.path, status, a, tt.says)
		}
	}
	for _, path := range []string{"/events?tread=x", "/events?limit=1", eventsAt + "?limit=1"} {
		if status, _, body := b.get(path, "Accept", eventStreamType); status != 400 || !strings.Contains(body, "is not known") {
			t.Errorf("%s: %d %s", path, status, body)
		}
	}
	if status, a := b.exchange("POST", "/threads/thread/consumers/w/next", oneType, `{"ack":true}`); status != 200 {
		t.Errorf("something was taken: %d %v", status, a)
	}
	for pattern, methods := range at(description(), "paths") {
		for method := range methods.(map[string]any) {
			list, _ := at(description(), "paths", pattern, method)["parameters"].([]any)
			for _, p := range list {
				of := p.(map[string]any)
				if ref, ok := of["$ref"].(string); ok {
					of = at(description(), strings.Split(strings.TrimPrefix(ref, "#/"), "/")...)
				}
				if of["in"] == "header" {
					continue
				}
				name := fmt.Sprint(of["name"])
				path := strings.NewReplacer("{name}", "thread", "{consumer}", "w").Replace(pattern) + "?" + name + "=x"
				q := b.request(path)
				q.Method = strings.ToUpper(method)
				r, err := http.DefaultClient.Do(q)
				if err != nil {
					t.Fatal(err)
				}
				body, err := io.ReadAll(r.Body)
				r.Body.Close()
				if err != nil || strings.Contains(string(body), "is not known") {
					t.Errorf("%s %s: %s %v", method, path, body, err)
				}
			}
		}
	}
}

const eventStreamType = "text/event-stream"

// TestHistoryIsReadOnly: a history that is served is read as any thread, and nothing of it
// is changed over HTTP or by a page.
func TestHistoryIsReadOnly(t *testing.T) {
	b := newBench(t)
	ctx := t.Context()
	h, err := history.Open(ctx, b.t.Dir())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := h.StartSession(ctx, history.SessionRow{ID: "s"}); err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(b.t.Dir(), history.Dir)
	records, err := engine.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer records.Close()
	if err := records.Subscribe(ctx, engine.Subscription{Consumer: "w", Pull: true, Handler: engine.PullHandler}); err != nil {
		t.Fatal(err)
	}
	b.subscribe(engine.Subscription{Consumer: "c", Handler: "true"}) // its page has a form
	before := digest(t, dir)
	br := b.browse(Options{Threads: []string{dir}})
	for _, tt := range [][2]string{{"events", `{"source":"run","type":"run","content":"{}"}`}, {"consumers/w/next", `{"ack":true}`}, {"consumers/w/ack", `{"delivery":"1"}`},
		{"consumers/w/retry", `{"delivery":"1"}`}, {"consumers/w/extend", `{"delivery":"1","lease":"1s"}`}, {"consumers/w/pause", ""}, {"consumers/w/resume", ""}} {
		typ := ""
		if tt[1] != "" {
			typ = oneType
		}
		if status, a := b.exchange("POST", "/threads/history/"+tt[0], typ, tt[1]); status != 403 || !strings.Contains(fmt.Sprint(a["detail"]), "is the history of "+b.t.Dir()) {
			t.Errorf("%s: %d %v", tt[0], status, a)
		}
	}
	for _, do := range []url.Values{{"do": {"push"}, "event": {"1"}}, {"do": {"pause"}, "consumer": {"w"}}, {"do": {"resume"}, "consumer": {"w"}}, {"do": {"drop"}, "count": {"0"}},
		{"do": {"retry"}, "count": {"0"}}, {"do": {"cancel"}, "schedule": {"x"}}, {"do": {"cancel-delayed"}, "delayed": {"1"}}} {
		do.Set("form", br.formToken())
		if status, body := br.postTo("history", do, "Sec-Fetch-Site", "same-origin"); status != 403 || !strings.Contains(body, "is the history of") {
			t.Errorf("%v: %d %s", do, status, body)
		}
	}
	if status, a := b.exchange("GET", "/threads/history/events", "", "", "Accept", oneType); status != 200 || len(a["events"].([]any)) == 0 {
		t.Errorf("reading: %d %v", status, a)
	}
	if after := digest(t, dir); after != before {
		t.Error("events.db of the history has changed")
	}
}

func digest(t *testing.T, dir string) [32]byte {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, "events.db"))
	if err != nil {
		t.Fatal(err)
	}
	return sha256.Sum256(text)
}

// TestOtherDelivery: a client can settle a delivery by the text that next answered and by
// nothing that can be guessed from it or from other deliveries, also at the next server.
func TestOtherDelivery(t *testing.T) {
	b := newBench(t)
	for _, consumer := range []string{"w", "v"} {
		b.subscribe(engine.Subscription{Consumer: consumer, Pull: true, MaxAttempts: 9})
	}
	b.push("one")
	clients, err := ParseClients("mine write " + tokenOf("m") + "\nother write " + tokenOf("o"))
	if err != nil {
		t.Fatal(err)
	}
	o := Options{Deliveries: new(memory), Listen: "127.0.0.1:0", Clients: clients}
	as := func(who, consumer, verb, body string) (int, map[string]any) {
		t.Helper()
		return b.exchange("POST", "/threads/thread/consumers/"+consumer+"/"+verb, oneType, body, "Authorization", "Bearer "+tokenOf(who))
	}
	s, stop, left := b.untilStopped(o)
	b.s = s
	given := map[string]string{}
	for _, consumer := range []string{"w", "v"} {
		status, a := as("m", consumer, "next", `{"lease":"1h"}`)
		if given[consumer], _ = a["delivery"].(string); status != 200 || given[consumer] == "" {
			t.Fatalf("%s: %d %v", consumer, status, a)
		}
	}
	before, err := b.t.Info(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	_, mac, _ := strings.Cut(given["w"], ".")
	for body, want := range map[string]int{`1`: 400, `"1"`: 404, `"1."`: 404, `"2.` + mac + `"`: 404, `"1.` + strings.ToUpper(mac) + `x"`: 404, `"` + given["v"] + `"`: 404, `""`: 404, `null`: 400} {
		for verb, more := range map[string]string{"ack": "", "retry": `,"error":"x"`, "extend": `,"lease":"2h"`} {
			status, a := as("o", "w", verb, `{"delivery":`+body+more+`}`)
			if kind := map[int]string{400: "invalid", 404: "no-delivery"}[want]; status != want || a["type"] != "urn:thread:problem:"+kind {
				t.Errorf("%s of %s: %d %v", verb, body, status, a)
			}
		}
	}
	if after, err := b.t.Info(t.Context()); err != nil || !reflect.DeepEqual(before, after) {
		t.Errorf("a refusal has changed something: %+v, %v; before %+v", after, err, before)
	}
	stop()
	<-left
	s.standby.Stop()
	b.s, stop, left = b.untilStopped(o)
	if status, a := as("m", "w", "ack", `{"delivery":"`+given["w"]+`"}`); status != 200 || a["last_acked_id"] != 1.0 {
		t.Errorf("at the next server: %d %v", status, a)
	}
	stop()
	<-left
	b.s.standby.Stop()
}
