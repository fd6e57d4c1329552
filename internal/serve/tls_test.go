//go:build linux

package serve

import (
	"crypto/tls"
	"crypto/x509"
	"net/http"
	"os"
	"strings"
	"testing"

	"thread/internal/testcert"
)

// certify writes a certificate for these names, signed by itself.
func (b *bench) certify(names ...string) *x509.Certificate {
	b.Helper()
	return testcert.Write(b, b.path("cert.pem"), b.path("key.pem"), names...)
}

// TestTLS: the certificate that is there, also after it was exchanged; a name of it may be
// asked for without the token, another one may not.
func TestTLS(t *testing.T) {
	b := newBench(t)
	first := b.certify("thread.example")
	cert, err := LoadCertificate(b.path("cert.pem"), b.path("key.pem"))
	if err != nil {
		t.Fatal(err)
	}
	opened := make(chan string, 1)
	b.listen(Options{TLS: cert.Config(), UI: true, Opened: func(address string) { opened <- address }})
	if address := <-opened; !strings.HasPrefix(address, "https://127.0.0.1:") {
		t.Errorf("opened by %s", address)
	}
	get := func(known *x509.Certificate, host, path, token string, h2 bool) (*http.Response, error) {
		roots := x509.NewCertPool()
		roots.AddCert(known)
		client := http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, ServerName: "thread.example"}, ForceAttemptHTTP2: h2, DisableKeepAlives: true}}
		q, _ := http.NewRequest("GET", "https"+strings.TrimPrefix(b.url(path), "http"), nil)
		q.Host = host
		q.Header.Set("Authorization", "Bearer "+token)
		r, err := client.Do(q)
		if err == nil {
			r.Body.Close()
		}
		return r, err
	}
	for _, tt := range []struct {
		host, path, token string
		want              int
	}{
		{"thread.example", "/metrics", testToken, 200}, {"any.example", "/metrics", testToken, 200}, {"thread.example", eventsAt, testToken, 200},
		{"thread.example:9464", "/", "", 401}, {"any.example", "/", "", 421}, {"any.example", eventsAt, "", 421}, {"thread.example", "/ui.css", "", 200},
	} {
		r, err := get(first, tt.host, tt.path, tt.token, true)
		if err != nil || r.StatusCode != tt.want || r.ProtoMajor != 1 || r.TLS.Version < tls.VersionTLS12 {
			t.Errorf("%+v: %+v %v", tt, r, err)
		}
	}
	if r, err := http.Get(b.url("/healthz")); err == nil && r.StatusCode != 400 {
		t.Errorf("without TLS: %d", r.StatusCode)
	}
	second := b.certify("thread.example")
	if err := cert.Reload(); err != nil {
		t.Fatal(err)
	}
	if _, err := get(first, "thread.example", "/healthz", "", false); err == nil {
		t.Error("the first certificate is still there")
	}
	if err := os.WriteFile(b.path("cert.pem"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := cert.Reload(); err == nil {
		t.Error("nothing is a certificate")
	}
	if r, err := get(second, "thread.example", "/healthz", "", false); err != nil || r.StatusCode != 200 {
		t.Errorf("%+v %v", r, err)
	}
}
