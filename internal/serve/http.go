package serve

import (
	"bytes"
	"context"
	"errors"
	"log"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"time"

	"thread/internal/address"
	"thread/internal/api"
)

// serve answers until close.
func (w *web) serve() {
	if w.server.TLSConfig != nil {
		_ = w.server.ServeTLS(w.listener, "", "")
		return
	}
	_ = w.server.Serve(w.listener)
}

// close lets the last answers go out and ends the rest.
func (w *web) close() {
	ctx, cancel := context.WithTimeout(context.Background(), shutdownTime)
	defer cancel()
	if err := w.server.Shutdown(ctx); err != nil {
		_ = w.server.Close()
	}
	_ = w.listener.Close() // serve may not have begun
}

// headers sets the headers of every answer.
func (w *web) headers(rw http.ResponseWriter, q *http.Request) {
	h := rw.Header()
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Permissions-Policy", "camera=(), geolocation=(), microphone=()")
	if q.TLS != nil || w.encrypted(q) {
		h.Set("Strict-Transport-Security", "max-age=31536000")
	}
	if c := connOf(q.Context()); c != nil && c.crowded() {
		h.Set("Connection", "close")
	}
}

// overFor reports whether a request comes by one connection too many, from an address for
// whom no place is reserved.
func (w *web) overFor(q *http.Request, from *client) bool {
	c := connOf(q.Context())
	return c != nil && c.over && from == nil && q.URL.Path != "/healthz" && (w.page == nil || !w.page.Known(q))
}

// refusal returns why a request is refused, nil if it is not.
func (w *web) refusal(q *http.Request, from *client, need api.Rights, pause time.Duration, crowded bool) *httpError {
	health := q.URL.Path == "/healthz" // which says nothing of any thread
	switch {
	case crowded:
		return &httpError{http.StatusServiceUnavailable, "too many connections"}
	case (from == nil || w.clients.open() && !health) && !w.ownHost(q): // also on a unix socket: it may be forwarded
		return &httpError{http.StatusMisdirectedRequest, "without the token, ask by an IP address or as localhost"}
	case pause > 0 && need != api.None && !health:
		return &httpError{http.StatusTooManyRequests, "too many wrong tokens: wait"}
	case from == nil && need != api.None && !health:
		return &httpError{http.StatusUnauthorized, "the token is missing, wrong or over"}
	case w.s.opts.ReadOnly && !api.Read.Include(need):
		return &httpError{http.StatusForbidden, "this server is read-only"}
	case from != nil && !health && !from.rights.Include(need):
		return &httpError{http.StatusForbidden, "the token has the right " + from.rights.String() + ", and this needs " + need.String()}
	case from != nil && from.Scoped() && !health && !w.inScope(q, from):
		return &httpError{http.StatusForbidden, "the token is not for that thread or consumer"}
	case q.ContentLength != 0 && (q.Method == http.MethodGet || q.Method == http.MethodHead):
		return &httpError{http.StatusBadRequest, "a body is not taken"}
	}
	return nil
}

// inScope reports whether a request is about a thread and a consumer that the client is
// for. What is about all threads is for none that is limited to some.
func (w *web) inScope(q *http.Request, from *client) bool {
	// Split as the paths are matched: %2F is a part of a name.
	segments := strings.Split(strings.TrimPrefix(q.URL.EscapedPath(), "/"), "/")
	for i := range segments {
		segments[i], _ = url.PathUnescape(segments[i]) // the server has parsed it
	}
	if _, program := w.needs(q); !program || segments[0] != "threads" || len(segments) < 3 {
		return q.URL.Path == api.DescriptionPath
	}
	consumer := ""
	switch {
	case segments[2] == "consumers" && len(segments) > 3:
		consumer = segments[3]
	case segments[2] == "outbox":
		consumer = "outbox" // which hands its messages on
	case segments[2] == "dead" && len(from.Consumers) > 0:
		// A change names its consumers in the body, which is not read here.
		if consumer = q.URL.Query().Get("consumer"); consumer == "" || q.Method != http.MethodGet {
			return false
		}
	}
	t, err := w.s.called(segments[1])
	return err == nil && from.allows(t.dir, consumer)
}

// needs returns the rights that a request of a program needs; false for another one.
func (w *web) needs(q *http.Request) (api.Rights, bool) { return api.Needs(q, w.page != nil) }

// refuse answers with an error as those who asked read it.
func (w *web) refuse(rw http.ResponseWriter, q *http.Request, err *httpError) {
	if _, program := w.needs(q); program {
		api.Refuse(rw, &api.Error{Status: err.status, Reason: err.reason})
		return
	}
	refuse(rw, err)
}

// ownHost reports whether the field Host of a request is none that a site on the internet
// can have pointed at this host: see ownHost, the name of Options.External, or one that the
// certificate is for.
func (w *web) ownHost(q *http.Request) bool {
	return ownHost(q.Host) || w.s.opts.external(q.Host) || q.TLS != nil && certifies(w.s.opts.TLS, q.Host)
}

// ownHost reports whether a field Host is none that a site on the internet can have
// pointed at this host: an IP address, localhost, or missing.
func ownHost(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	host = strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
	_, err := netip.ParseAddr(host)
	return err == nil || host == "" || strings.EqualFold(host, "localhost")
}

// httpError is a refusal: the status, and a reason.
type httpError struct {
	status int
	reason string
}

func (e *httpError) Error() string { return e.reason }

func badRequest(reason string) error { return &httpError{http.StatusBadRequest, reason} }

var errDraining = &httpError{http.StatusServiceUnavailable, "draining"}

// refuse answers with an error, an *httpError or another one, and ends the
// connection: who is refused is not waited for.
func refuse(rw http.ResponseWriter, err error) {
	status := http.StatusInternalServerError
	var refused *httpError
	if errors.As(err, &refused) {
		status = refused.status
	}
	rw.Header().Set("Connection", "close")
	http.Error(rw, err.Error(), status)
}

// httpErrors returns a logger whose lines go to the server's log, each once, see
// repeats.
func (s *Server) httpErrors() *log.Logger { return log.New(errorLines{s}, "", 0) }

// called returns the thread whose path, or the last element of it, is name.
func (s *Server) called(name string) (*thread, *httpError) {
	if t := s.thread(name); t != nil {
		return t, nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var found *thread
	for dir, t := range s.threads {
		if address.Base(dir) != name {
			continue
		}
		if found != nil {
			return nil, &httpError{http.StatusNotFound, "there are several threads of that name: give the whole path"}
		}
		found = t
	}
	if found == nil {
		return nil, &httpError{http.StatusNotFound, "that thread is not served here"}
	}
	return found, nil
}

// SetClients exchanges who may ask over HTTP, while the server runs. Browsers that logged
// in with a token that is not there any more are logged out. It changes nothing where
// no token was asked for.
func (s *Server) SetClients(list []Client) {
	if w := s.web; w != nil && len(list) > 0 && !w.clients.open() {
		w.clients.set(list)
	}
}

type errorLines struct{ s *Server }

func (l errorLines) Write(line []byte) (int, error) {
	l.s.repeats.say(slog.LevelWarn, "http", "error", string(bytes.TrimSpace(line)))
	return len(line), nil
}
