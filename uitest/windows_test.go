package uitest

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/cdproto/target"
	"github.com/chromedp/chromedp"
)

// window opens another window of the same browser at a path.
func (s *stage) window(path string) *stage {
	s.Helper()
	w := *s
	var shut context.CancelFunc
	w.browser, shut = chromedp.NewContext(s.browser)
	s.Cleanup(shut)
	// A page in the background counts as visible, as in a separate window.
	w.do(emulation.SetFocusEmulationEnabled(true), chromedp.Navigate(s.origin+path), chromedp.WaitReady("#live", chromedp.ByQuery))
	return &w
}

// TestThirtyTabs: thirty tabs of a browser have one stream, all of them show what has
// changed, and their ages count from the last message.
func TestThirtyTabs(t *testing.T) {
	s := open(t, nil, chromedp.Flag("process-per-site", true))
	var all []*stage
	for i := range 30 {
		all = append(all, s.window([]string{"/", "/threads/inbox/events", "/threads/inbox/info"}[i%3]))
	}
	s.thread("push", "--source", "self", "--type", "message", "--content", "for all")
	s.thread("subscribe", "--consumer", "late", "--pull")
	for i, w := range all {
		w.appears([]string{"1 consumer", "for all", "late"}[i%3])
		w.until(`/^updated (now|\d s ago)$/.test(document.querySelector('#age').textContent)`)
	}
	var targets []*target.Info
	s.do(chromedp.ActionFunc(func(ctx context.Context) (err error) {
		targets, err = target.GetTargets().Do(ctx)
		return err
	}))
	streams := 0
	for _, one := range targets {
		if one.Type == "shared_worker" {
			streams++
		}
	}
	if streams != 1 {
		t.Errorf("%d streams of one browser", streams)
	}
	s.stop()
	for _, w := range all {
		w.until("document.querySelector('#live [role=status]').textContent === 'no answer'")
	}
}

// TestNineWindows: nine windows of a browser show an event soon after its push, can all go
// to another page, and say so when the server has gone.
func TestNineWindows(t *testing.T) {
	s := open(t, nil)
	var all []*stage
	for range 9 {
		all = append(all, s.window("/threads/inbox/events"))
	}
	for _, w := range all {
		w.appears("updated")
	}
	for i := range 3 {
		content := fmt.Sprintf("row-%d", i)
		s.thread("push", "--source", "self", "--type", "message", "--content", content)
		for _, w := range all {
			w.appears(content)
		}
	}
	for _, w := range all {
		w.do(chromedp.Navigate(s.origin+"/"), chromedp.WaitVisible(".cards", chromedp.ByQuery))
	}
	s.stop()
	for _, w := range all {
		w.until("document.querySelector('#live [role=status]').textContent === 'no answer'")
	}
}

// TestMail is the story of someone who has only the page: mail is not going out. The first
// page says whose events were given up and why; the cause is mended, the 31 events are
// sent back, and they go.
func TestMail(t *testing.T) {
	s := open(t, func(s *stage) {
		broken := filepath.Join(s.dir, "broken")
		if err := os.WriteFile(broken, nil, 0o644); err != nil {
			s.Fatal(err)
		}
		s.thread("subscribe", "--consumer", "mail", "--handler",
			fmt.Sprintf("thread consume --max-attempts 1 -- sh -c 'if test -e %s; then echo relay refused: no such account >&2; exit 65; fi'", broken))
		for i := range 31 {
			s.thread("push", "--source", "shop", "--type", "letter", "--content", fmt.Sprintf("to customer %d", i))
		}
	})
	s.thread("push", "--source", "shop", "--type", "other", "--content", "x") // it starts the handler
	s.appears("32 dead")
	s.appears("relay refused: no such account")
	s.click(".prob a[href*=dead]")
	s.appears("32 dead letters")
	s.appears("to customer 0")
	s.until(`(at => { at.value = "type = 'letter'"; setTimeout(() => at.form.requestSubmit()); return true })(document.querySelector('#filter'))`)
	s.appears("31 dead letters")
	if err := os.Remove(filepath.Join(s.dir, "broken")); err != nil {
		t.Fatal(err)
	}
	s.click(".group button[value=retry]")
	s.appears("31 dead letters sent back to mail")
	s.appears("No dead letters")
	s.do(chromedp.Navigate(s.origin + "/threads/inbox/info"))
	s.until(`document.querySelector('td[data-l=Unread]')?.textContent.trim() === '0'`)
	s.do(chromedp.Navigate(s.origin + "/threads/inbox/dead"))
	s.appears("1 dead letter")
	s.do(chromedp.Navigate(s.origin + "/audit"))
	s.appears("31 dead letters sent back")
}

// TestReading: a list that is being read does not move: new rows wait behind a line that
// says how many they are.
func TestReading(t *testing.T) {
	s := open(t, func(s *stage) { s.thread("push", "--source", "self", "--type", "message", "--content", "first") })
	s.do(chromedp.Navigate(s.origin+"/threads/inbox/events"), chromedp.MouseEvent(input.MouseMoved, 500, 330))
	s.until("document.querySelector('#rows').matches(':hover')")
	s.do(chromedp.Focus("#rows a", chromedp.ByQuery), chromedp.MouseEvent(input.MouseMoved, 501, 330))
	s.thread("push", "--source", "self", "--type", "message", "--content", "second")
	s.appears("1 new – show")
	if strings.Contains(s.text("#rows"), "second") {
		t.Error("the list has moved")
	}
	s.click(".new-bar")
	s.appears("second")
}
