//go:build linux

package serve

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"thread/engine"
	"thread/event"
)

// exchange sends a request of a program and returns the answer, whose form the
// description must have.
func (b *bench) exchange(method, path, typ, body string, header ...string) (status int, answer map[string]any) {
	b.Helper()
	q := b.request(path, header...)
	q.Method = method
	if typ != "" {
		q.Header.Set("Content-Type", typ)
		q.Body, q.ContentLength = io.NopCloser(strings.NewReader(body)), int64(len(body))
	}
	r, err := http.DefaultClient.Do(q)
	if err != nil {
		b.Fatal(err)
	}
	defer r.Body.Close()
	text, err := io.ReadAll(r.Body)
	if err != nil {
		b.Fatal(err)
	}
	if err := described(method, q.URL.EscapedPath(), r.StatusCode, r.Header.Get("Content-Type"), text); err != nil {
		b.Errorf("%s %s: %d %s: %v", method, path, r.StatusCode, text, err)
	}
	if len(text) > 0 {
		if err := json.Unmarshal(text, &answer); err != nil {
			b.Fatalf("%s: %v", text, err)
		}
	}
	return r.StatusCode, answer
}

func (b *bench) ask2(path, body string) (int, map[string]any) {
	b.Helper()
	return b.exchange("POST", "/threads/thread/"+path, "application/json", body)
}

func (b *bench) stored() (list []event.Event) {
	b.Helper()
	for e, err := range b.t.Events(context.Background(), engine.Query{}) {
		if err != nil {
			b.Fatal(err)
		}
		list = append(list, e)
	}
	return list
}

const (
	oneType   = "application/json"
	linesType = "application/x-ndjson; charset=utf-8"
	eventsAt  = "/threads/thread/events"
)

// TestAPIPush: one event or many, all or nothing, each key once; a handler is started.
func TestAPIPush(t *testing.T) {
	b := newBench(t)
	at := b.fifo("at")
	b.subscribe(engine.Subscription{Consumer: "c", Handler: `echo ran > "$D/at"; ` + drain})
	b.listen(Options{})
	status, a := b.exchange("POST", eventsAt, oneType, "{\n \"source\":\"s\",\"type\":\"t\",\"subtype\":\"u\",\n\"content\":{\"a\": 1}}\n")
	if status != 200 || fmt.Sprint(a) != "map[duplicate_count:0 ids:[1] replaced_count:0]" {
		t.Fatalf("%d %v", status, a)
	}
	b.line(at)
	b.idle()
	lines := "\ufeff" + `{"source":"s","type":"t","content":"2","dedupe_key":"k"}` + "\r\n\n" + `{"source":"s","type":"t","content":"3\ud800"}` + "\n" + `{"source":"s","type":"t","content":"4","dedupe_key":"k"}`
	for i, want := range []string{"map[duplicate_count:1 ids:[2 3 2] replaced_count:1]", "map[duplicate_count:2 ids:[2 4 2] replaced_count:1]"} {
		if i > 0 {
			lines = strings.ReplaceAll(lines, "3\\ud800", "4\\ud800")
		}
		if status, a = b.exchange("POST", eventsAt+"?dedupe_window=1h", linesType, lines); status != 200 || fmt.Sprint(a) != want {
			t.Fatalf("%d %v, want %s", status, a, want)
		}
	}
	b.idle()
	if list := b.stored(); len(list) != 4 || list[0].Content != `{"a":1}` || *list[0].Subtype != "u" || list[1].Content != "2" || list[2].Content != "3\ufffd" {
		t.Errorf("%+v", list)
	}
	good := `{"source":"s","type":"t","content":"x"}` + "\n"
	for _, tt := range []struct {
		typ, query, body string
		status           int
		says             string
	}{
		{oneType, "", "", 400, "empty"}, {oneType, "", "{", 400, "JSON"}, {oneType, "", "[]", 400, "object"}, {oneType, "", good + good, 400, "JSON"}, {oneType, "", `{"source":"s","content":"x"}`, 400, "type"},
		{linesType, "", good + `{"source":7}` + "\n" + good, 400, "line 2: "}, {linesType, "", good + "{", 400, "line 2: "}, {linesType, "", strings.Repeat(good, 3000) + "\xff", 400, "line 3001: "},
		{"text/plain", "", good, 415, "application/json"}, {"application/x-www-form-urlencoded", "", good, 415, "ndjson"}, {"", "", "", 415, "ndjson"},
		{oneType, "?dedup_window=1h", good, 400, `parameter "dedup_window" is not known: did you mean dedupe_window?`}, {oneType, "", `{"source":"s","type":"t","content":"x","dedup_key":"k"}`, 400, `member "dedup_key" is not known: did you mean dedupe_key?`},
		{linesType, "", good + `{"source":"s","type":"t","content":"x","key":"k"}`, 400, `line 2: invalid event: the member "key" is not known`},
		{oneType, "?dedupe_window=x", good, 400, "dedupe_window"}, {oneType, "?dedupe_window=-1h", good, 400, "dedupe_window"},
		{oneType, "", `{"source":"s","type":"t","content":"` + strings.Repeat("x", 16<<20) + `"}`, 413, "16777216"},
		{linesType, "", good + `{"source":"s","type":"t","content":"` + strings.Repeat("x", 16<<20) + `"}`, 413, "16777216"},
	} {
		status, a := b.exchange("POST", eventsAt+tt.query, tt.typ, tt.body)
		if says, _ := a["detail"].(string); status != tt.status || !strings.Contains(says, tt.says) {
			t.Errorf("%.60q as %s: %d %v, want %d %q", tt.body, tt.typ, status, a, tt.status, tt.says)
		}
	}
	if status, _ := b.exchange("POST", "/threads/nobody/events", oneType, good); status != 404 {
		t.Errorf("an unknown thread: %d", status)
	}
	if status, _ := b.exchange("POST", "/threads/"+url.PathEscape(b.t.Dir())+"/events", oneType, good); status != 200 {
		t.Errorf("by its path: %d", status)
	}
	if n := len(b.stored()); n != 5 {
		t.Errorf("%d are stored", n)
	}
	if status, a := b.exchange("POST", eventsAt, linesType, "\n"); status != 200 || len(a["ids"].([]any)) != 0 {
		t.Errorf("an empty batch: %d %v", status, a)
	}
}

