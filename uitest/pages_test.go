package uitest

import (
	"fmt"
	"net/url"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/input"
	cdpruntime "github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

// everything fills the thread with one of each.
func everything(s *stage) {
	s.thread("push", "--source", "shop", "--type", "order", "--subtype", "new", "--content", `{"id":7}`)
	s.thread("subscribe", "--consumer", "mail", "--handler", "true", "--filter", "type = 'order'")
	s.thread("subscribe", "--consumer", "worker", "--handler", "true")
	s.thread("pause", "--consumer", "mail")
	s.thread("consume", "--consumer", "worker", "--max-attempts", "1", "--", "sh", "-c", "echo no such customer >&2; exit 3")
	s.thread("schedule", "add", "--name", "tick", "--when", "@hourly", "--source", "cron", "--type", "tick")
	s.thread("push", "--source", "shop", "--type", "later", "--content", "x", "--delay", "1h")
	s.thread("session", "start", "--id", "talk", "--title", "a talk", "--subject", "user:7", "--agent", "coder")
	s.thread("message", "add", "--session", "talk", "--role", "user", "--content", "hello")
	run := strings.TrimSpace(s.thread("run", "start", "--session", "talk", "--agent", "coder", "--trigger", "message"))
	s.thread("run", "tool", run, "--name", "shell", "--request", s.file(`{"command":"go test"}`), "--status", "failed")
	s.thread("run", "end", run, "--status", "completed")
	s.thread("run", "exec", "--", "sh", "-c", "echo done; echo careful >&2")
}

// recorded returns the path of the newest run of that agent, or of a command.
func (s *stage) recorded(agent string) (path string) {
	s.Helper()
	s.do(chromedp.Navigate(s.origin+"/threads/inbox/runs"),
		chromedp.Evaluate(fmt.Sprintf(`[...document.querySelectorAll('#runs tr')].find(r => r.textContent.includes(%q)).querySelector('a').getAttribute('href')`, agent), &path))
	return path
}

// pages are the paths of all pages that need a login.
func (s *stage) pages() []string {
	s.Helper()
	return []string{"/", "/settings", "/audit", "/api", "/search?q=order", "/threads/inbox/overview", "/threads/inbox/info", "/threads/inbox/consumer?id=worker",
		"/threads/inbox/events", "/threads/inbox/events/1", "/threads/inbox/dead", "/threads/inbox/schedules", "/threads/inbox/runs", "/threads/inbox/sessions",
		"/threads/inbox/session?id=talk", s.recorded("coder"), s.recorded("OK")}
}

// TestTwins: each page leads to itself as JSON.
func TestTwins(t *testing.T) {
	s := open(t, everything)
	for _, path := range s.pages() {
		var what string
		s.do(chromedp.Navigate(s.origin+path), chromedp.Evaluate(`fetch(document.querySelector('.foot a').href)
			.then(r => r.json().then(j => r.status + ' ' + r.headers.get('Content-Type') + ' ' + (j.error ?? typeof j)), e => String(e))`, &what,
			func(p *cdpruntime.EvaluateParams) *cdpruntime.EvaluateParams { return p.WithAwaitPromise(true) }))
		if what != "200 application/json object" {
			t.Errorf("%s as JSON: %s", path, what)
		}
	}
}

// TestSearch: the key / and an id, a source, a run, a session, a consumer or a filter lead
// to what is called so.
func TestSearch(t *testing.T) {
	s := open(t, everything)
	run := s.recorded("coder")
	s.do(chromedp.EmulateViewport(1440, 900)) // a narrow page has no search
	for text, want := range map[string]string{
		"1":                                 "/threads/inbox/events/1",
		"shop":                              "/threads/inbox/events?filter=" + url.QueryEscape("source = 'shop'"),
		run[strings.LastIndex(run, "/")+1:]: run,
		"talk":                              "/threads/inbox/session?id=talk",
		"worker":                            "/threads/inbox/consumer?id=worker",
		"type = 'order'":                    "/threads/inbox/events?filter=" + url.QueryEscape("type = 'order'"),
	} {
		s.do(chromedp.Navigate(s.origin+"/"), chromedp.WaitReady("#q", chromedp.ByQuery))
		s.until("document.querySelector('#live').hidden === false") // the script is at work
		// Not KeyEvent, which writes the character where a page has refused it.
		s.do(input.DispatchKeyEvent(input.KeyDown).WithKey("/").WithCode("Slash").WithText("/"), input.DispatchKeyEvent(input.KeyUp).WithKey("/").WithCode("Slash"))
		s.until("document.activeElement.id === 'q'")
		s.do(chromedp.KeyEvent(text + kb.Enter))
		s.until(fmt.Sprintf("location.pathname + location.search === %q", want))
	}
}

// TestWithoutScript: each page is complete without JavaScript, with a link that refreshes
// it, a chart goes further back, and drop asks on a separate page.
func TestWithoutScript(t *testing.T) {
	s := open(t, everything)
	pages := s.pages()
	s.do(emulation.SetScriptExecutionDisabled(true))
	want := map[string]string{"/": "1 problem", "/threads/inbox/overview": "no such customer", "/threads/inbox/info": "no such customer", "/threads/inbox/consumer?id=worker": "Subscription",
		"/threads/inbox/events": "order", "/threads/inbox/events/1": "Where it is", "/threads/inbox/dead": "1 dead letter", "/threads/inbox/runs": "Recorded", "/api": "OpenAPI",
		"/threads/inbox/sessions": "a talk", "/threads/inbox/session?id=talk": "hello", "/threads/inbox/schedules": "tick", "/settings": "Sign out", "/audit": "No changes",
		"/search?q=order": "order", pages[len(pages)-2]: "go test", pages[len(pages)-1]: "careful"}
	for _, path := range pages {
		var text string
		s.do(chromedp.Navigate(s.origin+path), chromedp.Text("body", &text, chromedp.ByQuery))
		if want[path] == "" || !strings.Contains(text, want[path]) || !strings.Contains(text, "refresh") {
			t.Errorf("%s has no %q: %s", path, want[path], text)
		}
	}
	s.do(chromedp.Navigate(s.origin+"/threads/inbox/consumer?id=worker"), chromedp.Click("button[value='7d']", chromedp.ByQuery),
		chromedp.WaitVisible("button[value='7d'][aria-pressed=true]", chromedp.ByQuery))
	s.do(chromedp.Navigate(s.origin+"/threads/inbox/dead"), chromedp.Click("td button[value=drop]", chromedp.ByQuery), chromedp.WaitVisible("main:not([data-live]) button[value=drop]", chromedp.ByQuery))
	if text := s.text("h1"); text != "Drop 1 dead letter?" {
		t.Errorf("it asks %q", text)
	}
}
