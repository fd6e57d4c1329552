package serve

import (
	"context"
	"crypto/tls"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"thread/engine"
	"thread/history"
	"thread/internal/api"
	"thread/internal/dispatch"
	"thread/internal/lanes"
	"thread/internal/otlp"
	"thread/internal/page"
	"thread/internal/signed"
	"thread/internal/socket"
	"thread/internal/watch"
	"thread/lane"
)

// stamp tells whether a file was written.
type stamp struct {
	modified time.Time
	size     int64
}

// thread is a thread that is served.
type thread struct {
	s      *Server
	dir    string      // its address: the directory or the URL
	place  string      // of run/ on this host: dir, but of a URL
	id     os.FileInfo // of the directory, which may have other paths; nil for a URL
	t      *engine.Thread
	r      Runner
	local  *dispatch.Server // r of a directory, nil for a URL
	remote Remote           // r of a URL, nil for a directory

	mu          sync.Mutex
	pings       *dispatch.Pings // both nil: not kept open, the sweep and file notices are all that wakes it
	control     *socket.Listener
	consumers   map[string]*consumer // those that are queued, running or waiting
	cleared     map[string]bool      // consumers that a clear took out of their lanes, until the next push
	pending     wakeUp               // not answered by a pass yet
	reconciling bool
	closed      bool
	seen        stamp       // of the database before the last pass
	alarm       *time.Timer // for what is scheduled next
	alarmAt     time.Time   // zero: nothing is

	wakes     atomic.Int64 // how often a pass was asked for
	retaining atomic.Bool  // a look at the limits is under way
	retainAt  atomic.Int64 // when the sweep has one made again, seconds since 1970

	pushes  atomic.Uint64 // that told this process
	counted atomic.Pointer[map[string]engine.Backlog]
	// lookedAt is what the last scrape has read.
	lookedAt atomic.Pointer[seenInfo]

	historyHeld atomic.Bool   // see history.LimitsHeld
	reads       chan struct{} // places for reads of streams; nil for a directory
	news        chan struct{} // closed at the next wake-up, nil when no caller waits for it
	gone        chan struct{} // closed with closed
}

// delivery is one that waits for its turn, or has it. All fields but state and since
// are constant.
type delivery struct {
	of      *turns
	number  int64
	event   int64   // the first one
	key     *string // as lanes show it; nil: in no session lane
	dir     string  // of the files by which it can be steered
	asked   time.Time
	refuse  context.CancelFunc
	over    chan struct{} // closed when the delivery has ended
	failure string        // set before

	pipe   sync.Mutex // held while a message waits for room
	broken bool       // half a message is in the pipe

	state string // guarded by of.mu, as since is
	since time.Time
}

// turns are what a running handler asks for that has deliveries out side by side: each
// delivery is a task in the session lane of its key, inside the lane of its consumer.
// From the first time it asks, the handler itself is in no lane: were it, its own
// deliveries would wait for it.
//
// What waits is given up when the connection ends. What has its turn keeps it until the
// run has ended, as a handler that was killed may have left its commands at work.
type turns struct {
	t    *thread
	run  *run
	name string // of the consumer
	lane string
	warn *time.Duration

	conn net.Conn
	out  sync.Mutex      // held while a line is written
	open context.Context // ends with the connection, and when the server ends

	mu         sync.Mutex
	deliveries map[int64]*delivery
}

// run is one turn of a consumer: its handler, as far as it can be steered.
type run struct {
	t   *thread
	dir string // of the two files

	abort   chan struct{} // closed to end the handler
	aborted sync.Once

	mu  sync.Mutex // held while the handler starts
	id  string     // "" until it has
	pid int
	at  time.Time // when it started

	over     chan struct{} // closed when the handler has ended
	overOnce sync.Once
	disown   func() // gives back the run's place in the lanes

	control *socket.Listener // of a run of a thread on a server; nil: none
	turnsMu sync.Mutex
	turns   *turns // of the latest connection, nil: none asked

	pipe     sync.Mutex // held while a message waits for room
	messages *os.File   // nil: cannot be steered
	broken   bool       // half a message is in the pipe
}

// started returns the run's id and the handler's process id, "" and 0 before it
// has started. It waits for a start that is under way.
func (r *run) started() (id string, pid int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.id, r.pid
}