// TestAPIPushLong: a batch whose lines lie anywhere in what is read at a time.
func TestAPIPushLong(t *testing.T) {
	b := newBench(t)
	b.listen(Options{})
	var lines strings.Builder
	var want []string
	for i := range 400 {
		content := strings.Repeat(string(rune('a'+i%26)), i*i%9001)
		want = append(want, content)
		fmt.Fprintf(&lines, `{"source":"s","type":"t","content":"%s"}`+"\n", content)
	}
	content := strings.Repeat("z", 3<<20) // needs a place among the large ones
	want = append(want, content)
	fmt.Fprintf(&lines, `{"source":"s","type":"t","content":"%s"}`, content)
	if status, a := b.exchange("POST", eventsAt, linesType, lines.String()); status != 200 || len(a["ids"].([]any)) != 401 {
		t.Fatalf("%d %.200v", status, a)
	}
	for i, e := range b.stored() {
		if e.Content != want[i] {
			t.Fatalf("event %d has %.20q", e.ID, e.Content)
		}
	}
	if n := b.s.web.streams.Count(); n != 0 {
		t.Errorf("%d places are taken", n)
	}
}

// TestAPIEvents: pages put together are what the engine has.
func TestAPIEvents(t *testing.T) {
	b := newBench(t)
	var ds []event.Draft
	for i := range 3000 {
		ds = append(ds, event.Draft{Source: fmt.Sprint(i % 7), Type: "t", Content: strings.Repeat("x", i%3*1200)})
	}
	if _, err := b.t.PushBatch(t.Context(), ds); err != nil {
		t.Fatal(err)
	}
	b.listen(Options{})
	for _, where := range []string{"", "source = '3' -- or not", "source = '3' or id = 5", "length(content) = 1200", "source = 'none'"} {
		var want, got []int64
		for e, err := range b.t.Events(t.Context(), engine.Query{Filter: where}) {
			if err != nil {
				t.Fatal(err)
			}
			want = append(want, e.ID)
		}
		after, done := 0.0, false
		for range 100 {
			_, a := b.exchange("GET", fmt.Sprintf("%s?after=%.0f&limit=90&filter=%s", eventsAt, after, url.QueryEscape(where)), "", "")
			events := a["events"].([]any)
			for _, e := range events {
				got = append(got, int64(e.(map[string]any)["id"].(float64)))
			}
			if after, done = a["last_id"].(float64), a["complete"].(bool); done {
				break
			}
			if len(events) > 90 {
				t.Fatalf("%d events on a page", len(events))
			}
		}
		if !done || after != 3000 || !slices.Equal(got, want) {
			t.Errorf("%q: %d events of %d, to %.0f, complete %v", where, len(got), len(want), after, done)
		}
	}
	if _, a := b.exchange("GET", eventsAt+"?limit=1000", "", ""); len(a["events"].([]any)) >= 1000 || a["complete"] != false {
		t.Errorf("more than a page has room for: %d events, %v", len(a["events"].([]any)), a["complete"])
	}
	for _, query := range []string{"?after=x", "?after=-1", "?limit=1.5", "?limit=0", "?limit=1001", "?filter=" + url.QueryEscape("id = 1) or (id = 2"), "?filter=%28", "?filter=type%20LIKE%20'a%'", "?filter=id=2;id=3"} {
		if status, _ := b.exchange("GET", eventsAt+query, "", ""); status != 400 {
			t.Errorf("%s: %d", query, status)
		}
	}
	if status, _ := b.exchange("GET", "/threads/nobody/events", "", ""); status != 404 {
		t.Error(status)
	}
	s := b.followAt("/threads/thread/events?after=2999", "Accept", "text/event-stream")
	if e := s.event(); e.ID != 3000 {
		t.Errorf("the stream begins with %d", e.ID)
	}
}

