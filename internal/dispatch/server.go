package dispatch

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"thread/engine"
	"thread/lock"
)

// Server runs the handlers of one thread within a process that stays. It holds
// the same locks as a supervisor, so both may be at work on one thread. The
// caller decides when a consumer runs and how many run at once, and it looks at
// all consumers (Due) whenever an Outcome says so.
type Server struct {
	*dispatcher
	lock    *lock.File
	standby *standby // nil: there is none
}

// AdoptOrphans makes this process the parent of what its handlers' processes leave,
// where the system can, so that all of a handler that was killed is found. It is for
// a program all of whose children are started by this package.
func AdoptOrphans() { adoptOrphans() }

// UseStandby makes the runs known to the standby, so that it continues to copy what they
// print.
func (r *Server) UseStandby(g *Standby) { r.standby = g.s }

const serverLockPause = 10 * time.Millisecond

// NewServer makes this process the server of the thread, until Close. It waits for another one to end, and returns ErrServed when ctx ends
// first, and an OwnerError at once in a thread of another account. Some wait is always in place: a child that a killed process was just
// starting holds its locks until it is a separate program.
func NewServer(ctx context.Context, t *engine.Thread) (*Server, error) {
	r := &Server{dispatcher: newDispatcher(t, Options{MaxHandlers: serverSlots})}
	if err := Own(t.Dir()); err != nil {
		return nil, err
	}
	if err := r.prepare(); err != nil {
		return nil, err
	}
	for {
		// Asked again and again: the kernel's wait cannot be called off.
		l, err := lock.Try(filepath.Join(r.run, ".serve"), lock.Exclusive)
		switch {
		case err == nil:
			r.lock = l
			return r, nil
		case !errors.Is(err, lock.ErrHeld):
			return nil, err
		case ctx.Err() != nil:
			return nil, fmt.Errorf("%w: %s", ErrServed, t.Dir())
		}
		wait(ctx, serverLockPause)
	}
}

// Close lets another process be the server. Runs in progress continue.
func (r *Server) Close() { release(r.lock) }

// Renew takes the lock of NewResident again if run/ was deleted, which it may be
// at any time.
func (r *Server) Renew() error {
	if err := Own(r.t.Dir()); err != nil {
		return err // it is another directory by now
	}
	path := filepath.Join(r.run, ".serve")
	if same, err := lock.Names(path, r.lock.File()); same && err == nil {
		return nil
	}
	if err := r.prepare(); err != nil {
		return err
	}
	l, err := lock.Try(path, lock.Exclusive)
	if err != nil {
		return err
	}
	release(r.lock)
	r.lock = l
	return nil
}

// Listen opens the socket for the thread's pings.
func (r *Server) Listen() (*Pings, error) {
	if err := r.prepare(); err != nil {
		return nil, err
	}
	return r.listen()
}

// Due returns the consumers that have unread events, the one with the oldest first. Those whose filter is broken
// are logged and left out. Due returns ErrBusy after the engine's wait: the
// caller has other threads to look at, and comes back.
func (r *Server) Due(ctx context.Context) (due []engine.Due, err error) {
	all, err := dueInOrder(ctx, r.t)
	for _, d := range all {
		if d.Err != nil {
			r.logBroken(d.Consumer, d.Err)
			continue
		}
		due = append(due, d)
	}
	return due, err
}

// Pending reports whether a consumer has something to be run for without another
// push or server.
func (r *Server) Pending(ctx context.Context) (bool, error) {
	due, err := r.t.Due(ctx)
	others := newDispatcher(r.t, Options{})
	for _, d := range due {
		if d.Err != nil {
			continue
		}
		if pending, err := others.ruleNew(ctx, d, others.readNote(d.Consumer)); pending || err != nil {
			return true, err
		}
	}
	return false, err
}

// Outcome says what came of a Run or a Resume.
type Outcome struct {
	Ran   bool   // the handler ran, or a lost run was dealt with
	Look  bool   // something was released: look at all consumers of the thread
	Retry *Retry // not nil: to be given to Resume at Retry.At
}

// Retry is the right to run a consumer again later. Until then, no other process runs
// it.
type Retry struct {
	Consumer string
	At       time.Time
	waiter   *waiter
}

// Release gives the right back, and its descriptor. The note still says how often
// the consumer has failed, and a Run at Retry.At continues from there; until then
// another process may run it.
func (r *Retry) Release() {
	if r.waiter != nil { // nil on a server, where no process keeps a turn meanwhile
		release(r.waiter.supervisorLock)
	}
}

// Run runs the consumer's handler once, if it has unread events and no other process
// runs it, and returns when the handler has ended. With fresh, a consumer that
// was left to the next push runs only for events that came since. The error is
// about this consumer; the outcome is valid.
//
// When ctx ends, Run returns while the handler continues, and this process has to
// end.
func (r *Server) Run(ctx context.Context, consumer string, onlyNew bool, hooks *Hooks) (Outcome, error) {
	if err := r.prepare(); err != nil {
		return Outcome{}, err
	}
	rule := r.rulePending
	if onlyNew {
		rule = r.ruleNew
	}
	s := r.supervisor(hooks)
	c, a, err := r.claim(ctx, consumer, rule)
	if c == nil {
		return Outcome{Look: a == recheck}, err
	}
	if c.lost == nil {
		s.logSpawned(c)
	}
	return s.turn(ctx, c)
}

// Resume runs the consumer of a retry again.
func (r *Server) Resume(ctx context.Context, retry *Retry, hooks *Hooks) (Outcome, error) {
	s := r.supervisor(hooks)
	s.waiting[retry.Consumer] = retry.waiter
	c, err := s.resume(ctx, retry.Consumer)
	if c == nil {
		return Outcome{Look: true}, err
	}
	s.logSpawned(c)
	return s.turn(ctx, c)
}

// supervisor returns one for a single run. It has no standby: the process has.
func (r *Server) supervisor(hooks *Hooks) *supervisor {
	if hooks == nil {
		hooks = &Hooks{}
	}
	return &supervisor{dispatcher: r.dispatcher, waiting: map[string]*waiter{}, hooks: hooks, standby: r.standby}
}

func (s *supervisor) turn(ctx context.Context, c *claim) (Outcome, error) {
	t := Outcome{Ran: true, Look: true}
	w, err := s.attempt(ctx, c)
	if w != nil {
		t.Retry = &Retry{Consumer: c.due.Consumer, At: w.at, waiter: w}
	}
	return t, err
}

// Standby is the standby of a server: it takes over in all of the threads added to it
// when this process ends, however that happens.
type Standby struct{ s *standby }

// StartStandby starts it. warn is called when there is none.
func StartStandby(warn func(format string, args ...any) error) *Standby {
	g := &Standby{&standby{warn: warn, debug: func(string, ...any) error { return nil }, tried: make(chan struct{}), exited: make(chan struct{}),
		args: []string{superviseVerb, modeServerStandby}}}
	g.s.start()
	g.s.await()
	return g
}

// Add adds a thread directory, given by its absolute path.
func (g *Standby) Add(dir string) { g.s.addDir(dir) }

// Stop ends the standby, as there is nothing to take over.
func (g *Standby) Stop() { g.s.stop() }

// Served reports whether a server has the thread directory dir. It creates nothing.
func Served(dir string) bool {
	path := filepath.Join(dir, "run", ".serve")
	if _, err := os.Lstat(path); err != nil {
		return false
	}
	l, err := lock.Try(path, lock.Shared)
	if err != nil {
		return errors.Is(err, lock.ErrHeld)
	}
	_ = l.Close()
	return false
}
