// Package uitest drives the pages of thread serve --ui in a real browser: Debian's
// Chromium, without a window. It is a separate module for its client of the browser.
package uitest

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	cdpruntime "github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
)

// bin has the programs, made once.
var bin string

// TestMain builds the programs.
func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "uitest")
	if err == nil {
		bin = dir
		build := exec.Command("go", "build", "-o", dir, "./cmd/thread", "./cmd/thread-serve", "./cmd/thread-history")
		build.Dir, build.Stderr = "..", os.Stderr
		err = build.Run()
	}
	code := 1
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
	} else {
		code = m.Run()
	}
	_ = os.RemoveAll(dir)
	os.Exit(code)
}

// stage is a thread that is served, and a browser that has opened the printed address.
type stage struct {
	testing.TB
	dir, opened, origin string
	dispatch            string // "none" before the server is there: no handler is to run
	browser             context.Context
	stop                func() // ends the server
}

func (s *stage) thread(args ...string) string {
	s.Helper()
	cmd := exec.Command(filepath.Join(bin, "thread"), args...)
	cmd.Env = append(os.Environ(), "THREAD_DIR="+s.dir, "THREAD_DISPATCH="+s.dispatch, "PATH="+bin+":"+os.Getenv("PATH"))
	out, err := cmd.CombinedOutput()
	if err != nil {
		s.Fatalf("thread %q: %v\n%s", args, err, out)
	}
	return string(out)
}

// open serves the thread and opens the browser.
func open(t testing.TB, prepare func(s *stage), flags ...chromedp.ExecAllocatorOption) *stage {
	t.Helper()
	s := &stage{TB: t, dir: filepath.Join(t.TempDir(), "inbox"), dispatch: "none"}
	s.thread("init", s.dir)
	if prepare != nil {
		prepare(s)
	}
	cmd := exec.Command(filepath.Join(bin, "thread"), "serve", "--thread", s.dir, "--ui", "--listen", "127.0.0.1:0")
	cmd.Env = append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"))
	var log bytes.Buffer
	cmd.Stderr = &log
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	s.stop = sync.OnceFunc(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		_ = cmd.Wait()
	})
	t.Cleanup(s.stop)
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatalf("%v\n%s", err, log.String())
	}
	s.dispatch = "spawn"
	s.opened = strings.TrimSpace(strings.TrimPrefix(line, "Open "))
	s.origin, _, _ = strings.Cut(s.opened, "/open")
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.NoSandbox, chromedp.DisableGPU,
		chromedp.Flag("disable-background-networking", true), chromedp.Flag("disable-component-update", true), chromedp.Flag("disable-sync", true))
	options = append(options, flags...)
	allocator, end := chromedp.NewExecAllocator(context.Background(), options...)
	t.Cleanup(end)
	limited, over := context.WithTimeout(allocator, 300*time.Second)
	t.Cleanup(over)
	browser, shut := chromedp.NewContext(limited)
	t.Cleanup(shut)
	s.browser = browser
	s.do(chromedp.Navigate(s.opened), chromedp.WaitVisible(".cards"))
	return s
}

func (s *stage) do(actions ...chromedp.Action) {
	s.Helper()
	if err := chromedp.Run(s.browser, actions...); err != nil {
		s.Fatal(err)
	}
}

func (s *stage) text(selector string) (text string) {
	s.Helper()
	s.do(chromedp.Text(selector, &text))
	return text
}

// click presses what the page has under selector, once it is there. It is done in the
// page: between a look and a click from outside the row may be replaced by its newer self.
func (s *stage) click(selector string) {
	s.Helper()
	s.until(fmt.Sprintf("(find => find() !== null && setTimeout(() => find().click()) > 0)(() => document.querySelector(%q))", selector))
}

// until asks the page again and again; one that is being left does not answer.
func (s *stage) until(condition string) {
	s.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for ok := false; ; <-tick.C {
		err := chromedp.Run(s.browser, chromedp.Evaluate(condition, &ok))
		if err == nil && ok {
			return
		}
		if s.browser.Err() != nil {
			s.Fatalf("never %s: %v", condition, err)
		}
	}
}

// appears waits until the page has this text.
func (s *stage) appears(text string) {
	s.Helper()
	s.until(fmt.Sprintf("document.body !== null && document.body.innerText.includes(%q)", text))
}

