package serve

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"thread/dispatch"
	"thread/lane"
)

// Options are the settings of a Server.
type Options struct {
	Threads []string           // absolute paths of thread directories
	Roots   []string           // absolute paths of directories of thread directories
	Limits  map[string]float64 // of the lanes, see lane.Queue.Configure
	Log     *slog.Logger       // nil: nowhere
	Sweep   time.Duration      // 0: DefaultSweep
	Drain   time.Duration      // 0: DefaultDrain
	Ready   func()             // called when every thread is being served, nil for nobody
	Listen  string             // where HTTP is spoken, ADDRESS:PORT or unix:PATH; "" for nowhere
	Token   string             // what is asked of who comes there; "" only on this host

	// Zero but in tests.
	heartbeat, writeTime time.Duration
}

const (
	// DefaultSweep is how long a push can go unnoticed when both its ping and the
	// file notice are lost.
	DefaultSweep = 30 * time.Second
	// DefaultDrain is how long handlers may go on when the server ends.
	DefaultDrain = 30 * time.Second
)

// Server serves threads. Make one with New.
type Server struct {
	opts    Options
	log     *slog.Logger
	queue   *lane.Queue
	runs    *lane.Registry
	guard   *dispatch.Guard
	notices *notices

	stats stats
	web   *web // nil: no HTTP

	looks chan struct{} // one token for each look that may be under way

	waiting context.Context // of what waits in lanes
	refuse  context.CancelFunc

	mu      sync.Mutex
	threads map[string]*thread // by directory
	refused map[string]bool    // directories that could not be served
	ending  bool
}

// patience is how long another server of a thread may take to end. Below a root
// nobody waits for it: there may be a thousand of its threads, and the sweep tries
// again.
const patience = 2 * time.Second

// maxLooks bounds how many threads are looked at at once: each costs memory, and
// more do not make it faster.
const maxLooks = 4

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
	if o.Drain == 0 {
		o.Drain = DefaultDrain
	}
	s := &Server{opts: o, log: o.Log, queue: lane.New(o.Log), runs: lane.NewRegistry(o.Log),
		looks: make(chan struct{}, maxLooks), threads: map[string]*thread{}, refused: map[string]bool{}}
	s.waiting, s.refuse = context.WithCancel(context.Background())
	return s, s.Configure(o.Limits)
}

// Configure sets the limits of the lanes, in place of those before, while work
// goes on.
func (s *Server) Configure(limits map[string]float64) error { return s.queue.Configure(limits) }

// Reset begins a new generation of the lanes: handlers that run do not count any
// more, and what waits starts in their place, see lane.Queue.Reset. No handler is
// stopped, and none runs twice.
func (s *Server) Reset() {
	s.queue.Reset()
	s.log.Info("lanes reset")
}

// Run serves until ctx ends. Then it takes nothing more, waits for the running
// handlers for at most Options.Drain and returns how many still run. The process
// has to end then, whereupon its guard takes over what is left of the work.
//
// Run returns an error at once when a thread of Options.Threads cannot be served,
// and ErrListen or ErrAddress.
func (s *Server) Run(ctx context.Context) (left int, err error) {
	if s.opts.Listen != "" {
		if s.web, err = s.listenWeb(ctx); err != nil {
			return 0, err
		}
		defer s.web.listener.Close()
	}
	s.guard = dispatch.StartGuard(func(format string, args ...any) error {
		s.log.Warn(fmt.Sprintf(format, args...))
		return nil
	})
	s.notices = newNotices(s)
	defer s.notices.close()
	for _, dir := range s.opts.Threads {
		if _, err := s.add(dir, patience); err != nil {
			s.close()
			s.guard.Dismiss() // nothing has begun
			return 0, err
		}
	}
	for _, t := range s.all() {
		t.begin()
	}
	s.scan()
	if s.web != nil {
		go s.web.serve()
		s.log.Info("listening", "address", s.web.listener.Addr().String())
	}
	s.log.Info("serving", "threads", s.count())
	if s.opts.Ready != nil {
		s.opts.Ready()
	}
	debug.FreeOSMemory() // of the first looks
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

// add takes in one more thread, which has not begun. It returns nil for one that
// is there already.
func (s *Server) add(dir string, patience time.Duration) (*thread, error) {
	s.mu.Lock()
	known := s.threads[dir] != nil || s.ending
	s.mu.Unlock()
	if known {
		return nil, nil
	}
	t, err := s.open(dir, patience)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	if s.ending || s.threads[dir] != nil {
		s.mu.Unlock()
		t.close()
		return nil, nil
	}
	s.threads[dir] = t
	s.mu.Unlock()
	s.guard.Add(dir)
	s.notices.add(dir)
	return t, nil
}

// all returns the threads, by directory.
func (s *Server) all() []*thread {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := make([]*thread, 0, len(s.threads))
	for _, t := range s.threads {
		list = append(list, t)
	}
	slices.SortFunc(list, func(a, b *thread) int {
		if a.dir < b.dir {
			return -1
		}
		return 1
	})
	return list
}

func (s *Server) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.threads)
}

func (s *Server) thread(dir string) *thread {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.threads[dir]
}

// drop forgets a thread whose directory is gone.
func (s *Server) drop(t *thread) {
	s.mu.Lock()
	delete(s.threads, t.dir)
	s.mu.Unlock()
	s.notices.remove(t.dir)
	t.close()
	s.log.Info("thread is gone", "thread", t.dir)
}

// close takes the sockets away: from now on, pushes find nobody.
func (s *Server) close() {
	s.mu.Lock()
	s.ending = true
	s.mu.Unlock()
	for _, t := range s.all() {
		t.close()
	}
}

// drain ends the work. What waits in the lanes is in the databases too, so it is
// let go; the guard finds it there.
func (s *Server) drain() (left int) {
	s.log.Info("draining", "running", s.queue.Active(), "queued", s.queue.Total()-s.queue.Active())
	s.close()
	s.queue.Drain()
	s.refuse()
	deadline := time.Now().Add(s.opts.Drain)
	s.queue.WaitActive(context.Background(), s.opts.Drain)
	// Those that a reset disowned count here only.
	s.runs.WaitIdle(context.Background(), time.Until(deadline))
	for _, t := range s.all() {
		for _, r := range t.list() {
			if r.State == stateRunning {
				left++
			}
			s.log.Warn("left to one-shot dispatch", "thread", t.dir, "consumer", r.Consumer, "state", r.State, "run", r.RunID)
		}
	}
	s.log.Info("drained", "running", left)
	if left == 0 && !s.anyDue() {
		s.guard.Dismiss()
	}
	return left
}

// anyDue reports whether something is unread, or may be. What comes later than
// the look finds no socket, and is started without a server.
func (s *Server) anyDue() bool {
	for _, t := range s.all() {
		if due, err := t.r.Due(context.Background()); len(due) > 0 || err != nil {
			return true
		}
	}
	return false
}

// sweep finds what pings and file notices have missed.
func (s *Server) sweep() {
	s.scan()
	for _, t := range s.all() {
		if errors.Is(t.check(), errGone) {
			s.drop(t)
		}
	}
}

// Alive returns when the server's locks could be taken, which a deadlock would
// prevent.
func (s *Server) Alive() {
	for _, t := range s.all() {
		t.isClosed()
	}
	s.queue.Active()
}
