package page

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"math"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

// OneTime returns the path of an address that logs a browser in, once and within ten
// minutes. It takes the place of the one before.
func (p *Page) OneTime() string {
	s := p.sessions
	s.mu.Lock()
	defer s.mu.Unlock()
	s.once, s.until = rand.Text()+rand.Text(), time.Now().Add(printedTime)
	return "/open?key=" + s.once
}

// take reports whether key is the key of the one-time address, which then is used.
func (s *sessions) take(key string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	ok := s.once != "" && time.Now().Before(s.until) && subtle.ConstantTimeCompare([]byte(key), []byte(s.once)) == 1
	if ok {
		s.once = ""
	}
	return ok
}

// Known reports whether a request comes from a browser that has logged in,
// and whose token still counts.
func (p *Page) Known(q *http.Request) bool {
	_, ok := p.logged(q)
	return ok
}

// logged reports whether a request comes from that browser, and whether that may change
// something.
func (p *Page) logged(q *http.Request) (changes, ok bool) {
	s := p.sessions.of(q)
	switch {
	case s.id == "":
		return false, false
	case strings.HasPrefix(s.key, printedKey):
		return true, s.key == p.printed()
	}
	return p.opts.Known(s.key)
}

// printedKey begins the key of a browser that logged in by the one-time address.
const printedKey = "printed:"

func (p *Page) printed() string {
	if p.opts.Printed == nil {
		return printedKey
	}
	return printedKey + p.opts.Printed()
}

type changesKey struct{}

// readOnly reports whether who asks may change nothing.
func (p *Page) readOnly(q *http.Request) bool {
	return p.opts.ReadOnly || q.Context().Value(changesKey{}) != true
}

// formToken is what the forms of a page carry: no other site knows it.
func (p *Page) formToken(q *http.Request) string {
	id := p.sessions.of(q).id
	p.sessions.mu.Lock()
	defer p.sessions.mu.Unlock()
	return p.sessions.sign("form of " + id)
}

// Public reports whether a path has nothing of any thread, so that it is for everybody.
func Public(path string) bool {
	return slices.Contains([]string{"/open", "/login", "/ui.css", "/ui.js", "/favicon.ico"}, path)
}

// maxForm bounds the body of a form, most of which is the content of a filter.
const maxForm = 256 << 10

// csp lets a page load its own two files and ask this server; everything else in it
// is inert.
const csp = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"

// ServeHTTP answers a request that is known, or for a Public path. Whether who sends it
// may change something is known already, or said by its session.
func (p *Page) ServeHTTP(rw http.ResponseWriter, q *http.Request, changes bool) {
	if logged, ok := p.logged(q); ok {
		changes = changes || logged
	}
	q = q.WithContext(context.WithValue(q.Context(), changesKey{}, changes))
	h := rw.Header()
	h.Set("Content-Security-Policy", csp)
	h.Set("Referrer-Policy", "same-origin") // with none, a form has no Origin
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	if _, err := url.ParseQuery(q.URL.RawQuery); err != nil { // as where a filter has a %
		p.refuse(rw, &Error{http.StatusBadRequest, "the query cannot be decoded"})
		return
	}
	if q.Method == http.MethodPost {
		q.Body = http.MaxBytesReader(rw, q.Body, maxForm)
		if err := q.ParseForm(); err != nil {
			p.refuse(rw, &Error{http.StatusBadRequest, "the form cannot be read"})
			return
		}
		if !p.sameOrigin(q) {
			p.refuse(rw, &Error{http.StatusForbidden, "a page of another site must not ask that"})
			return
		}
	}
	switch q.URL.Path {
	case "/open", "/login":
		p.enter(rw, q)
	default:
		p.mux.ServeHTTP(rw, q)
	}
}

// sameOrigin reports whether a browser says that one of our own pages sends q.
func (p *Page) sameOrigin(q *http.Request) bool {
	if site := q.Header.Get("Sec-Fetch-Site"); site != "" {
		return site == "same-origin"
	}
	from := q.Header.Get("Origin")
	if p.opts.Origin != "" && from == p.opts.Origin {
		return true
	}
	origin, err := url.Parse(from)
	return err == nil && origin.Host != "" && origin.Host == q.Host
}

// enter logs a browser in: by the one-time address, or by the token in a form.
func (p *Page) enter(rw http.ResponseWriter, q *http.Request) {
	key, pause := "", time.Duration(0)
	if q.URL.Path == "/login" && q.Method == http.MethodPost {
		key, pause = p.opts.LogIn(q, q.PostFormValue("token"))
	}
	switch {
	case q.URL.Path == "/open" && q.Method == http.MethodGet && p.sessions.take(q.FormValue("key")):
		key = p.printed()
	case key != "":
	case q.Method == http.MethodGet && q.URL.Path == "/open":
		p.Ask(rw, "That address was used before, is older than ten minutes, or is not the latest.")
		return
	case pause > 0:
		seconds := strconv.Itoa(int(math.Ceil(pause.Seconds())))
		rw.Header().Set("Retry-After", seconds)
		p.answer(rw, http.StatusTooManyRequests, "login", "Too many wrong tokens. Wait "+seconds+" s.")
		return
	case q.Method == http.MethodPost:
		p.Ask(rw, "That is not the token.")
		return
	default:
		p.Ask(rw, "")
		return
	}
	p.sessions.begin(rw, key, q.TLS != nil || p.opts.Secure != nil && p.opts.Secure(q))
	// No redirection: one that another program began would come without the cookie.
	p.answer(rw, http.StatusOK, "entered", nil)
}

// Ask answers with the form for the token, and what is wrong.
func (p *Page) Ask(rw http.ResponseWriter, why string) {
	rw.Header().Set("Content-Security-Policy", csp)
	p.answer(rw, http.StatusUnauthorized, "login", why)
}

func (p *Page) answer(rw http.ResponseWriter, status int, name string, data any) {
	rw.Header().Set("Content-Type", "text/html; charset=utf-8")
	rw.WriteHeader(status)
	_ = p.execute(rw, name, data) // who asked may be gone
}
