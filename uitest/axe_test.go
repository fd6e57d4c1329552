package uitest

import (
	"archive/tar"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/emulation"
	cdpruntime "github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
)

// axeVersion of axe-core (MPL-2.0), which npm fetches once and keeps in the user's cache,
// and what its script is.
const (
	axeVersion = "4.14.1"
	axeSHA256  = "29348999450cdf2849a8e70b7912fc2da85a849da39c0d0d5394f51d4a9ed95c"
)

// axe returns the script.
func axe(t *testing.T) string {
	t.Helper()
	cache, err := os.UserCacheDir()
	if err != nil {
		cache = t.TempDir()
	}
	cache = filepath.Join(cache, "thread-uitest")
	pack := filepath.Join(cache, "axe-core-"+axeVersion+".tgz")
	if _, err := os.Stat(pack); errors.Is(err, os.ErrNotExist) {
		if _, err := exec.LookPath("npm"); err != nil {
			t.Skip("npm, which fetches axe-core, is not there")
		}
		if err := os.MkdirAll(cache, 0o755); err != nil {
			t.Fatal(err)
		}
		npm := exec.Command("npm", "pack", "--silent", "axe-core@"+axeVersion)
		npm.Dir = cache
		if out, err := npm.CombinedOutput(); err != nil {
			t.Fatalf("npm pack: %v\n%s", err, out)
		}
	}
	f, err := os.Open(pack)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	plain, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	for files := tar.NewReader(plain); ; {
		h, err := files.Next()
		if err != nil {
			t.Fatalf("the script is not in %s: %v", pack, err)
		}
		if h.Name != "package/axe.min.js" {
			continue
		}
		text, err := io.ReadAll(files)
		if err != nil {
			t.Fatal(err)
		}
		if sum := sha256.Sum256(text); hex.EncodeToString(sum[:]) != axeSHA256 {
			t.Fatalf("%s is not the script that is expected: %x; delete it", pack, sum)
		}
		return string(text)
	}
}

// violations asks axe about the page that is open: a line for each.
func (s *stage) violations(script string) (found []string) {
	s.Helper()
	const ask = `axe.run(document, {resultTypes: ['violations']}).then(r => r.violations.map(v => v.impact + ' ' + v.id + ': ' + v.help + ': ' + v.nodes.map(n => n.html + ' ' + n.failureSummary).join(' | ')))`
	s.do(chromedp.Evaluate(script+"\n;0", nil), chromedp.Evaluate(ask, &found, func(p *cdpruntime.EvaluateParams) *cdpruntime.EvaluateParams { return p.WithAwaitPromise(true) }))
	return found
}

// looks checks a page at one width; at 800 px only that it does not scroll sideways.
func (s *stage) looks(script, path string, width int64, scheme string) {
	s.Helper()
	s.do(chromedp.Navigate(s.origin+path), chromedp.WaitReady("body"))
	if width != 800 {
		for _, v := range s.violations(script) {
			s.Errorf("%s at %d px, %s: %s", path, width, scheme, v)
		}
	}
	var wide int64
	s.do(chromedp.Evaluate("document.documentElement.scrollWidth", &wide))
	if wide > width {
		s.Errorf("%s is %d px wide at %d", path, wide, width)
	}
}

// TestAccessible: axe-core has nothing to say about any page, light or dark, wide or on a
// phone, and it does where there is something.
func TestAccessible(t *testing.T) {
	script := axe(t)
	s := open(t, everything)
	recorded := s.recorded("coder")
	pages := append(s.pages(), "/login", "/no/such/page", "/threads/inbox/events?filter=type+%3D+'order'&explain=1", "/threads/inbox/events?filter=type=message")
	for _, scheme := range []string{"light", "dark"} {
		s.do(emulation.SetEmulatedMedia().WithFeatures([]*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}))
		for _, width := range []int64{1440, 800, 390} {
			s.do(chromedp.EmulateViewport(width, 844))
			for _, path := range pages {
				s.looks(script, path, width, scheme)
			}
		}
	}
	s.do(chromedp.Navigate(s.origin + recorded))
	s.until("getComputedStyle(document.querySelector('#steps summary')).display === 'grid'")
	s.do(chromedp.Evaluate(`document.body.append(document.createElement('img'))`, nil))
	if found := strings.Join(s.violations(script), "\n"); !strings.Contains(found, "image-alt") {
		t.Errorf("a picture without a text is not found: %s", found)
	}
}