// TestAPIConsumer: a worker without a shell, from the first event to a dead letter.
func TestAPIConsumer(t *testing.T) {
	b := newBench(t)
	b.subscribe(engine.Subscription{Consumer: "w /", Pull: true, MaxAttempts: 1})
	b.subscribe(engine.Subscription{Consumer: "h", Handler: "true", Paused: true})
	b.listen(Options{})
	const w = "consumers/w%20%2F/"
	if status, _ := b.ask2(w+"next", `{}`); status != 204 {
		t.Fatalf("nothing: %d", status)
	}
	// One that waits gets what is pushed then.
	type got struct {
		status int
		a      map[string]any
	}
	waits := make(chan got)
	go func() {
		status, a := b.ask2(w+"next", `{"timeout":"1m","lease":"1h"}`)
		waits <- got{status, a}
	}()
	b.until("waiting", func() bool { return b.s.web.streams.Count() == 1 })
	b.exchange("POST", eventsAt, linesType, strings.Repeat(`{"source":"s","type":"t","content":"x"}`+"\n", 4))
	g := <-waits
	if g.status != 200 || g.a["delivery"] == nil || g.a["attempt"] != 1.0 || len(g.a["events"].([]any)) != 1 {
		t.Fatalf("%+v", g)
	}
	delivery := g.a["delivery"]
	if status, _ := b.ask2(w+"next", ``); status != 204 { // one is in flight
		t.Errorf("a second delivery: %d", status)
	}
	if status, a := b.ask2(w+"extend", fmt.Sprintf(`{"delivery":%q,"lease":"2h"}`, delivery)); status != 200 || a["lease_until"].(string) <= g.a["lease_until"].(string) {
		t.Errorf("%d %v", status, a)
	}
	// Another one waits until that is acked.
	go func() {
		status, a := b.ask2(w+"next", `{"timeout":"1m","limit":2}`)
		waits <- got{status, a}
	}()
	b.until("waiting", func() bool { return b.s.web.streams.Count() == 1 })
	if status, a := b.ask2(w+"ack", fmt.Sprintf(`{"delivery":%q}`, delivery)); status != 200 || a["last_acked_id"] != 1.0 || a["settled"] != true {
		t.Errorf("%d %v", status, a)
	}
	if g = <-waits; g.status != 200 || len(g.a["events"].([]any)) != 2 {
		t.Fatalf("%+v", g)
	}
	for _, verb := range []string{"ack", "retry", "extend"} {
		lease := map[bool]string{true: `,"lease":"1s"`}[verb == "extend"]
		if status, _ := b.ask2(w+verb, fmt.Sprintf(`{"delivery":%q%s}`, delivery, lease)); status != 409 {
			t.Errorf("%s of an old delivery: %d", verb, status)
		}
	}
	b.ask2(w+"ack", fmt.Sprintf(`{"delivery":%q}`, g.a["delivery"]))
	_, a := b.ask2(w+"next", `{}`)
	if status, a := b.ask2(w+"retry", fmt.Sprintf(`{"delivery":%q,"error":"no route"}`, a["delivery"])); status != 200 || a["settled"] != true || a["last_acked_id"] != 4.0 {
		t.Errorf("%d %v", status, a)
	}
	for l, err := range b.t.DeadLetters(t.Context(), engine.DeadLetterQuery{}) {
		if err != nil || l.Event.ID != 4 || l.LastError != "no route" {
			t.Errorf("%+v %v", l, err)
		}
	}
	b.push("s")
	if status, a := b.ask2(w+"next", `{"ack":true}`); status != 200 || a["delivery"] != nil || a["lease_until"] != nil {
		t.Errorf("acked with the call: %d %v", status, a)
	}
	for path, want := range map[string]int{"consumers/h/next": 409, "consumers/nobody/next": 404, "consumers/nobody/ack": 404, "consumers/nobody/pause": 404, w + "pause": 204} {
		body := map[bool]string{true: `{"delivery":"1"}`, false: ``}[strings.HasSuffix(path, "ack")]
		if status, _ := b.ask2(path, body); status != want {
			t.Errorf("%s: %d, want %d", path, status, want)
		}
	}
	if status, _ := b.ask2(w+"next", ``); status != 409 {
		t.Errorf("of a paused consumer: %d", status)
	}
	if status, _ := b.ask2(w+"resume", ``); status != 204 {
		t.Errorf("resume: %d", status)
	}
	for path, bodies := range map[string][]string{
		"next":   {`{"limit":101}`, `{"limit":-1}`, `{"limit":"1"}`, `{"lease":"0s"}`, `{"lease":"400d"}`, `{"lease":"1h","ack":true}`, `{"timeout":"3m"}`, `{"timeout":"-1s"}`, `{"more":1}`, `{} {}`, `[]`, `{`, "\x00"},
		"ack":    {``, `{}`, `{"delivery":1}`, `{"delivery":"1.a","error":"x"}`, `{"delivery":["1"]}`, `{"delivery":99999999999999999999}`},
		"retry":  {`{"delivery":"1.a","lease":"1s"}`},
		"extend": {`{"delivery":"1.a"}`, `{"delivery":"1.a","lease":"0s"}`, `{"delivery":"1.a","lease":"1s","error":"x"}`},
		"pause":  {`{"x":1}`},
	} {
		for _, body := range bodies {
			if status, _ := b.ask2(w+path, body); status != 400 {
				t.Errorf("%s with %s: %d", path, body, status)
			}
		}
	}
	if status, _ := b.ask2(w+"next", `{"lease":"`+strings.Repeat("1", 64<<10)+`"}`); status != 413 {
		t.Errorf("a long request: %d", status)
	}
}