// shot keeps a picture where THREAD_SCREENSHOTS says.
func (s *stage) shot(name string) {
	s.Helper()
	dir := os.Getenv("THREAD_SCREENSHOTS")
	if dir == "" {
		return
	}
	var picture []byte
	for chromedp.Run(s.browser, chromedp.FullScreenshot(&picture, 100)) != nil && s.browser.Err() == nil {
		s.until("document.readyState === 'complete'") // the page was being left
	}
	if err := os.WriteFile(filepath.Join(dir, name+".png"), picture, 0o644); err != nil {
		s.Fatal(err)
	}
}

// TestNewcomer: from the printed address to a dead letter, and its retry.
func TestNewcomer(t *testing.T) {
	s := open(t, func(s *stage) {
		s.thread("push", "--source", "shop", "--type", "order", "--subtype", "new", "--content", `{"id":7,"lines":[{"sku":"a","n":2}]}`)
		s.thread("subscribe", "--consumer", "mail", "--handler", "true")
		s.thread("pause", "--consumer", "mail")
		s.thread("subscribe", "--consumer", "worker", "--handler", "true")
		s.thread("consume", "--consumer", "worker", "--max-attempts", "1", "--", "sh", "-c", "echo no such customer >&2; exit 3")
		s.thread("schedule", "add", "--name", "tick", "--when", "@hourly", "--source", "cron", "--type", "tick")
	})
	if text := s.text("h1"); text != "1 problem" {
		t.Errorf("the first page says %q", text)
	}
	s.click(".prob a.who")
	s.appears("Subscription")
	s.click(".tabs a[href$=info]")
	s.appears("the worst first")
	s.click("button[value=resume]")
	s.appears("mail is resumed")
	s.until("document.querySelector('main') !== null && document.querySelector('button[value=resume]') === null")
	s.click(".tabs a[href$=events]")
	s.appears("looked from")
	s.until(`(at => { at.value = "type = 'order'"; setTimeout(() => at.form.requestSubmit()); return true })(document.querySelector('#filter'))`)
	s.until("location.search.includes('filter=')") // the page before it may say the same
	s.appears("1 event found")
	s.click("tbody a")
	s.appears("Where it is")
	s.click(".tabs a[href$=dead]")
	s.appears("no such customer")
	s.click("main .acts button[value=retry]")
	s.appears("1 dead letter sent back to worker")
	s.appears("No dead letters")
	s.click(".tabs a[href$=schedules]")
	s.click("button[value=cancel]")
	s.appears("Nothing is planned.")
	if out := s.thread("schedule", "list"); out != "" {
		t.Errorf("still planned: %s", out)
	}
	s.click(".toast button[name=undo]")
	s.appears("Undone")
	if out := s.thread("schedule", "list"); !strings.Contains(out, "tick") {
		t.Errorf("not undone: %s", out)
	}
	s.do(emulation.SetEmulatedMedia().WithFeatures([]*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: "dark"}}), chromedp.Navigate(s.origin+"/threads/inbox/events"))
	s.do(chromedp.EmulateViewport(360, 740, chromedp.EmulateMobile), chromedp.Navigate(s.origin+"/threads/inbox/events"))
	var wide bool
	s.do(chromedp.Evaluate("document.documentElement.scrollWidth > innerWidth", &wide))
	if wide {
		t.Error("the page is wider than a phone")
	}
}

// TestLastLetter: a page that is open says so when its last dead letter is gone.
func TestLastLetter(t *testing.T) {
	s := open(t, func(s *stage) {
		s.thread("push", "--source", "shop", "--type", "order", "--content", "x")
		s.thread("subscribe", "--consumer", "worker", "--pull")
		s.thread("consume", "--consumer", "worker", "--max-attempts", "1", "--", "sh", "-c", "echo no such customer >&2; exit 3")
	})
	s.do(chromedp.Navigate(s.origin + "/threads/inbox/dead"))
	s.appears("no such customer")
	s.thread("dead", "drop", "--consumer", "worker")
	s.appears("No dead letters")
}