// consumer is one that is queued in a lane, runs, or waits for a retry. All
// fields but run's are guarded by thread.mu.
type consumer struct {
	name    string
	lane    string
	warn    *time.Duration // see engine.Subscription.WarnAfter
	state   string
	since   time.Time // of the state
	fresh   bool      // queued: the rule it was queued under, see wakeUp.fresh
	missed  wakeUp    // wake-ups while it ran: for the case that it did not
	retry   *dispatch.Retry
	timer   *time.Timer // waiting: for the retry
	run     *run        // running
	session string
	cancel  context.CancelFunc // queued: takes it out of its lane
}

// session returns the consumer's session lane. No other consumer of any thread has the
// same lane, and no key has it.
func (t *thread) session(consumer string) string {
	return lanes.Scoped("session:"+consumer, "consumer "+t.dir)
}

// seenInfo is what a look at a thread has found.
type seenInfo struct {
	info  engine.Info
	stamp stamp // of the database before the look; zero: it tells nothing
}

// worked is a thread that has a history.
type worked struct {
	stamp     stamp // of the history's database at the last look
	head      int64 // at the last look
	idle      bool  // nothing was to be done then
	tried     time.Time
	running   int
	recovered time.Time // zero: not since the server knows of it
	active    bool      // there were active runs at the last look
}

// shift is one worker at work.
type shift struct {
	worker
	dir  string
	head int64 // of the history when it began
	err  error
}

// workers sees to the recorded runs of all threads in directories, in one goroutine, or to those
// of one thread on a server.
type workers struct {
	s    *Server
	work Work
	only string      // the URL of the thread; "": those in directories
	dirs *watch.Dirs // of the histories; nil: every look is by the clock

	noticed chan string // directories of threads
	ended   chan *shift
	stop    chan struct{} // closed: no worker is started any more
	done    chan int      // how many workers were left

	threads map[string]*worked
	running map[*shift]bool
}

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

// stats are what has happened in the lanes since the process began.
type stats struct {
	runs        *prometheus.CounterVec
	retries     *prometheus.CounterVec
	ran, waited *prometheus.HistogramVec
}

// notices turns file notices into passes. They are a safety net, so a system that
// gives no more watches is told of once and done without.
type notices struct {
	s    *Server
	dirs *watch.Dirs // nil: none to be had

	mu      sync.Mutex
	warned  bool
	touched map[string]bool // directories in which something was written
}

// Runner runs the handlers of one thread. [dispatch.Server] is the one of a directory.
type Runner interface {
	// Due returns the consumers that are to run, see [dispatch.Server.Due].
	Due(ctx context.Context) ([]engine.Due, error)
	// Run runs a consumer once, see [dispatch.Server.Run].
	Run(ctx context.Context, consumer string, onlyNew bool, hooks *dispatch.Hooks) (dispatch.Outcome, error)
	// Resume runs the consumer of a retry, see [dispatch.Server.Resume].
	Resume(ctx context.Context, retry *dispatch.Retry, hooks *dispatch.Hooks) (dispatch.Outcome, error)
	// Pending reports whether the standby has something to run.
	Pending(ctx context.Context) (bool, error)
	// Close is called when no run begins any more. Those that are in progress continue.
	Close()
}

// Remote is the Runner of a thread on a server.
type Remote interface {
	Runner
	// Watch calls look whenever the thread may have changed, until Close, and answer for each
	// request of another process.
	Watch(look func(), answer func(ctx context.Context, request []byte) []byte)
	// Finish is called after Close, when the last run has ended.
	Finish()
}

// worker is a process that takes one run and ends.
type worker interface {
	Wait() error
	End() // asks it to end
}

// Work says what the server does about recorded runs (docs/reference/history.md): it recovers
// those whose workers are gone, in any case, and with a Command it executes those that
// are queued.
type Work struct {
	// Command is run by sh -c for each queued run, as thread run work does; "" for none.
	Command string `json:"command"`
	// Parallel is how many it runs at once for each thread; 0 for 1.
	Parallel int `json:"parallel"`
	// Timeout ends a command, "10m"; "" for never.
	Timeout string `json:"timeout"`
	// Strategy and MaxAttempts are the attempts of history.RecoverOptions.
	Strategy    history.Strategy `json:"strategy"`
	MaxAttempts int              `json:"max_attempts"`

	// Zero but in tests.
	every time.Duration
	start func(dir string) (worker, error)
}

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