// TestAPIGone: events go to no process that has left, and come to the next one.
func TestAPIGone(t *testing.T) {
	b := newBench(t)
	b.subscribe(engine.Subscription{Consumer: "w", Pull: true})
	b.listen(Options{})
	ctx, leave := context.WithCancel(t.Context())
	q := b.request("/threads/thread/consumers/w/next", "Content-Type", "application/json").WithContext(ctx)
	q.Method, q.Body, q.ContentLength = "POST", io.NopCloser(strings.NewReader(`{"timeout":"1m"}`)), 16
	left := make(chan error)
	go func() {
		_, err := http.DefaultClient.Do(q)
		left <- err
	}()
	b.until("waiting", func() bool { return b.s.web.streams.Count() == 1 })
	leave()
	<-left
	b.until("left", func() bool { return b.s.web.streams.Count() == 0 })
	b.push("s")
	if status, a := b.ask2("consumers/w/next", `{}`); status != 200 || a["attempt"] != 1.0 {
		t.Errorf("%d %v", status, a)
	}
}

// tokenOf returns a token for a client of a test.
func tokenOf(name string) string { return strings.Repeat(name, strongToken) }

// TestAPIRights: who may do what, and who is not known may do nothing.
func TestAPIRights(t *testing.T) {
	b := newBench(t)
	b.subscribe(engine.Subscription{Consumer: "w", Pull: true})
	list, err := ParseClients("# clients\nr read " + tokenOf("r") + "\n\nw  write\t" + HashToken(tokenOf("w")) + "\r\na admin " + tokenOf("a"))
	if err != nil {
		t.Fatal(err)
	}
	br := b.browse(Options{Clients: list})
	const draft = `{"source":"s","type":"t","content":"x"}`
	for _, r := range []struct{ method, path, body, least string }{
		{"GET", "/metrics", "", "r"}, {"GET", "/openapi.json", "", ""}, {"GET", "/healthz", "", ""}, {"GET", eventsAt, "", "r"}, {"HEAD", eventsAt, "", "r"}, {"GET", "/threads/thread/info.json", "", "r"},
		{"POST", eventsAt, draft, "w"}, {"POST", "/threads/thread/consumers/w/next", `{"ack":true}`, "w"}, {"POST", "/threads/thread/consumers/w/ack", `{"delivery":"7"}`, "w"},
		{"POST", "/threads/thread/consumers/w/retry", `{"delivery":"7"}`, "w"}, {"POST", "/threads/thread/consumers/w/extend", `{"delivery":"7","lease":"1s"}`, "w"},
		{"POST", "/threads/thread/consumers/w/pause", "", "a"}, {"POST", "/threads/thread/consumers/w/resume", "", "a"},
		{"POST", "/threads/thread/consumers/w/other", "", "w"}, {"DELETE", eventsAt, "", "w"},
	} {
		for i, who := range []string{"", "r", "w", "a"} {
			q := b.request(r.path, "Authorization", "Bearer "+tokenOf(who), "Content-Type", "application/json")
			q.Method = r.method
			q.Body, q.ContentLength = io.NopCloser(strings.NewReader(r.body)), int64(len(r.body))
			answer, err := http.DefaultClient.Do(q)
			if err != nil {
				t.Fatal(err)
			}
			answer.Body.Close()
			least := slices.Index([]string{"", "r", "w", "a"}, r.least)
			refused := answer.StatusCode == 401 || answer.StatusCode == 403
			if refused != (i < least) || refused && (answer.StatusCode == 401) != (who == "") {
				t.Errorf("%s %s by %q: %d", r.method, r.path, who, answer.StatusCode)
			}
		}
	}
	// A browser that logs in with a token may do as much, until that is taken away.
	as := func(token string) (*browser, int) {
		one := &browser{bench: b}
		one.Jar = newJar()
		q, _ := http.NewRequest("POST", b.url("/login"), strings.NewReader(url.Values{"token": {token}}.Encode()))
		q.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		q.Header.Set("Origin", b.url(""))
		r, err := one.Do(q)
		if err != nil {
			t.Fatal(err)
		}
		r.Body.Close()
		return one, r.StatusCode
	}
	for token, may := range map[string]bool{"r": false, "w": false, "a": true} {
		one, status := as(tokenOf(token))
		_, body := one.page("/threads/thread/info")
		if status != 200 || strings.Contains(body, `name="do"`) != may || !strings.Contains(body, "Consumers") {
			t.Errorf("%s: %d, forms %v\n%s", token, status, !may, body)
		}
		form := url.Values{"form": {br.formToken()}, "do": {"pause"}, "consumer": {"w"}}
		if status, _ := one.post(form, "Sec-Fetch-Site", "same-origin"); status != 403 { // the secret of another session, or no right
			t.Errorf("%s: %d", token, status)
		}
		if token == "w" {
			b.s.SetClients(slices.DeleteFunc(slices.Clone(list), func(c Client) bool { return c.Name == "w" }))
			if status, _ := one.page("/threads/thread/info"); status != 401 {
				t.Errorf("a browser whose token was taken away: %d", status)
			}
			b.s.SetClients(list)
		}
	}
	b.s.SetClients(append(list, Client{Name: "more", Rights: "read", Token: tokenOf("m")}))
	if status, _ := br.page("/threads/thread/info"); status != 401 {
		t.Errorf("the browser of the one-time address, after the tokens were replaced: %d", status)
	}
	b.s.SetClients(list)
	b.s.SetClients(nil) // no list is not a change
	if status, _, _ := b.get("/metrics", "Authorization", ""); status != 401 {
		t.Errorf("without clients: %d", status)
	}
	if status, _ := br.page("/threads/thread/info"); status != 200 {
		t.Errorf("the browser of the one-time address: %d", status)
	}
}

