package serve

import (
	"bufio"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"strings"
	"testing"
)

// TestReadHTTP: what is refused, and with which status.
func TestReadHTTP(t *testing.T) {
	const host = "Host: localhost\r\n\r\n"
	for _, tt := range []struct {
		request string
		status  int // 0: taken
	}{
		{"GET / HTTP/1.1\r\n" + host, 0},
		{"GET /events?after=1&filter=a%20%3D%20b HTTP/1.1\r\nhOST:  x \r\nLast-Event-ID: 7\r\nX:\r\n\r\n", 0},
		{"GET / HTTP/1.0\r\n\r\n", 0},
		{"GET / HTTP/1.1\r\nContent-Length: 0\r\n" + host, 0},
		{"GET / HTTP/1.1\r\n\r\n", 400},               // no Host
		{"GET / HTTP/1.1\r\nHost: a\r\n" + host, 400}, // two
		{"GET / HTTP/1.1\r\nAuthorization: a\r\nAuthorization: b\r\n" + host, 400},
		{"GET / HTTP/1.1\n" + host, 400},                                 // no CR
		{"GET / HTTP/1.1\r\nA: b\n" + host, 400},                         //
		{"GET  / HTTP/1.1\r\n" + host, 400},                              // two spaces
		{"GET / HTTP/1.1 \r\n" + host, 400},                              //
		{"GET /\r\n" + host, 400},                                        // HTTP/0.9
		{"GET / HTTP/2.0\r\n" + host, 400},                               //
		{"G T / HTTP/1.1\r\n" + host, 400},                               //
		{"G@T / HTTP/1.1\r\n" + host, 400},                               //
		{"GET http://x/ HTTP/1.1\r\n" + host, 400},                       // for proxies
		{"GET * HTTP/1.1\r\n" + host, 400},                               //
		{"GET /%zz HTTP/1.1\r\n" + host, 400},                            //
		{"GET /?a=%zz HTTP/1.1\r\n" + host, 400},                         //
		{"GET /?a;b HTTP/1.1\r\n" + host, 400},                           //
		{"GET /\x00 HTTP/1.1\r\n" + host, 400},                           //
		{"GET /ä HTTP/1.1\r\n" + host, 400},                              //
		{"GET / HTTP/1.1\r\nA : b\r\n" + host, 400},                      // space before the colon
		{"GET / HTTP/1.1\r\nA: b\r\n c\r\n" + host, 400},                 // folded
		{"GET / HTTP/1.1\r\nA\r\n" + host, 400},                          //
		{"GET / HTTP/1.1\r\n: b\r\n" + host, 400},                        //
		{"GET / HTTP/1.1\r\nA: b\x00\r\n" + host, 400},                   //
		{"GET / HTTP/1.1\r\nContent-Length: 3\r\n" + host + "abc", 400},  //
		{"GET / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n" + host, 400}, //
		{"POST / HTTP/1.1\r\n" + host, 405},                              //
		{"HEAD / HTTP/1.1\r\n" + host, 405},                              //
		{"get / HTTP/1.1\r\n" + host, 405},                               // methods have a case
		{"GET /" + strings.Repeat("x", maxHeaderBytes) + " HTTP/1.1\r\n" + host, 431},
		{"GET / HTTP/1.1\r\n" + strings.Repeat("A: b\r\n", maxHeaderBytes/6) + host, 431},
		{strings.Repeat("x", 2*maxHeaderBytes), 431},
	} {
		_, err := readHTTP(strings.NewReader(tt.request))
		var refused *httpError
		status := 0
		if errors.As(err, &refused) {
			status = refused.status
		} else if err != nil {
			status = -1
		}
		if status != tt.status {
			t.Errorf("%.60q: status %d (%v), want %d", tt.request, status, err, tt.status)
		}
	}
	for _, cut := range []string{"", "GET", "GET / HTTP/1.1\r\n", "GET / HTTP/1.1\r\nHost: x"} {
		var refused *httpError
		if _, err := readHTTP(strings.NewReader(cut)); err == nil || errors.As(err, &refused) {
			t.Errorf("%q: %v, want the end of the input", cut, err)
		}
	}
}

// FuzzReadHTTP: what is taken, net/http takes too, and with the same meaning.
func FuzzReadHTTP(f *testing.F) {
	f.Add("GET /events?after=1&filter=a%20%3D%20b HTTP/1.1\r\nHost: x\r\nLast-Event-ID: 7\r\nAuthorization: Bearer t\r\n\r\n")
	f.Add("GET / HTTP/1.0\r\n\r\nrest")
	f.Add("GET //x?%41=+ HTTP/1.1\r\nhost:\ta\r\ncontent-length: 0\r\n\r\n")
	f.Add("POST / HTTP/1.1\r\nHost: x\r\n\r\n")
	f.Fuzz(func(t *testing.T, text string) {
		got, err := readHTTP(strings.NewReader(text))
		if err != nil {
			return
		}
		want, err := http.ReadRequest(bufio.NewReader(strings.NewReader(text)))
		if err != nil {
			t.Fatalf("%q is taken, but %v", text, err)
		}
		theirs := httpRequest{path: want.URL.Path, query: want.URL.Query(),
			auth: want.Header.Get("Authorization"), lastEventID: want.Header.Get("Last-Event-ID")}
		if want.Method != "GET" || want.ContentLength != 0 || !reflect.DeepEqual(got, theirs) {
			t.Fatalf("%q: got %s, want %s %s", text, fmt.Sprintf("%+v", got), want.Method, fmt.Sprintf("%+v", theirs))
		}
	})
}
