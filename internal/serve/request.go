package serve

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"net/url"
	"strings"
)

// maxHeaderBytes bounds a request, from its first byte to the empty line.
const maxHeaderBytes = 8 << 10

// httpRequest is what is kept of a GET request.
type httpRequest struct {
	path        string // decoded
	query       url.Values
	auth        string // of Authorization, "" when there is none
	lastEventID string // of Last-Event-ID, "" too
}

// httpError is a request that is refused: the status, and a reason.
type httpError struct {
	status int
	reason string
}

func (e *httpError) Error() string { return e.reason }

func badRequest(reason string) error { return &httpError{400, reason} }

// readHTTP reads one request of HTTP/1.0 or 1.1. What is not in RFC 9112 is
// refused, and so is much that is in it: methods other than GET, bodies, targets
// that are not a path, folded lines, and repeated fields that count here.
//
// It returns an *httpError for a request to answer with a refusal, and the
// reader's error when there is nobody to answer.
func readHTTP(from io.Reader) (httpRequest, error) {
	var q httpRequest
	limited := &io.LimitedReader{R: from, N: maxHeaderBytes}
	in := bufio.NewReaderSize(limited, maxHeaderBytes)
	line, err := httpLine(in, limited)
	if err != nil {
		return q, err
	}
	method, rest, _ := strings.Cut(line, " ")
	target, version, ok := strings.Cut(rest, " ")
	switch {
	case !ok || !isToken(method) || version != "HTTP/1.1" && version != "HTTP/1.0":
		return q, badRequest("not a request line of HTTP/1.1")
	case method != "GET":
		return q, &httpError{405, "only GET is answered"}
	case !strings.HasPrefix(target, "/") || strings.ContainsFunc(target, func(r rune) bool { return r <= ' ' || r > '~' }):
		return q, badRequest("the target is not a path")
	}
	u, err := url.ParseRequestURI(target)
	if err == nil {
		q.query, err = url.ParseQuery(u.RawQuery)
	}
	if err != nil {
		return q, badRequest("the target cannot be decoded")
	}
	q.path = u.Path
	return q, q.fields(in, limited, version)
}

// fields reads the header fields.
func (q *httpRequest) fields(in *bufio.Reader, limited *io.LimitedReader, version string) error {
	seen := map[string]bool{}
	for {
		line, err := httpLine(in, limited)
		if err != nil {
			return err
		}
		if line == "" {
			break
		}
		name, value, ok := strings.Cut(line, ":")
		if !ok || !isToken(name) { // folded lines and spaces before the colon, too
			return badRequest("not a header field")
		}
		name, value = strings.ToLower(name), strings.Trim(value, " \t")
		var to *string
		switch name {
		case "host":
			to = new(string) // it must be there, once
		case "authorization":
			to = &q.auth
		case "last-event-id":
			to = &q.lastEventID
		case "transfer-encoding":
			return badRequest("a body is not taken")
		case "content-length":
			if value != "0" {
				return badRequest("a body is not taken")
			}
			continue
		default:
			continue
		}
		if seen[name] {
			return badRequest("the field " + name + " comes twice")
		}
		seen[name], *to = true, value
	}
	if version == "HTTP/1.1" && !seen["host"] {
		return badRequest("the field Host is missing")
	}
	return nil
}

// httpLine reads a line, which ends in CR LF and holds no other control
// character than tabs.
func httpLine(in *bufio.Reader, limited *io.LimitedReader) (string, error) {
	line, err := in.ReadSlice('\n')
	switch {
	case err != nil && limited.N == 0:
		return "", &httpError{431, "the request is too long"}
	case errors.Is(err, io.EOF) && len(line) > 0:
		return "", io.ErrUnexpectedEOF
	case err != nil:
		return "", err
	}
	line, ok := bytes.CutSuffix(line, []byte("\r\n"))
	if !ok || bytes.ContainsFunc(line, func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f }) {
		return "", badRequest("not a line of HTTP/1.1")
	}
	return string(line), nil
}

// isToken reports whether s is a token (RFC 9110, section 5.6.2).
func isToken(s string) bool {
	for i := range len(s) {
		c := s[i]
		alnum := c >= '0' && c <= '9' || c >= 'A' && c <= 'Z' || c >= 'a' && c <= 'z'
		if !alnum && strings.IndexByte("!#$%&'*+-.^_`|~", c) < 0 {
			return false
		}
	}
	return s != ""
}
