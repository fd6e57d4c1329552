package consume

import (
	"context"
	"os"
	"os/signal"
	"slices"
	"sync"
	"syscall"
	"time"
)

// Signals turns SIGINT and SIGTERM into an orderly end, see the package comment.
// All methods of a nil Signals do nothing.
type Signals struct {
	mu      sync.Mutex
	running []*os.Process // the running commands
	first   os.Signal     // nil: none came
	came    chan struct{} // closed when first is set
	caught  chan os.Signal
	done    chan struct{}
}

// CatchSignals returns a context that the first SIGINT or SIGTERM cancels. Stop
// gives the signals back.
func CatchSignals(ctx context.Context) (context.Context, *Signals) {
	ctx, cancel := context.WithCancel(ctx)
	s := &Signals{came: make(chan struct{}), caught: make(chan os.Signal, 4), done: make(chan struct{})}
	signal.Notify(s.caught, os.Interrupt, syscall.SIGTERM)
	go func() {
		defer cancel()
		for {
			select {
			case <-s.done:
				return
			case got := <-s.caught:
				cancel() // first, so that nothing begins once the signal is known
				s.got(got)
			}
		}
	}()
	return ctx, s
}

func (s *Signals) got(sig os.Signal) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.first == nil {
		s.first = sig
		close(s.came)
		return
	}
	for _, p := range s.running {
		p.Signal(syscall.SIGTERM)
	}
}

// Stop ends the catching.
func (s *Signals) Stop() {
	signal.Stop(s.caught)
	close(s.done)
}

func (s *Signals) attach(p *os.Process) {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.running = append(s.running, p)
}

// cameFirst is closed when the first signal has come.
func (s *Signals) cameFirst() <-chan struct{} {
	if s == nil {
		return nil
	}
	return s.came
}

func (s *Signals) detach(p *os.Process) {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.running = slices.DeleteFunc(s.running, func(r *os.Process) bool { return r == p })
}

// interruptGrace is how long the terminal's SIGINT may take to reach us after a
// command has died by itself.
const interruptGrace = 100 * time.Millisecond

// interrupted reports whether SIGINT came first, or comes now. To be asked when a
// command has died of one.
func (s *Signals) interrupted() bool {
	if s == nil {
		return false
	}
	late := time.NewTimer(interruptGrace)
	defer late.Stop()
	select {
	case <-s.came:
	case <-late.C:
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.first == os.Interrupt
}