// TestLive: a row is there soon after its push, and pausing the refresh loses and doubles none.
// The host may be at work: one row of many must be in time.
func TestLive(t *testing.T) {
	s := open(t, nil)
	s.do(chromedp.Navigate(s.origin + "/threads/inbox/events"))
	s.appears("updated")
	const limit = 500 * time.Millisecond
	best, pushed := time.Hour, 0
	for ; pushed < 5 || best > limit && pushed < 40; pushed++ {
		content := fmt.Sprintf("row-%d", pushed)
		s.thread("push", "--source", "self", "--type", "message", "--content", content)
		begin := time.Now()
		s.appears(content)
		best = min(best, time.Since(begin))
	}
	t.Logf("a row after %v at best", best)
	if best > limit {
		t.Errorf("a row is there %v after its push, at most %v are promised", best, limit)
	}
	s.do(chromedp.Click("#live"))
	s.appears("stopped")
	for i := range 3 {
		s.thread("push", "--source", "self", "--type", "message", "--content", fmt.Sprintf("later-%d", i))
	}
	if strings.Contains(s.text("main"), "later-") {
		t.Error("a stopped page changes")
	}
	s.do(chromedp.Click("#live"))
	s.appears("later-2")
	var rows int
	s.do(chromedp.Evaluate("document.querySelectorAll('tbody tr').length", &rows))
	if rows != pushed+3 {
		t.Errorf("%d rows, want %d", rows, pushed+3)
	}
}

// TestHostile: what is in an event stays text, and what got into a page would not run.
func TestHostile(t *testing.T) {
	const markup = `"'><img src=x onerror="window.hit=1"><script>window.hit=1</script><svg onload="window.hit=1">`
	s := open(t, func(s *stage) {
		s.thread("push", "--source", markup, "--type", markup, "--subtype", markup, "--content", `{"a":`+fmt.Sprintf("%q", markup)+`}`)
		s.thread("subscribe", "--consumer", markup, "--handler", markup)
		s.thread("pause", "--consumer", markup)
		s.thread("schedule", "add", "--name", markup, "--when", "@yearly", "--source", markup, "--type", markup, "--content", markup)
	})
	for _, path := range []string{"/", "/threads/inbox/info", "/threads/inbox/events", "/threads/inbox/events/1", "/threads/inbox/schedules", "/threads/inbox/consumer?id=" + url.QueryEscape(markup), "/search?q=onerror"} {
		var found int
		var hit bool
		s.do(chromedp.Navigate(s.origin+path), chromedp.WaitVisible("main", chromedp.ByQuery),
			chromedp.Evaluate("document.querySelectorAll('main img, main svg:not([aria-hidden], [role]), main script').length", &found), chromedp.Evaluate("window.hit === 1", &hit))
		if found != 0 || hit {
			t.Errorf("%s: %d elements, run: %v", path, found, hit)
		}
	}
	var hit, blocked bool
	s.do(chromedp.Evaluate(`const x = document.createElement('script'); x.textContent = 'window.hit = 1'; document.body.append(x); window.hit === 1`, &hit))
	if hit {
		t.Error("an inline script was run")
	}
	foreign := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("a page asked another host") }))
	defer foreign.Close()
	s.do(chromedp.Evaluate(fmt.Sprintf(`fetch(%q).then(() => false, () => true)`, foreign.URL), &blocked, func(p *cdpruntime.EvaluateParams) *cdpruntime.EvaluateParams { return p.WithAwaitPromise(true) }))
	if !blocked {
		t.Error("a page may ask another host")
	}
}

// TestForeignSite: a form of another site changes nothing, with the cookie of the same browser.
func TestForeignSite(t *testing.T) {
	s := open(t, func(s *stage) { s.thread("subscribe", "--consumer", "c", "--handler", "true") })
	var token string
	s.do(chromedp.Navigate(s.origin+"/threads/inbox/info"), chromedp.Value("input[name=form]", &token))
	foreign := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) {
		rw.Header().Set("Content-Type", "text/html")
		// The secret is known here, which makes it harder.
		fmt.Fprintf(rw, `<form id="f" method="post" action="%s/threads/inbox/act"><input name="form" value="%s"><input name="consumer" value="c"><button name="do" value="pause">x</button></form>`, s.origin, token)
	}))
	defer foreign.Close()
	for _, site := range []string{foreign.URL, strings.Replace(foreign.URL, "127.0.0.1", "localhost", 1)} {
		s.do(chromedp.Navigate(site), chromedp.Click("button"), chromedp.WaitVisible("main, pre", chromedp.ByQuery))
		var where string
		s.do(chromedp.Location(&where))
		if !strings.HasPrefix(where, s.origin) {
			t.Errorf("the form went to %s", where)
		}
		if out := s.thread("info", "--json"); !strings.Contains(out, `"paused": false`) {
			t.Errorf("paused from %s:\n%s", site, out)
		}
	}
}
