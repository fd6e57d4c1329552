package serve

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"net/url"
	"os"
	"runtime/debug"
	"sync"
	"time"

	"thread/engine"
	"thread/internal/api"
	"thread/internal/dispatch"
	"thread/internal/otlp"
	"thread/internal/signed"
	"thread/lane"
)

// Options are the settings of a Server.
type Options struct {
	Threads []string           // absolute paths of thread directories, and URLs of threads on servers
	Roots   []string           // absolute paths of directories of thread directories
	Limits  map[string]float64 // of the lanes, see lane.Queue.Configure
	Log     *slog.Logger       // nil: nowhere
	Sweep   time.Duration      // 0: DefaultSweep
	Drain   time.Duration      // 0: DefaultDrain
	Ready   func()             // called when every thread is being served, nil for none
	Listen  string             // where HTTP is spoken: unix:PATH, ADDRESS:PORT, ADDRESS or :PORT; "" for nowhere
	Clients []Client           // who may come there, by their tokens; none only for unix:PATH
	TLS     *tls.Config        // how it is encrypted there, nil for not at all
	// UI adds the pages of package page to what is answered there. Opened is then called
	// with the address of one of them that logs a browser in, once; at a unix socket with its
	// path alone.
	UI       bool
	ReadOnly bool          // nothing is changed over HTTP
	Sessions signed.Keeper // of the pages; nil: all browsers are logged out when the process ends
	Answers  api.Journal   // of requests with an Idempotency-Key; nil: a restart forgets them
	// Deliveries keeps the key that signs deliveries; nil: a restart forgets them.
	Deliveries signed.Keeper
	NoTokens   bool // Clients were made up for this process: no process knows their tokens
	// Proxies are whose X-Forwarded-For says who a client is.
	Proxies []netip.Prefix
	// External is where browsers reach the pages behind a proxy, nil for Listen; Base is the
	// path of that, or "".
	External *url.URL
	Base     string
	Opened   func(address string)
	Work     Work // what is done about recorded runs
	// Tracer exports traces, nil: none.
	Tracer *otlp.Tracer
	// Remote returns what runs the handlers of a thread on a server; nil: there are only directories.
	Remote func(t *engine.Thread, log *slog.Logger) Remote

	// Zero but in tests.
	heartbeat, writeTime, bodyTime time.Duration
	maxDescriptors                 int
}

const (
	// DefaultSweep is how long a push can go unnoticed when both its ping and the
	// file notice are lost.
	DefaultSweep = 30 * time.Second
	// DefaultDrain is how long handlers may continue when the server ends.
	DefaultDrain = 30 * time.Second
)

// Server serves threads. Make one with New.
type Server struct {
	opts    Options
	log     *slog.Logger
	queue   *lane.Queue
	runs    *lane.Registry
	standby *dispatch.Standby
	notices *notices
	changes changes

	stats   *stats
	repeats *repeats
	workers []*workers // none before the threads are served
	web     *web       // nil: no HTTP

	descriptors descriptors

	retains sync.Mutex    // held while old events are dropped: in one thread at a time
	passes  chan struct{} // one token for each pass that may be under way
	work    chan struct{} // for each handler that there are descriptors for
	held    chan struct{} // and for each retry

	waiting context.Context // of what waits in lanes
	refuse  context.CancelFunc
	stop    chan struct{} // closed when the drain time has ended: running handlers are ended

	mu      sync.Mutex
	threads map[string]*thread // by directory
	kept    int                // how many of these are kept open
	ending  bool
}

// takeoverTime is how long another server of a thread may take to end. Below a root
// no caller waits for it: there may be a thousand of its threads, and the sweep tries
// again.
const takeoverTime = 2 * time.Second

// maxPasses bounds over how many threads a pass is made at once: each costs memory, and
// more do not make it faster.
const maxPasses = 4

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

// stopTime bounds the wait for handlers that are being ended, beyond the time that
// each of them has before it is killed.
const stopTime = 10 * time.Second

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

// dropGone forgets the threads whose directories are gone.
func (s *Server) dropGone() {
	for _, t := range s.all() {
		if _, err := t.stamp(); errors.Is(err, os.ErrNotExist) {
			s.drop(t)
		}
	}
}

// keepOpen takes the descriptors of one more thread that is kept open, and reports
// whether there are any.
func (s *Server) keepOpen() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.kept >= s.descriptors.threads {
		return false
	}
	s.kept++
	return true
}

func (s *Server) giveBack() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.kept--
}

// Alive returns when the server's locks could be taken, which a deadlock would
// prevent.
func (s *Server) Alive() {
	for _, t := range s.all() {
		t.isClosed()
	}
	s.queue.Active()
}
