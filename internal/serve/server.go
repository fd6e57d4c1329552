package serve

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net/http"
	"runtime/debug"
	"strconv"
	"time"

	"thread/internal/api"
	"thread/internal/dispatch"
	"thread/internal/page"
	"thread/internal/signed"
	"thread/lane"
)

const (
	// DefaultSweep is how long a push can go unnoticed when both its ping and the
	// file notice are lost.
	DefaultSweep = 30 * time.Second
	// DefaultDrain is how long handlers may continue when the server ends.
	DefaultDrain = 30 * time.Second
)

// takeoverTime is how long another server of a thread may take to end. Below a root
// no caller waits for it: there may be a thousand of its threads, and the sweep tries
// again.
const takeoverTime = 2 * time.Second

// New returns a server that has not begun. It returns an error for limits of
// session lanes.
func New(o Options) (*Server, error) {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Sweep == 0 {
		o.Sweep = DefaultSweep
	}
	if o.heartbeat == 0 {
		o.heartbeat = defaultHeartbeat
	}
	if o.writeTime == 0 {
		o.writeTime = defaultWriteTime
	}
	if o.bodyTime == 0 {
		o.bodyTime = defaultBodyTime
	}
	if o.maxDescriptors == 0 {
		o.maxDescriptors = maxDescriptors()
	}
	if o.Drain == 0 {
		o.Drain = DefaultDrain
	}
	if err := o.Work.check(); err != nil {
		return nil, err
	}
	s := &Server{opts: o, log: o.Log, queue: lane.New(o.Log), runs: lane.NewRegistry(o.Log),
		stats: newStats(), repeats: newRepeats(o.Log), descriptors: share(o.maxDescriptors),
		passes: make(chan struct{}, maxPasses), threads: map[string]*thread{}, stop: make(chan struct{})}
	s.work = make(chan struct{}, s.descriptors.runs)
	s.held = make(chan struct{}, s.descriptors.retries)
	s.waiting, s.refuse = context.WithCancel(context.Background())
	return s, s.Configure(o.Limits)
}

// Configure sets the limits of the lanes, in place of those before, while work
// continues.
func (s *Server) Configure(limits map[string]float64) error { return s.queue.Configure(limits) }

// Reset begins a new generation of the lanes: handlers that run do not count any
// more, and what waits starts in their place, see lane.Queue.Reset. No handler is
// stopped, and none runs twice.
func (s *Server) Reset() {
	s.queue.Reset()
	s.log.Info("lanes reset")
}

// Run serves until ctx ends. Then it takes nothing more, waits for the running
// handlers for at most Options.Drain, ends those that continue, and returns how many
// even that has not ended. The process has to end then. What had not been begun is
// taken over by the standby; a handler that ran when the server was told to end is run
// again by the next push or server only.
//
// Run returns an error at once when a thread of Options.Threads cannot be served,
// and ErrListen or ErrAddress.
func (s *Server) Run(ctx context.Context) (left int, err error) {
	if s.opts.Listen != "" {
		if s.web, err = s.listenWeb(ctx); err != nil {
			return 0, err
		}
		defer s.web.close()
	}
	if s.opts.directories() {
		s.standby = dispatch.StartStandby(func(format string, args ...any) error {
			s.log.Warn(fmt.Sprintf(format, args...))
			return nil
		})
	}
	s.notices = newNotices(s)
	defer s.notices.close()
	for _, dir := range s.opts.Threads {
		if _, err := s.add(dir, takeoverTime); err != nil {
			s.close()
			s.stopStandby() // nothing has begun
			return 0, &ThreadError{dir, err}
		}
	}
	for _, t := range s.all() {
		t.begin()
	}
	s.scan()
	if s.web != nil {
		go s.web.serve()
		s.log.Info("listening", "address", s.web.listener.Addr().String())
		if s.web.page != nil && s.opts.Opened != nil {
			s.opts.Opened(s.web.entrance())
		}
	}
	s.log.Info("serving", "threads", s.count())
	if few := s.countDirectories() - s.descriptors.threads; few > 0 {
		s.log.Warn("too few file descriptors to keep all threads open: the others are looked at by each sweep, and pushes start their handlers",
			"others", few, "limit", s.opts.maxDescriptors)
	}
	if s.opts.Ready != nil {
		s.opts.Ready()
	}
	debug.FreeOSMemory() // of the first passes
	s.startAllWorkers()
	defer s.opts.Tracer.Start(s.addresses)()
	tick := time.NewTicker(s.opts.Sweep)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return s.drain(), nil
		case <-tick.C:
			s.sweep()
		}
	}
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