// TestParseClients: what is not a list of clients.
func TestParseClients(t *testing.T) {
	tok := strings.Repeat("t", MinToken)
	sum := HashToken(tok)
	for text, want := range map[string]int{tok: 1, " " + tok + " \n": 1, "#x\na read " + tok + "1\nb write " + tok + "2\n": 2, "a read " + tok + "1\n\n" + tok + "2": 2,
		sum: 1, "a push " + sum: 1, "a read " + tok + " threads=a*,b consumers=c until=2030-01-02T03:04:05Z": 1,
		"": 0, "#x": 0, "a read": 0, "a root " + tok: 0, "a none " + tok: 0, "a read " + tok + "1\na read " + tok + "2": 0, "a read " + tok + "\nb read " + tok: 0, "a read " + tok + " x": 0,
		"a read " + tok + "\nb read " + sum: 0, tok[1:]: 0, "tök" + tok: 0, "a read \x00" + tok: 0, tok + "1\n" + tok + "2": 0,
		"a read " + tok + " threads=": 0, "a read " + tok + " threads=[": 0, "a read " + tok + " threads=a,,b": 0, "a read " + tok + " until=tomorrow": 0, "a read sha256:00": 0, sum[:len(sum)-1]: 0} {
		list, err := ParseClients(text)
		if len(list) != want || (err != nil) != (want == 0) {
			t.Errorf("%q: %+v %v", text, list, err)
		}
	}
}

