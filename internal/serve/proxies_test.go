//go:build linux

package serve

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/cookiejar"
	"net/netip"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"thread/engine"
)

// guided returns the block of the guide in that language.
func guided(t *testing.T, language string) string {
	t.Helper()
	text, err := os.ReadFile("../../docs/guides/page-behind-a-proxy.md")
	if err != nil {
		t.Fatal(err)
	}
	m := regexp.MustCompile("(?s)```" + language + "\n(.*?)```").FindSubmatch(text)
	if m == nil {
		t.Fatalf("the guide has no block of %s", language)
	}
	return string(m[1])
}

// proxy runs the guide's configuration of a program on a free port of this host, to a
// server at to, and returns its address.
func (b *bench) proxy(program, to string) (at string) {
	b.Helper()
	path, err := exec.LookPath(program)
	if err != nil {
		path, err = exec.LookPath("/usr/sbin/" + program)
	}
	if err != nil && os.Getenv("THREAD_PROXIES") == "" {
		b.Skip(program + " is not installed")
	}
	if err != nil {
		b.Fatal(err)
	}
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	at = free.Addr().String()
	_ = free.Close()
	_, port, _ := net.SplitHostPort(at)
	b.certify("example.org")
	cert, key, dir := b.path("cert.pem"), b.path("key.pem"), b.path("proxy")
	if err := os.Mkdir(dir, 0o700); err != nil {
		b.Fatal(err)
	}
	text := strings.ReplaceAll(guided(b.TB.(*testing.T), program), "127.0.0.1:9464", to)
	var args []string
	switch program {
	case "nginx":
		text = strings.NewReplacer("listen 443", "listen "+at, "/etc/ssl/example.org.pem", cert, "/etc/ssl/example.org.key", key).Replace(text)
		text = "daemon off; pid " + dir + "/pid; error_log stderr; events {} http { access_log off; client_body_temp_path " + dir + "/body; proxy_temp_path " + dir +
			"/temp; fastcgi_temp_path " + dir + "/f; uwsgi_temp_path " + dir + "/u; scgi_temp_path " + dir + "/s;\n" + text + "}\n"
		args = []string{"-p", dir, "-e", "stderr", "-c", filepath.Join(dir, "config")}
	case "caddy":
		text = "{\n admin off\n auto_https disable_redirects\n}\n" + strings.Replace(text, "example.org {", "https://example.org:"+port+" {\n bind 127.0.0.1\n tls "+cert+" "+key, 1)
		args = []string{"run", "--adapter", "caddyfile", "--config", filepath.Join(dir, "config")}
	}
	if err := os.WriteFile(filepath.Join(dir, "config"), []byte(text), 0o600); err != nil {
		b.Fatal(err)
	}
	cmd := exec.Command(path, args...)
	cmd.Env = append(os.Environ(), "HOME="+dir, "XDG_DATA_HOME="+dir, "XDG_CONFIG_HOME="+dir)
	cmd.Env = slicesWithout(cmd.Env, "D=")
	var out strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if program == "nginx" {
			_ = cmd.Process.Signal(syscall.SIGTERM) // it ends its workers
		} else {
			_ = cmd.Process.Kill() // it would wait for connections
		}
		_ = cmd.Wait()
		if b.Failed() {
			b.Log(out.String())
		}
	})
	b.until("listening", func() bool {
		c, err := net.Dial("tcp", at)
		if err == nil {
			_ = c.Close()
		}
		return err == nil
	})
	return at
}

// slicesWithout returns an environment without a variable.
func slicesWithout(env []string, variable string) (out []string) {
	for _, one := range env {
		if !strings.HasPrefix(one, variable) {
			out = append(out, one)
		}
	}
	return out
}

