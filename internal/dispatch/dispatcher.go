package dispatch

import (
	"cmp"
	"context"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"time"

	"gopkg.in/natefinch/lumberjack.v2"

	"thread/engine"
	"thread/internal/pipe"
	"thread/internal/programs"
	"thread/jsonlog"
	"thread/lock"
)

// Options are the settings of a dispatch. The supervisors it starts keep them.
type Options struct {
	// MaxHandlers is how many handlers of the thread run at once; 0 means twice
	// the number of cores. Dispatches with different bounds share the slots below
	// the smaller one.
	MaxHandlers int
}

type unwrittenNote struct {
	note note
	old  []byte // the text in its place
}

// unwritten are the notes that could not be written. A note holds until another process
// else, who ran the consumer meanwhile, has written another one.
type unwritten struct {
	mu    sync.Mutex
	notes map[string]unwrittenNote
}

// output carries what a handler prints to logs/handlers/<c>.log. The supervisor
// reads it from a pipe, so that it is the only writer of the file and can
// rotate it.
type output struct {
	writer *os.File // the handler's stdout and stderr
	reader *os.File
	dir    string // of the thread
	log    *lumberjack.Logger
	bytes  int64      // how much the copying has written
	copy   *pipe.Copy // nil before it starts
	closed chan struct{}
}

// dispatcher runs the handlers of one thread directory.
type dispatcher struct {
	t   *engine.Thread
	log *jsonlog.Log
	run string // <thread>/run
	max int    // slots

	after     string             // the consumer whose handler made the push, see author
	takeovers int                // how many supervisors in a row were killed before this one
	inherited map[string]*output // by run: outputs taken over from a killed supervisor
	busyTries int                // how often a look is tried when the thread is busy, 0: until it is done
	unwritten unwritten

	taking    sync.Mutex
	takeLater *time.Timer // asks the history to take what has ended; nil: nothing to take
}

// serverSlots is how many slots a server has: no bound, as its own is what counts.
const serverSlots = 1 << 20

func newDispatcher(t *engine.Thread, o Options) *dispatcher {
	if o.MaxHandlers <= 0 {
		o.MaxHandlers = 2 * runtime.NumCPU()
	}
	return &dispatcher{t: t, log: jsonlog.OpenLog(t.Dir()), run: filepath.Join(t.Dir(), "run"), max: o.MaxHandlers}
}

// path returns the consumer's file with the ending. Other packages use names with a
// leading dot in run/, which lock.Name does not give out. The endings are known to
// programs of other versions.
func (r *dispatcher) path(consumer, ending string) string {
	return filepath.Join(r.run, lock.Name(consumer)+ending)
}

func (r *dispatcher) handlerLockPath(consumer string) string { return r.path(consumer, ".lock") }

func (r *dispatcher) supervisorLockPath(consumer string) string { return r.path(consumer, ".busy") }

func (r *dispatcher) treeLockPath(consumer string) string { return r.path(consumer, ".tree") }

func (r *dispatcher) workLockPath(consumer string) string { return r.path(consumer, ".turn") }

func (r *dispatcher) notePath(consumer string) string { return r.path(consumer, ".json") }

func (r *dispatcher) poppedPath(consumer string) string { return r.path(consumer, ".popped") }

func (r *dispatcher) slotPath(i int) string { return filepath.Join(r.run, "slots", strconv.Itoa(i)) }

// prepare makes the directory of the locks, which may be deleted at any time.
func (r *dispatcher) prepare() error {
	if _, err := os.Stat(r.t.Dir()); err != nil {
		return err // not ours to bring back
	}
	for _, dir := range []string{r.run, filepath.Join(r.run, "slots")} {
		if err := lock.Mkdir(dir); err != nil {
			return err
		}
	}
	return nil
}

// trySlot takes a free slot, and returns nil when there is none.
func (r *dispatcher) trySlot() (*lock.File, error) {
	for i := range r.max {
		l, err := lock.Try(r.slotPath(i), lock.Exclusive)
		if err == nil || !errors.Is(err, lock.ErrHeld) {
			return l, err
		}
	}
	return nil, nil
}

// release gives a lock back, even if a child that is just being started has a
// copy of the descriptor. A nil l is nothing to release.
func release(l *lock.File) {
	if l == nil {
		return
	}
	_ = lock.Unlock(l.File()) // for every process that has the descriptor
	l.Close()
}

// retryBusy calls look until the thread is not busy, each time with the engine's
// own wait of some seconds. In a process that was started to look there is no process
// to give ErrBusy to: a look that is given up would leave an event behind.
func retryBusy[T any](ctx context.Context, r *dispatcher, look func() (T, error)) (T, error) {
	for try := 1; ; try++ {
		v, err := look()
		if !errors.Is(err, engine.ErrBusy) || try == r.busyTries || ctx.Err() != nil {
			return v, err
		}
	}
}

// due returns what is due, by the first unread event of each consumer (L-06).
func (r *dispatcher) due(ctx context.Context) ([]engine.Due, error) {
	return retryBusy(ctx, r, func() ([]engine.Due, error) { return dueInOrder(ctx, r.t) })
}

// dueInOrder is t.Due in the order in which consumers take room: the consumer whose first
// unread event is the oldest comes first, and of several the one that subscribed first.
func dueInOrder(ctx context.Context, t *engine.Thread) ([]engine.Due, error) {
	due, err := t.Due(ctx)
	slices.SortStableFunc(due, func(a, b engine.Due) int { return cmp.Compare(a.First, b.First) })
	return due, err
}