// TestAPIForeign: what a page of another site makes a browser send, also to a name that was
// made to lead here, and to a unix socket that another program forwards.
func TestAPIForeign(t *testing.T) {
	b := newBench(t)
	path := b.path("http.sock")
	b.listen(Options{Listen: "unix:" + path})
	client := http.Client{Transport: &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) { return net.Dial("unix", path) }}}
	for _, tt := range []struct {
		host, typ string
		header    http.Header
		want      int
	}{
		{"localhost", oneType, nil, 200}, {"127.0.0.1:9464", oneType, nil, 200},
		{"localhost", oneType, http.Header{"Sec-Fetch-Site": {"same-origin"}}, 200},
		{"localhost", oneType, http.Header{"Sec-Fetch-Site": {"cross-site"}}, 403}, {"localhost", oneType, http.Header{"Sec-Fetch-Site": {"same-site"}}, 403},
		{"localhost", oneType, http.Header{"Origin": {"http://evil.example"}}, 403}, {"localhost", oneType, http.Header{"Origin": {"null"}}, 403},
		{"localhost", "text/plain", nil, 415},
		{"evil.example", oneType, http.Header{"Origin": {"http://evil.example"}}, 421}, {"evil.example", oneType, nil, 421},
	} {
		q, _ := http.NewRequest("POST", "http://"+tt.host+eventsAt, strings.NewReader(`{"source":"s","type":"t","content":"x"}`))
		q.Header = maps.Clone(tt.header)
		if q.Header == nil {
			q.Header = http.Header{}
		}
		q.Header.Set("Content-Type", tt.typ)
		r, err := client.Do(q)
		if err != nil || r.StatusCode != tt.want {
			t.Errorf("%+v: %+v %v", tt, r, err)
		}
		if err == nil {
			r.Body.Close()
		}
	}
	if n := len(b.stored()); n != 3 {
		t.Errorf("%d are stored", n)
	}
	if r, err := client.Get("http://evil.example" + eventsAt); err != nil || r.StatusCode != 421 {
		t.Errorf("reading: %+v %v", r, err)
	}
}