func (s *Server) stopStandby() {
	if s.standby != nil {
		s.standby.Stop()
	}
}

// close takes the sockets away: from now on, pushes find no process.
func (s *Server) close() {
	s.mu.Lock()
	s.ending = true
	s.mu.Unlock()
	for _, t := range s.all() {
		t.close()
	}
}

// ends reports whether the server was told to end.
func (s *Server) ends() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ending
}

// drain ends the work. What waits in the lanes is in the databases too, so it is
// let go; the standby finds it there.
func (s *Server) drain() (left int) {
	for _, w := range s.workers {
		worked := w.drain()
		defer func() { left += <-worked }()
	}
	s.log.Info("draining", "running", s.queue.Active(), "queued", s.queued())
	s.close()
	s.queue.Drain()
	s.refuse()
	if !s.awaitIdle(s.opts.Drain) {
		s.log.Warn("ending the handlers that still run", "running", s.queue.Active())
		close(s.stop)
		s.awaitIdle(stopTime)
	}
	for _, t := range s.all() {
		for _, r := range t.list(nil) {
			if r.Event != 0 || r.State == stateRunning && !s.runs.Active(t.session(r.Consumer)) {
				continue // of a handler that is in the list; or it has ended a moment ago
			}
			if r.State == stateRunning {
				left++
			}
			if t.local == nil {
				continue // another host runs it
			}
			s.log.Warn("left to one-shot dispatch", "thread", t.dir, "consumer", r.Consumer, "state", r.State, "run", r.RunID)
		}
	}
	for _, t := range s.all() {
		if t.remote != nil {
			t.remote.Finish()
		}
	}
	s.repeats.sum(0)
	s.log.Info("drained", "running", left)
	if left == 0 && !s.anyPending() {
		s.stopStandby()
	}
	return left
}

// queued counts what waits in a lane. A running task is active in two lanes, so it is not
// difference of totals (L-07).
func (s *Server) queued() (n int) {
	for _, l := range s.queue.Lanes() {
		n += l.Queued
	}
	return n
}

// awaitIdle waits until no handler runs, and reports whether that came in time.
func (s *Server) awaitIdle(limit time.Duration) bool {
	deadline := time.Now().Add(limit)
	idle := s.queue.WaitActive(context.Background(), limit)
	// Those that a reset disowned count here only.
	return s.runs.WaitIdle(context.Background(), time.Until(deadline)) && idle
}

// anyPending reports whether something is to be run by the standby, or may be. What
// comes later than that finds no socket, and is started without a server.
func (s *Server) anyPending() bool {
	for _, t := range s.all() {
		if pending, err := t.r.Pending(context.Background()); pending || err != nil {
			return true
		}
	}
	return false
}

// sweep finds what pings and file notices have missed. What is gone comes first: a
// directory that has got another name is still locked by its old one.
func (s *Server) sweep() {
	s.dropGone()
	s.scan()
	for _, t := range s.all() {
		if errors.Is(t.check(), errGone) {
			s.drop(t)
		}
	}
	s.repeats.sum(repeatTime)
}

// Alive returns when the server's locks could be taken, which a deadlock would
// prevent.
func (s *Server) Alive() {
	for _, t := range s.all() {
		t.isClosed()
	}
	s.queue.Active()
}