// dueFor looks at one consumer. One that is gone, or whose filter is broken, is
// not due, which is logged, nor is one without a handler.
func (r *dispatcher) dueFor(ctx context.Context, consumer string, after int64) (engine.Due, error) {
	d, err := retryBusy(ctx, r, func() (engine.Due, error) { return r.t.DueFor(ctx, consumer, after) })
	if errors.Is(err, engine.ErrNoSubscription) {
		return engine.Due{}, nil
	}
	if d.Pull {
		d.First = 0 // nothing is started for it
		return d, err
	}
	if err == nil && d.Err != nil {
		r.logBroken(consumer, d.Err)
		d.First = 0
	}
	return d, err
}

func (r *dispatcher) logBroken(consumer string, err error) {
	r.log.Warn("dispatch: consumer=%s skipped (filter: %v)", consumer, err)
}

// ErrNoProgram says that the program to start is not found.
var ErrNoProgram = errors.New("the program " + programs.Main + " is not found")

// executable is the program to start for a dispatch or a supervisor.
func executable() (string, error) {
	if exe := programs.Thread(); exe != "" {
		return exe, nil
	}
	return "", ErrNoProgram
}

// The environment of a handler, next to what the push had (T-65).
const (
	envDir       = "THREAD_DIR"           // the thread directory, absolute
	envConsumer  = "THREAD_CONSUMER"      // the subscription
	envLastAcked = "THREAD_LAST_ACKED_ID" // the progress at the start

	envTraceparent = "TRACEPARENT" // of the first unread event, if it has one
	envRequestID   = "THREAD_REQUEST_ID"
	envRunID       = "THREAD_RUN_ID" // 32 hex digits, different for every run
	envPopped      = "THREAD_POPPED" // where Popped writes, "" when success does not ack
)

// envAck, set to ackOnSuccess where a push is made, has the effect of
// Subscription.AckOnSuccess for the handlers that it starts.
const (
	envAck       = "THREAD_ACK"
	ackOnSuccess = "on-success"
)

// streak is what a consumer's endings in a row add up to.
type streak struct {
	Failures int `json:"failures"` // failed runs in a row without progress
	Idle     int `json:"idle"`     // successful runs in a row without progress, each with new events
}

// note is the content of run/<c>.json: what supervisors tell each other and
// `thread info` about a consumer. It is advice; see the package comment. Only
// the holder of the consumer's lock or supervisor lock writes it.
type note struct {
	State     state      `json:"state"`
	RunID     string     `json:"run_id"`
	StartedAt time.Time  `json:"started_at"`
	EndedAt   *time.Time `json:"ended_at,omitempty"` // of the last run that ended
	Exit      string     `json:"exit,omitempty"`     // how that one ended, see exitText
	RetryAt   *time.Time `json:"retry_at,omitempty"`
	// Seen is the newest id when the handler was started, and once it has ended,
	// at the look that followed.
	Seen int64 `json:"seen"`
	// SeenRetried is Due.Retried at the same moment.
	SeenRetried int64 `json:"seen_retried,omitempty"`
	// Unpopped says that the last run that ended exited 0 and had popped nothing.
	Unpopped bool `json:"unpopped,omitempty"`
	streak
}

// state says what the last note in a consumer's file is about.
type state string

// superviseVerb is the hidden subcommand of the program whose arguments
// Supervise takes.
const superviseVerb = "supervise"

// The first argument of Supervise. Programs of other versions use the same.
const (
	modeWork          = "work"  // run whatever is due
	modeStandby       = "guard" // stand by, and take over when the supervisor at the other end of the link dies
	modeWake          = "wake"  // that, after a push, and tell notifier, and wait for what is scheduled soon
	modeServerStandby = "host"  // stand by for a server, and take over in all of its threads
)

// ControlSocket, in run/, is where a server is asked and steered: a request, a line of
// JSON, and an answer, a line of JSON, for each connection. The first request of
// Turns makes it a connection of lines of [TurnRequest] and [TurnAnswer].
const ControlSocket = ".control"

// envDispatch says who starts the handlers after a push. Its values:
const (
	envDispatch  = "THREAD_DISPATCH"
	wakeAuto     = "auto"     // ourselves, and notifier is told if it is on PATH; the default
	wakeNotifier = "notifier" // ourselves, and notifier is told
	wakeSpawn    = "spawn"    // ourselves
	wakeNone     = "none"     // no dispatch
)

// A ping tells the server of a thread, if there is one, to look for
// handlers to start. It is one datagram to the socket run/.wake:
//
//	kind      1  'p' after a push or by hand: what has unread events runs;
//	             'l' after a release: what was stopped runs only for new events;
//	             's' the schedule has changed
//	consumer     whose handler made the push, empty for none
//
// Who sends it has done its part when the kernel has taken it: the process that
// has the socket looks when it reads it, and when that process is killed first,
// its standby does.
const (
	pingPush     = 'p'
	pingLook     = 'l'
	pingSchedule = 's'
)

func parsePing(b []byte) Ping {
	if len(b) == 0 {
		return Ping{}
	}
	return Ping{Push: b[0] == pingPush, Author: string(b[1:])}
}

// wakeSocket is the name of the socket in run/.
const wakeSocket = ".wake"

// Ping is a received ping.
type Ping struct {
	Push   bool   // a push, or thread dispatch
	Author string // the consumer whose handler made the push, "" for none
}