// TestProxies: the pages work below a path through the configurations of the guide: log
// in, links, a form of a browser without Sec-Fetch-Site, live events, and the API.
func TestProxies(t *testing.T) {
	for _, program := range []string{"nginx", "caddy"} {
		t.Run(program, func(t *testing.T) {
			b := newBench(t)
			b.subscribe(engine.Subscription{Consumer: "w", Pull: true})
			external, err := ParseExternal("https://example.org/thread/")
			if err != nil {
				t.Fatal(err)
			}
			opened := make(chan string, 1)
			b.listen(Options{UI: true, External: external, Base: external.Path, Proxies: []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")},
				Opened: func(address string) { opened <- address }})
			at := b.proxy(program, b.s.web.listener.Addr().String())
			jar, _ := cookiejar.New(nil) // never fails
			dial := func(ctx context.Context, network, _ string) (net.Conn, error) {
				return new(net.Dialer).DialContext(ctx, network, at)
			}
			client := http.Client{Jar: jar, Transport: &http.Transport{DialContext: dial, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}} //nolint:gosec // of this test
			t.Cleanup(client.CloseIdleConnections)
			ask := func(method, address, body string, header ...string) (*http.Response, string) {
				t.Helper()
				q, err := http.NewRequest(method, address, strings.NewReader(body))
				if err != nil {
					t.Fatal(err)
				}
				for i := 0; i < len(header); i += 2 {
					q.Header.Set(header[i], header[i+1])
				}
				r, err := client.Do(q)
				if err != nil {
					t.Fatal(err)
				}
				defer r.Body.Close()
				text, err := io.ReadAll(r.Body)
				if err != nil {
					t.Fatal(err)
				}
				return r, string(text)
			}
			const root = "https://example.org/thread"
			address := <-opened
			if !strings.HasPrefix(address, root+"/open?key=") {
				t.Fatalf("printed: %s", address)
			}
			r, text := ask("GET", address, "")
			if r.StatusCode != 200 || !strings.Contains(text, `content="0;url=/thread/"`) || r.Header.Get("Strict-Transport-Security") == "" {
				t.Fatalf("log in: %d %v %s", r.StatusCode, r.Header, text)
			}
			if c := r.Cookies(); len(c) != 1 || !c[0].Secure {
				t.Errorf("cookies %v", c)
			}
			r, text = ask("GET", root+"/threads/thread", "") // redirected
			if r.StatusCode != 200 || r.Request.URL.Path != "/thread/threads/thread/info" {
				t.Errorf("redirected to %s: %d", r.Request.URL, r.StatusCode)
			}
			for _, m := range regexp.MustCompile(`(?:href|src|action|data-worker)="(/[^"]*)"`).FindAllStringSubmatch(text, -1) {
				if !strings.HasPrefix(m[1], "/thread/") {
					t.Errorf("an address is not below the path: %s", m[0])
				}
			}
			script := regexp.MustCompile(`src="(/thread/ui.js[^"]*)"`).FindStringSubmatch(text)
			if script == nil {
				t.Fatal(text)
			}
			if r, _ := ask("GET", "https://example.org"+script[1], ""); r.StatusCode != 200 {
				t.Errorf("%s: %d", script[1], r.StatusCode)
			}
			form := url.Values{"form": {formTokens.FindStringSubmatch(text)[1]}, "do": {"pause"}, "consumer": {"w"}, "back": {"/threads/thread/info"}}.Encode()
			const typ = "application/x-www-form-urlencoded"
			if r, _ := ask("POST", root+"/threads/thread/act", form, "Content-Type", typ, "Origin", "https://example.net"); r.StatusCode != 403 {
				t.Errorf("a form of another site: %d", r.StatusCode)
			}
			r, text = ask("POST", root+"/threads/thread/act", form, "Content-Type", typ, "Origin", "https://example.org")
			if r.StatusCode != 200 || r.Request.URL.Path != "/thread/threads/thread/info" || !strings.Contains(text, "paused") {
				t.Errorf("a form: %s %d %s", r.Request.URL, r.StatusCode, text)
			}
			live, err := client.Get(root + "/live")
			if err != nil {
				t.Fatal(err)
			}
			if line, err := bufio.NewReader(live.Body).ReadString('\n'); err != nil || !strings.HasPrefix(line, "data: ") {
				t.Errorf("live: %q %v", line, err)
			}
			_ = live.Body.Close()
			r, text = ask("POST", root+eventsAt, `{"source":"s","type":"t","content":"x"}`, "Content-Type", oneType, "Authorization", "Bearer "+testToken)
			if r.StatusCode != 200 || !strings.Contains(text, fmt.Sprintf(`"ids":[%d]`, 1)) {
				t.Errorf("push: %d %s", r.StatusCode, text)
			}
		})
	}
}

// TestBase: what a path or an address of pages may be.
func TestBase(t *testing.T) {
	for text, want := range map[string]string{"": "", "/": "", "/a": "/a", "/a/b/": "/a/b", "a": "!", "/a//b": "!", "/a/../b": "!", "/threads": "!", "/threads/x": "!", "/a\"b": "!", "//a": "!"} {
		got, err := ParseBase(text)
		if err != nil {
			got = "!"
		}
		if got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
	for _, text := range []string{"", "/x", "ftp://h", "https://", "https://u@h/", "https://h/?a=b", "https://h/#a", "https://h/%2F", "https://h/threads"} {
		if u, err := ParseExternal(text); err == nil {
			t.Errorf("%q is %v", text, u)
		}
	}
}
