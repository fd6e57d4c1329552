package serve

import (
	"bytes"
	"context"
	"crypto/subtle"
	"errors"
	"log"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"time"
)

const (
	maxConns         = 64               // connections at once besides streams; more are told to come back
	maxStreams       = 64               // streams at once, so that they keep nobody else out
	maxHeaderBytes   = 8 << 10          // of a request
	headerTime       = 5 * time.Second  // for the header of a request to come
	idleTime         = 90 * time.Second // for the next request on the same connection
	defaultWriteTime = 10 * time.Second // for any part of the answer to be taken
	healthTime       = 5 * time.Second  // for the server's locks to be had
	shutdownTime     = time.Second      // for the last answers to be taken
)

// web is the HTTP server.
type web struct {
	s        *Server
	listener *countedListener
	server   *http.Server
	token    string        // "" for a unix socket: its mode says who comes in
	streams  chan struct{} // one place for each stream
	ctx      context.Context
	// ctx ends when the draining begins.
}

// listenWeb opens the listener of Options.Listen, which answers nobody yet.
func (s *Server) listenWeb(ctx context.Context) (*web, error) {
	l, err := listen(s.opts.Listen, s.opts.Token)
	if err != nil {
		return nil, err
	}
	most := s.descriptors.conns + s.descriptors.streams
	w := &web{s: s, token: s.opts.Token, ctx: ctx, listener: &countedListener{Listener: l, most: int64(most)},
		streams: make(chan struct{}, s.descriptors.streams)}
	w.server = &http.Server{
		Handler:                      w.handler(),
		ReadHeaderTimeout:            headerTime,
		IdleTimeout:                  idleTime,
		WriteTimeout:                 max(healthTime, scrapeTime) + s.opts.writeTime, // streams set their own
		MaxHeaderBytes:               maxHeaderBytes,
		ConnContext:                  withConn,
		ErrorLog:                     s.httpErrors(),
		DisableGeneralOptionsHandler: true,
	}
	return w, nil
}

// serve answers until close.
func (w *web) serve() { _ = w.server.Serve(w.listener) }

// close lets the last answers go out and ends the rest.
func (w *web) close() {
	ctx, cancel := context.WithTimeout(context.Background(), shutdownTime)
	defer cancel()
	if err := w.server.Shutdown(ctx); err != nil {
		_ = w.server.Close()
	}
	_ = w.listener.Close() // serve may not have begun
}

// handler returns what answers requests. A path is added to the ServeMux; what is
// true of every request is checked around it.
func (w *web) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", w.health)
	mux.Handle("GET /metrics", w.s.metricsHandler())
	mux.HandleFunc("GET /events", w.events)
	mux.HandleFunc("GET /", func(rw http.ResponseWriter, _ *http.Request) {
		refuse(rw, &httpError{http.StatusNotFound, "there are /healthz, /metrics and /events"})
	})
	sites := http.NewCrossOriginProtection()
	sites.SetDenyHandler(http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) {
		refuse(rw, &httpError{http.StatusForbidden, "a page of another site must not ask that"})
	}))
	return w.checked(sites.Handler(mux))
}

// checked refuses what no path is to see: connections beyond the bound, bodies where
// none is taken, requests without the token, and those that a page of another site
// makes by having a name of its own lead here (DNS rebinding).
func (w *web) checked(next http.Handler) http.Handler {
	return http.HandlerFunc(func(rw http.ResponseWriter, q *http.Request) {
		h := rw.Header()
		h.Set("Cache-Control", "no-store")
		h.Set("X-Content-Type-Options", "nosniff")
		c := connOf(q.Context())
		if c != nil && c.crowded() {
			h.Set("Connection", "close")
		}
		if q.ContentLength != 0 { // net/http would wait for the rest of it
			h.Set("Connection", "close")
			_ = http.NewResponseController(rw).SetReadDeadline(time.Now())
		}
		known := w.allowed(q)
		switch {
		case c != nil && c.over:
			refuse(rw, &httpError{http.StatusServiceUnavailable, "too many connections"})
		case !known && !ownHost(q.Host):
			refuse(rw, &httpError{http.StatusMisdirectedRequest, "without the token, ask by an IP address or as localhost"})
		case !known && q.URL.Path != "/healthz": // which says nothing of any thread
			h.Set("WWW-Authenticate", "Bearer")
			refuse(rw, &httpError{http.StatusUnauthorized, "the token is missing or wrong"})
		case q.ContentLength != 0 && (q.Method == http.MethodGet || q.Method == http.MethodHead):
			refuse(rw, &httpError{http.StatusBadRequest, "a body is not taken"})
		default:
			next.ServeHTTP(rw, q)
		}
	})
}

// allowed reports whether a request has the token, if there is one.
func (w *web) allowed(q *http.Request) bool {
	if w.token == "" {
		return true
	}
	fields := q.Header.Values("Authorization")
	if len(fields) != 1 {
		return false
	}
	scheme, token, _ := strings.Cut(fields[0], " ")
	return strings.EqualFold(scheme, "Bearer") && subtle.ConstantTimeCompare([]byte(token), []byte(w.token)) == 1
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

// health tells whether this process is of use.
func (w *web) health(rw http.ResponseWriter, _ *http.Request) {
	if w.ctx.Err() != nil {
		refuse(rw, errDraining)
		return
	}
	alive := make(chan struct{})
	go func() {
		w.s.Alive()
		close(alive)
	}()
	timer := time.NewTimer(healthTime)
	defer timer.Stop()
	select {
	case <-alive:
		rw.Header().Set("Content-Type", "text/plain; charset=utf-8")
		_, _ = rw.Write([]byte("ok\n")) // who asked may be gone
	case <-timer.C:
		refuse(rw, &httpError{http.StatusServiceUnavailable, "stuck"})
	}
}

// httpErrors returns a logger whose lines go to the server's log, each once, see
// repeats.
func (s *Server) httpErrors() *log.Logger { return log.New(errorLines{s}, "", 0) }

type errorLines struct{ s *Server }

func (l errorLines) Write(line []byte) (int, error) {
	l.s.repeats.say(slog.LevelWarn, "http", "error", string(bytes.TrimSpace(line)))
	return len(line), nil
}
