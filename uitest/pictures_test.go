package uitest

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
)

// TestPictures keeps pictures of all pages, at 1440 and 390 px, light and dark, where
// THREAD_SCREENSHOTS says: make pictures.
func TestPictures(t *testing.T) {
	dir := os.Getenv("THREAD_SCREENSHOTS")
	if dir == "" {
		t.Skip("THREAD_SCREENSHOTS is not set")
	}
	s := open(t, shop)
	var run string
	s.do(chromedp.Navigate(s.origin + "/threads/inbox/info"))
	s.appears("failing")
	s.do(chromedp.Navigate(s.origin+"/threads/inbox/runs?status=completed"), chromedp.Evaluate(`document.querySelector('#runs a').getAttribute('href')`, &run))
	pages := map[string]string{"home": "/", "consumers": "/threads/inbox/info", "consumer": "/threads/inbox/consumer?id=refund-check", "events": "/threads/inbox/events",
		"event": "/threads/inbox/events/7", "dead": "/threads/inbox/dead", "runs": "/threads/inbox/runs", "run": run, "sessions": "/threads/inbox/sessions",
		"session": "/threads/inbox/session?id=rounding", "schedules": "/threads/inbox/schedules", "settings": "/settings", "api": "/api", "login": "/login"}
	for _, scheme := range []string{"light", "dark"} {
		s.do(emulation.SetEmulatedMedia().WithFeatures([]*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}))
		for _, width := range []int64{1440, 390} {
			s.do(chromedp.EmulateViewport(width, 900))
			for name, path := range pages {
				var picture []byte
				s.do(chromedp.Navigate(s.origin+path), chromedp.WaitReady("main", chromedp.ByQuery), chromedp.CaptureScreenshot(&picture))
				if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("%s-%d-%s.png", name, width, scheme)), picture, 0o644); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
}

// shop fills the thread with invented data.
func shop(s *stage) {
	for i := range 40 {
		kind := []string{"order.created", "order.paid", "refund", "inventory.sync"}[i%4]
		s.thread("push", "--source", []string{"shop", "shop", "shop", "warehouse"}[i%4], "--type", kind, "--content",
			fmt.Sprintf(`{"order":"o-%d","customer":"c%03d","total":%d.%02d}`, 88200+i, i*37%500, i*13%300, i*7%100))
	}
	for _, c := range []string{"billing", "analytics", "search-index", "invoice-pdf"} {
		s.thread("subscribe", "--consumer", c, "--handler", "true")
		s.thread("seek", "--consumer", c, "--to", "40")
	}
	s.thread("subscribe", "--consumer", "erp-export", "--handler", "echo 'POST https://erp.internal:8443/v2/orders'; echo connect ECONNREFUSED 10.4.0.21:8443 after 3 tries >&2; exit 75", "--filter", "type = 'order.paid'")
	s.thread("subscribe", "--consumer", "nightly-reconcile", "--handler", "true", "--lane", "cron")
	s.thread("pause", "--consumer", "nightly-reconcile")
	s.thread("subscribe", "--consumer", "refund-check", "--handler", "true", "--filter", "type = 'refund'")
	s.thread("consume", "--consumer", "refund-check", "--max-attempts", "1", "--", "sh", "-c",
		`if test $(($$ % 2)) = 0; then echo unknown customer >&2; else echo invalid JSON: unexpected end of input >&2; fi; exit 65`)
	s.thread("schedule", "add", "--name", "tick", "--when", "@hourly", "--source", "cron", "--type", "tick")
	s.thread("push", "--source", "shop", "--type", "later", "--content", "x", "--delay", "1h")
	s.thread("session", "start", "--id", "rounding", "--title", "fix-order-rounding", "--subject", "user:7", "--agent", "coder")
	run := strings.TrimSpace(s.thread("run", "start", "--session", "rounding", "--agent", "coder", "--trigger", "message"))
	s.thread("message", "add", "--session", "rounding", "--run", run, "--role", "user", "--content", "Customers complain that totals are off by one cent.")
	s.thread("run", "step", run, "--type", "model_call", "--name", "plan", "--input", s.file(`{"request":{"model":"large-2"},"runtime":{}}`), "--output", s.file(`{"response":{"usage":{"inputTokens":8412,"outputTokens":196}},"runtime":{}}`))
	s.thread("run", "tool", run, "--name", "shell", "--request", s.file(`{"command":"go test ./internal/order"}`), "--response", s.file(`"--- FAIL: TestTotalRounds"`), "--status", "failed")
	s.thread("message", "add", "--session", "rounding", "--run", run, "--role", "assistant", "--content", "In one place, Total in internal/order/total.go.")
	s.thread("run", "end", run, "--status", "completed")
}

// file returns the path of a file with that text.
func (s *stage) file(text string) string {
	s.Helper()
	path := filepath.Join(s.TempDir(), "file")
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		s.Fatal(err)
	}
	return path
}
