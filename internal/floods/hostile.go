package floods

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"
)

// maxHeaderBytes is what a server takes of the header of a request.
const maxHeaderBytes = 8 << 10

// Hostile sends what a hostile client sends, and what a page of another site makes a browser
// on this host send. The server has no pages. Nothing of it is stored.
func Hostile(t *testing.T, s *Server) {
	before := s.ask(t, "GET", s.Path+"?limit=1000", "", nil).text
	t.Run("requests", s.requests)
	t.Run("sites", s.sites)
	t.Run("paths", s.paths)
	t.Run("bodies", s.bodies)
	if after := s.ask(t, "GET", s.Path+"?limit=1000", "", nil).text; after != before {
		t.Errorf("it is stored:\n%.1000s", after)
	}
	t.Run("lines", s.lines)
}

// answer is the answer to a request.
type answer struct {
	*http.Response
	text string
}

// ask makes a request with the token, unless the header has another one. A body is JSON
// unless the header has another type.
func (s *Server) ask(t *testing.T, method, path, body string, header http.Header) answer {
	t.Helper()
	q, err := http.NewRequest(method, "http://"+s.Address+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	q.Header.Set("Authorization", "Bearer "+s.Token)
	if body != "" {
		q.Header.Set("Content-Type", "application/json")
	}
	for name, values := range header {
		if q.Header[name] = values; name == "Host" {
			q.Host = values[0]
		}
	}
	return do(t, http.DefaultTransport.RoundTrip, q)
}

func do(t *testing.T, trip func(*http.Request) (*http.Response, error), q *http.Request) answer {
	t.Helper()
	r, err := trip(q)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	text, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer{r, string(text)}
}

// send sends bytes on a new connection, and returns all that is answered.
func (s *Server) send(text string) ([]byte, error) {
	conn, err := net.Dial("tcp", s.Address)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	_, err = io.WriteString(conn, text) // an answer may come before its end
	answer, rerr := io.ReadAll(conn)
	if len(answer) > 0 {
		return answer, nil
	}
	return nil, cmp.Or(err, rerr)
}

// requests: what is refused, byte for byte as it comes, and with which status. A refused
// request is the last one of its connection.
func (s *Server) requests(t *testing.T) {
	auth := "Authorization: Bearer " + s.Token + "\r\n"
	end := "Host: localhost\r\n" + auth + "\r\n"
	const events = "GET /events?thread=/nowhere HTTP/1.1\r\n" // 404, once it is understood
	for _, tt := range []struct {
		request string
		status  int
	}{
		{"GET /healthz HTTP/1.1\r\nhOST:  localhost \r\nX:\r\n\r\n", 200},
		{"GET /healthz HTTP/1.0\r\n\r\n", 200},
		{"GET /healthz HTTP/1.1\r\nContent-Length: 0\r\n" + end, 200},
		{"HEAD /healthz HTTP/1.1\r\n" + end, 200},
		{"GET / HTTP/1.1\r\n" + end, 404},
		{"GET /healthz/ HTTP/1.1\r\n" + end, 404},
		{events + end, 404},
		{"HEAD /events HTTP/1.1\r\n" + end, 200},
		{"GET /events?a=%zz HTTP/1.1\r\n" + end, 400},
		{"GET /events?a;b HTTP/1.1\r\n" + end, 400},
		{"GET /healthz HTTP/1.1\r\n\r\n", 400},                        // no Host
		{"GET /healthz HTTP/1.1\r\nHost: localhost\r\n" + end, 400},   // two
		{"GET /healthz HTTP/1.1\r\nHost: a b\r\n\r\n", 400},           //
		{"GET / HTTP/1.1\r\n" + auth + end, 401},                      // two tokens
		{"GET  /healthz HTTP/1.1\r\n" + end, 400},                     // two spaces
		{"GET /healthz\r\n" + end, 400},                               // HTTP/0.9
		{"GET /healthz HTTP/3.0\r\n" + end, 505},                      //
		{"G@T /healthz HTTP/1.1\r\n" + end, 400},                      //
		{"GET /%zz HTTP/1.1\r\n" + end, 400},                          //
		{"GET /\x00 HTTP/1.1\r\n" + end, 400},                         //
		{"GET /healthz HTTP/1.1\r\nA : b\r\n" + end, 400},             // space before the colon
		{"GET /healthz HTTP/1.1\r\nA\r\n" + end, 400},                 //
		{"GET /healthz HTTP/1.1\r\n: b\r\n" + end, 400},               //
		{"GET /healthz HTTP/1.1\r\nA: b\x00\r\n" + end, 400},          //
		{"GET /healthz HTTP/1.1\r\nContent-Length: 3\r\n" + end, 400}, // no process waits for the body
		{"GET /healthz HTTP/1.1\r\nTransfer-Encoding: chunked\r\n" + end, 400},
		{"POST /healthz HTTP/1.1\r\nContent-Length: 1000000\r\n" + end, 405},
		{"POST /nowhere HTTP/1.1\r\n" + end, 405},
		{"PUT /metrics HTTP/1.1\r\n" + end, 405},
		{"OPTIONS * HTTP/1.1\r\n" + end, 400},
		{"CONNECT localhost:80 HTTP/1.1\r\n" + end, 405},
		{"get /healthz HTTP/1.1\r\n" + end, 405}, // methods have a case
		{"GET /" + strings.Repeat("x", 2*maxHeaderBytes) + " HTTP/1.1\r\n" + end, 431},
		{"GET / HTTP/1.1\r\n" + strings.Repeat("A: b\r\n", maxHeaderBytes/3) + end, 431},
		{strings.Repeat("x", 2*maxHeaderBytes), 431},
	} {
		conn, err := net.Dial("tcp", s.Address)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(conn, tt.request); err != nil {
			t.Fatal(err)
		}
		in := bufio.NewReader(conn)
		r, err := http.ReadResponse(in, &http.Request{Method: strings.Fields(tt.request)[0]})
		if err != nil || r.StatusCode != tt.status {
			t.Errorf("%.60q: %+v %v, want %d", tt.request, r, err, tt.status)
		} else if r.Close {
			if _, err := io.Copy(io.Discard, in); err != nil {
				t.Errorf("%.60q: no end comes: %v", tt.request, err)
			}
		} else if r.StatusCode != 200 && r.StatusCode != 405 {
			t.Errorf("%.60q: the connection stays open", tt.request)
		}
		conn.Close()
	}
}

// sites: a page of another site, in a browser on this host, learns and does nothing, also
// when its name is made to lead here.
func (s *Server) sites(t *testing.T) {
	_, port, _ := net.SplitHostPort(s.Address)
	const draft = `{"source":"s","type":"t","content":"x"}`
	for _, tt := range []struct {
		host, method, path string
		header             []string
		want               int
	}{
		{"evil.example", "GET", "/healthz", []string{"Authorization", ""}, 421},
		{"evil.example:" + port, "GET", "/metrics", []string{"Authorization", ""}, 421},
		{"localhost.evil.example", "GET", "/healthz", []string{"Authorization", ""}, 421},
		{"127.0.0.1.evil.example", "GET", "/healthz", []string{"Authorization", ""}, 421},
		{"localhost:" + port, "GET", "/healthz", []string{"Authorization", ""}, 200},
		{"LOCALHOST", "GET", "/healthz", []string{"Authorization", ""}, 200},
		{"192.0.2.7", "GET", "/healthz", []string{"Authorization", ""}, 200},
		{"[::1]:" + port, "GET", "/healthz", []string{"Authorization", ""}, 200},
		{"[fe80::1]", "GET", "/healthz", []string{"Authorization", ""}, 200},
		{"behind.proxy.example", "GET", "/metrics", nil, 200}, // no browser knows the token
		{"localhost", "POST", "/healthz", []string{"Sec-Fetch-Site", "cross-site"}, 403},
		{"localhost", "POST", "/events", []string{"Sec-Fetch-Site", "same-site"}, 403},
		{"localhost", "POST", "/healthz", []string{"Origin", "https://evil.example"}, 403},
		{"localhost", "POST", "/healthz", []string{"Origin", "null"}, 403},
		{"localhost", "POST", "/healthz", []string{"Sec-Fetch-Site", "same-origin"}, 405},
		{"localhost", "POST", "/healthz", nil, 405},
		{"localhost", "POST", s.Path, []string{"Sec-Fetch-Site", "cross-site"}, 403},
		{"localhost", "POST", s.Path, []string{"Origin", "https://evil.example"}, 403},
		{"localhost", "POST", s.Path, []string{"Content-Type", "text/plain"}, 415}, // what a form can send
		{"localhost", "POST", s.Path, []string{"Authorization", ""}, 401},
		{"evil.example", "POST", s.Path, []string{"Authorization", ""}, 421},
	} {
		header, body := http.Header{"Host": {tt.host}}, ""
		for i := 0; i+1 < len(tt.header); i += 2 {
			header.Set(tt.header[i], tt.header[i+1])
		}
		if tt.path == s.Path {
			body = draft
		}
		if a := s.ask(t, tt.method, tt.path, body, header); a.StatusCode != tt.want || a.Header.Get("Cache-Control") != "no-store" || a.Header.Get("Access-Control-Allow-Origin") != "" || a.text == "" {
			t.Errorf("%s %s at %s with %q: %d %q, want %d", tt.method, tt.path, tt.host, tt.header, a.StatusCode, a.text, tt.want)
		}
	}
}

// paths: no path leads out of what is served, and none puts a header into the answer.
func (s *Server) paths(t *testing.T) {
	thread := strings.TrimSuffix(s.Path, "events")
	for _, path := range []string{
		"/threads/..%2f..%2f..%2fetc%2fpasswd/events", "/threads/%2fetc/events", "/threads/%2e%2e/events", "/threads/%2e%2e%2f/consumers", "/threads/a%00b/events",
		"/threads/" + url.PathEscape("postgres://127.0.0.1/other?thread=x") + "/events", "/../../../etc/passwd", "/threads/../../etc/passwd", "//evil.example/%2e%2e",
		"/assets/..%2f..%2f..%2fetc%2fpasswd", "/%2e%2e/%2e%2e/etc/passwd", "/threads/a%0d%0aX-Injected:%201/events", "/events?thread=%0d%0aX-Injected:%201", "/events?thread=/etc",
		thread + "runs/..%2f..%2f..%2fetc%2fpasswd", thread + "sessions/%2e%2e%2f%2e%2e/messages",
	} {
		a := s.ask(t, "GET", path, "", nil)
		to, err := a.Location()
		if a.StatusCode < 300 || a.StatusCode >= 500 || a.StatusCode < 400 && (err != nil || to.Host != s.Address) || a.Header.Get("X-Injected") != "" || strings.Contains(a.text, "root:") {
			t.Errorf("GET %s: %d, to %v: %.200s", path, a.StatusCode, to, a.text)
		}
	}
}

// bodies: one that does not come, or comes without an end, or is too long, is not waited for.
func (s *Server) bodies(t *testing.T) {
	head := func(path, typ string) string {
		return "POST " + path + " HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer " + s.Token + "\r\nContent-Type: " + typ + "\r\n"
	}
	const line, one = "application/x-ndjson", "application/json"
	next := strings.TrimSuffix(s.Path, "events") + "consumers/c/next"
	s.others(t, Sizes(), func() {
		var all sync.WaitGroup
		for _, tt := range []struct{ request, status string }{
			{head(s.Path, line) + "Content-Length: 1000\r\n\r\n{\"source\":\"s\",", "408"},
			{head(s.Path, line) + "Transfer-Encoding: chunked\r\n\r\n5\r\n{\"a\":", "408"},
			{head(s.Path, line) + "Transfer-Encoding: chunked\r\n\r\nno\r\n", "400"},
			{head(s.Path, line) + "Content-Length: 99999999999\r\n\r\n", "408"},
			{head(s.Path, one) + fmt.Sprintf("Content-Length: %d\r\n\r\n%s", 20<<20, strings.Repeat(" ", 16<<20+1)), "413"},
			{head(next, one) + fmt.Sprintf("Content-Length: %d\r\n\r\n%s", 20<<20, strings.Repeat(" ", 64<<10+1)), "413"},
			{head(next, one) + fmt.Sprintf("Idempotency-Key: k\r\nContent-Length: %d\r\n\r\n%s", 20<<20, strings.Repeat(" ", 64<<10+1)), "413"},
			{strings.Replace(head(s.Path, line), s.Token, "wrong", 1) + "Content-Length: 1000\r\n\r\n", "401"}, // nothing is read of it
		} {
			all.Go(func() {
				answer, err := s.send(tt.request)
				if !bytes.HasPrefix(answer, []byte("HTTP/1.1 "+tt.status+" ")) {
					t.Errorf("%.300q: %.200q, want %s (%v)", tt.request, answer, tt.status, err)
				}
			})
		}
		all.Wait()
	})
}

// lines: what is in an event begins no line of a stream, and so no other event.
func (s *Server) lines(t *testing.T) {
	content := "a\r\n\r\nid: 999\ndata: {}\n\nevent: problem\r" + string('\u2028')
	draft, err := json.Marshal(map[string]string{"source": content, "type": "t", "content": content})
	if err != nil {
		t.Fatal(err)
	}
	var stored struct{ IDs []int64 }
	a := s.ask(t, "POST", s.Path, string(draft), nil)
	if err := json.Unmarshal([]byte(a.text), &stored); err != nil || len(stored.IDs) != 1 {
		t.Fatalf("%d %s", a.StatusCode, a.text)
	}
	f, err := s.follow(stored.IDs[0] - 1)
	if err != nil {
		t.Fatal(err)
	}
	defer f.conn.Close()
	f.last = stored.IDs[0] - 1
	if err := f.until(stored.IDs[0]); err != nil {
		t.Fatal(err)
	}
	var got struct{ Source, Content string }
	text, err := f.in.ReadString('\n')
	if rest, found := strings.CutPrefix(text, "data: "); err != nil || !found || json.Unmarshal([]byte(rest), &got) != nil || got.Content != content || got.Source != content {
		t.Errorf("%q %v", text, err)
	}
	if text, err := f.in.ReadString('\n'); err != nil || strings.TrimSpace(text) != "" {
		t.Errorf("after the event: %q %v", text, err)
	}
}
