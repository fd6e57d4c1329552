package serve

import (
	"bytes"
	"context"
	"errors"
	"log"
	"log/slog"
	"math"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"thread/internal/api"
	"thread/internal/page"
	"thread/internal/signed"
)

const (
	maxConns         = 64               // connections at once except streams; more are told to come back
	maxStreams       = 1024             // streams at once, so that they keep no other process out
	maxHeaderBytes   = 8 << 10          // of a request
	patience         = time.Second      // with a client that does not read, when there are too many
	headerTime       = 5 * time.Second  // for the header of a request to come
	idleTime         = 90 * time.Second // for the next request on the same connection
	defaultWriteTime = 10 * time.Second // for any part of the answer to be taken
	defaultBodyTime  = 10 * time.Second // for each 64 KiB of a request to come
	healthTime       = 5 * time.Second  // for the server's locks to be had
	shutdownTime     = time.Second      // for the last answers to be taken
)

// web is the HTTP server.
type web struct {
	s        *Server
	listener *countedListener
	server   *http.Server
	clients  clients // none for a unix socket: its mode says who comes in
	guesses  guesses
	api      *api.API
	streams  *page.Places
	page     *page.Page // nil: no pages
	ctx      context.Context
	// ctx ends when the draining begins.
}

// listenWeb opens the listener of Options.Listen, which answers no process yet.
func (s *Server) listenWeb(ctx context.Context) (*web, error) {
	l, err := listen(s.opts.Listen, len(s.opts.Clients) > 0)
	if err != nil {
		return nil, err
	}
	most := s.descriptors.conns + s.descriptors.streams
	w := &web{s: s, ctx: ctx,
		streams: page.NewPlaces(s.descriptors.streams, max(s.descriptors.streams/2, 1))}
	w.listener = newCountedListener(l, most, patience, w.trusted)
	w.clients.set(s.opts.Clients)
	w.api = api.New(apiHost{w}, s.opts.bodyTime, s.opts.Answers, signed.KeptKey(s.opts.Deliveries))
	if s.opts.UI {
		if w.page, err = page.New(uiHost{w}, page.Options{Base: s.opts.Base, Origin: s.opts.origin(), ReadOnly: s.opts.ReadOnly, LogIn: w.logIn, Known: w.known, Printed: w.printed, Secure: w.encrypted, Keeper: s.opts.Sessions, API: api.Description(), Audit: w.auditPage}); err != nil {
			_ = l.Close()
			return nil, err
		}
	}
	w.server = &http.Server{
		Handler:                      w.handler(),
		ReadHeaderTimeout:            headerTime,
		IdleTimeout:                  idleTime,
		WriteTimeout:                 max(healthTime, infoTime) + s.opts.writeTime, // streams set their own
		MaxHeaderBytes:               maxHeaderBytes,
		ConnContext:                  withConn,
		ConnState:                    w.listener.state,
		ErrorLog:                     s.httpErrors(),
		DisableGeneralOptionsHandler: true,
		TLSConfig:                    s.opts.TLS,
		Protocols:                    new(http.Protocols), // one request at a time on each connection that is counted
	}
	w.server.Protocols.SetHTTP1(true)
	return w, nil
}

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

// handler returns what answers requests. A path is added to the ServeMux; what is
// true of every request is checked around it.
func (w *web) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", w.health)
	mux.Handle("GET /metrics", w.s.metricsHandler(w.ctx))
	mux.HandleFunc("GET /events", w.events)
	mux.HandleFunc("GET /", func(rw http.ResponseWriter, _ *http.Request) {
		refuse(rw, &httpError{http.StatusNotFound, "there are /healthz, /metrics, /events, /threads/NAME/events and what /openapi.json describes"})
	})
	sites := http.NewCrossOriginProtection()
	if o := w.s.opts.origin(); o != "" {
		_ = sites.AddTrustedOrigin(o) // ParseExternal has checked it
	}
	sites.SetDenyHandler(http.HandlerFunc(func(rw http.ResponseWriter, q *http.Request) {
		w.refuse(rw, q, &httpError{http.StatusForbidden, "a page of another site must not ask that"})
	}))
	return below(w.s.opts.Base, w.checked(sites.Handler(http.HandlerFunc(func(rw http.ResponseWriter, q *http.Request) {
		if _, ok := w.needs(q); ok {
			w.api.ServeHTTP(rw, q)
			return
		}
		mux.ServeHTTP(rw, q)
	}))))
}

// checked refuses what no path is to see: connections beyond the bound, bodies where
// none is taken, requests without the token, and those that a page of another site
// makes by having another name lead here (DNS rebinding).
func (w *web) checked(next http.Handler) http.Handler {
	return http.HandlerFunc(func(rw http.ResponseWriter, q *http.Request) {
		w.headers(rw, q)
		from, pause := w.asker(q)
		q = q.WithContext(context.WithValue(q.Context(), askerKey{}, from))
		need, program := w.needs(q)
		crowded := w.overFor(q, from)
		if !program && !crowded && pause == 0 && w.serveUI(rw, q, from) {
			return
		}
		if !program {
			need = api.Read
		}
		if from == nil && !program && w.page != nil && q.Method == http.MethodGet && w.page.Known(q) {
			from = everybody // of whom no more than reading is asked here
		}
		refused := w.refusal(q, from, need, pause, crowded)
		if q.ContentLength != 0 && (refused != nil || !program) { // net/http would wait for the rest of it
			rw.Header().Set("Connection", "close")
			_ = http.NewResponseController(rw).SetReadDeadline(time.Now())
		}
		if refused == nil {
			next.ServeHTTP(rw, q)
			return
		}
		switch refused.status {
		case http.StatusUnauthorized:
			rw.Header().Set("WWW-Authenticate", "Bearer")
		case http.StatusTooManyRequests:
			rw.Header().Set("Retry-After", strconv.Itoa(int(math.Ceil(pause.Seconds()))))
		}
		w.refuse(rw, q, refused)
	})
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
