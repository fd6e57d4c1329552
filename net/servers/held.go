package servers

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"sync"
	"time"

	"thread/engine"
	"thread/internal/cli"
	"thread/net/pgstore"
)

// Lease is how long a turn lasts that is not renewed: pgstore.Lease but in tests.
var Lease = pgstore.Lease

// ErrCutOff says that a turn could not be renewed for so long that another process may
// take it soon.
var ErrCutOff = errors.New("the turn could not be renewed")

// held is a turn that is renewed.
type held struct {
	tree
	s    *pgstore.Store
	stop context.CancelFunc
	over chan struct{} // the renewing has ended
	lost chan struct{}

	mu  sync.Mutex
	err error
}

// Lock implements cli.Servers.
func (Servers) Lock(ctx context.Context, t *engine.Thread, consumer string, wait bool) (cli.Held, error) {
	s := t.Store().(*pgstore.Store)
	if s.Fence() > 0 { // Join: who runs this handler renews it
		return &joined{tree{t: t, consumer: consumer, suffix: workSuffix}}, nil
	}
	if err := takeTurn(ctx, s, consumer, wait); err != nil {
		return nil, err
	}
	renewing, stop := context.WithCancel(context.WithoutCancel(ctx))
	h := &held{tree: tree{t: t, consumer: consumer, suffix: treeSuffix}, s: s, stop: stop, over: make(chan struct{}), lost: make(chan struct{})}
	go h.renew(renewing, Lease)
	return h, nil
}

// EnvTurn is the fence of the turn in which serve runs a handler.
const EnvTurn = "THREAD_TURN"

// Join implements cli.Servers.
func (Servers) Join(t *engine.Thread, consumer string) {
	fence, err := strconv.ParseInt(os.Getenv(EnvTurn), 10, 64)
	if err == nil && fence > 0 && os.Getenv("THREAD_CONSUMER") == consumer && os.Getenv("THREAD_DIR") == t.URL() {
		t.Store().(*pgstore.Store).JoinTurn(consumer, fence)
	}
}

// joined is a turn that is another process's, the one that ends this one when it is lost.
type joined struct{ tree }

func (*joined) Lost() <-chan struct{} { return nil }
func (*joined) Err() error            { return nil }

func (j *joined) Release(context.Context) error {
	j.release()
	return nil
}

// takeTurn waits, with wait, for as long as others have the turn.
func takeTurn(ctx context.Context, s *pgstore.Store, consumer string, wait bool) error {
	w := s.Watch(ctx) // before the first look
	defer w.Close()
	for {
		err := s.TakeTurn(ctx, consumer, Lease)
		taken := (*pgstore.TakenError)(nil)
		if !wait || !errors.As(err, &taken) {
			return err
		}
		if err := w.Wait(ctx, time.Now().Add(taken.Left)); err != nil {
			return err
		}
	}
}

// renew renews the turn every sixth of a lease, until it is lost or that has not been
// possible for two thirds of one: what runs is ended then, while no other process can have
// begun.
func (h *held) renew(ctx context.Context, lease time.Duration) {
	defer close(h.over)
	tick := time.NewTicker(lease / 6)
	defer tick.Stop()
	for renewed := time.Now(); ; {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		at := time.Now()
		limited, cancel := context.WithDeadline(ctx, renewed.Add(lease*2/3))
		err := h.s.RenewTurn(limited, lease)
		cancel()
		switch {
		case err == nil:
			renewed = at
		case ctx.Err() != nil:
			return
		case errors.Is(err, pgstore.ErrTurnLost):
			h.fail(err)
			return
		case time.Since(renewed) >= lease*2/3:
			h.fail(fmt.Errorf("%w for %s: %w", ErrCutOff, lease*2/3, err))
			return
		}
	}
}

func (h *held) fail(err error) {
	h.mu.Lock()
	h.err = err
	h.mu.Unlock()
	close(h.lost)
}

// Lost implements cli.Held.
func (h *held) Lost() <-chan struct{} { return h.lost }

// Err implements cli.Held.
func (h *held) Err() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.err
}

// Release implements cli.Held.
func (h *held) Release(ctx context.Context) error {
	h.stop()
	<-h.over
	h.release()
	limited, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	if err := h.s.GiveTurnBack(limited); h.Err() == nil {
		return err
	}
	return nil
}
