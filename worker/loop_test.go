package worker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"thread/engine"
	"thread/event"
)

// script is a feed whose steps are written down. A step that is not is an error.
type script struct {
	t     *testing.T
	began time.Time
	steps []func() (engine.Given, error)
	asked []string // when, for how many deliveries, with how many results
}

func (s *script) Step(_ context.Context, q engine.Step) (engine.Given, error) {
	s.asked = append(s.asked, fmt.Sprintf("%v %d %d", time.Since(s.began), q.Begin, len(q.Results)))
	if len(s.asked) > len(s.steps) {
		s.t.Errorf("a step too many: %q", s.asked)
		return engine.Given{}, errors.New("too many")
	}
	return s.steps[len(s.asked)-1]()
}

// given is a step that gives these events out.
func given(g engine.Given, ids ...int64) func() (engine.Given, error) {
	for _, id := range ids {
		g.Begin = append(g.Begin, engine.Delivery{Events: []event.Event{{ID: id}}})
	}
	return func() (engine.Given, error) { return g, nil }
}

func fails(err error) func() (engine.Given, error) {
	return func() (engine.Given, error) { return engine.Given{}, err }
}

var errStop, errStep, errLast = errors.New("stop"), errors.New("step"), errors.New("last")

// TestLoop: when the loop asks for what, by the clock of synctest, on which the work of event n
// takes n minutes. A loop that never waits would stop that clock.
func TestLoop(t *testing.T) {
	for _, tt := range []struct {
		name    string
		p       Policy
		steps   []func() (engine.Given, error)
		written []time.Duration // when another process writes
		stop    time.Duration   // 0: never
		asked   []string
		took    time.Duration
		want    []error
	}{
		{"nothing", Policy{Parallel: 1, Drain: true}, []func() (engine.Given, error){given(engine.Given{})}, nil, 0, []string{"0s 1 0"}, 0, nil},
		{"nothing, stopped", Policy{Parallel: 1}, []func() (engine.Given, error){given(engine.Given{})}, nil, 5 * time.Minute, []string{"0s 1 0"}, 5 * time.Minute, []error{errStop}},
		{"a write", Policy{Parallel: 1}, []func() (engine.Given, error){given(engine.Given{}), given(engine.Given{})}, []time.Duration{time.Minute}, 5 * time.Minute, []string{"0s 1 0", "1m0s 1 0"}, 5 * time.Minute, []error{errStop}},
		{"all are at work, and one may be tried", Policy{Parallel: 1, Drain: true},
			[]func() (engine.Given, error){given(engine.Given{NotBefore: time.Unix(1, 0)}, 10), given(engine.Given{})},
			[]time.Duration{time.Minute, 2 * time.Minute, 3 * time.Minute}, 0, []string{"0s 1 0", "10m0s 1 1"}, 10 * time.Minute, nil},
		{"one of two is at work", Policy{Parallel: 2, Drain: true},
			[]func() (engine.Given, error){given(engine.Given{}, 10), given(engine.Given{}), given(engine.Given{})},
			[]time.Duration{time.Minute}, 0, []string{"0s 2 0", "1m0s 1 0", "10m0s 2 1"}, 10 * time.Minute, nil},
		{"one waits for its time", Policy{Parallel: 1, Drain: true},
			[]func() (engine.Given, error){given(engine.Given{NotBefore: time.Date(2000, 1, 1, 0, 1, 30, 0, time.UTC)}), given(engine.Given{NotBefore: time.Date(2000, 1, 1, 0, 1, 30, 0, time.UTC)}), given(engine.Given{})},
			nil, 0, []string{"0s 1 0", "1m0s 1 0", "1m30s 1 0"}, 90 * time.Second, nil},
		{"more to look at", Policy{Parallel: 2, Drain: true},
			[]func() (engine.Given, error){given(engine.Given{More: true}), given(engine.Given{More: true}, 1), given(engine.Given{}), given(engine.Given{})},
			nil, 0, []string{"0s 2 0", "0s 2 0", "0s 1 0", "1m0s 2 1"}, time.Minute, nil},
		{"busy", Policy{Parallel: 1, Drain: true},
			[]func() (engine.Given, error){fails(engine.ErrBusy), given(engine.Given{More: true}, 1), fails(engine.ErrBusy), given(engine.Given{})},
			nil, 0, []string{"0s 1 0", "50ms 1 0", "1m0.05s 1 1", "1m0.1s 1 1"}, time.Minute + 2*busyTime, nil},
		{"a step fails", Policy{Parallel: 2},
			[]func() (engine.Given, error){given(engine.Given{}, 1, 10), fails(errStep), fails(errLast)},
			[]time.Duration{2 * time.Minute}, 0, []string{"0s 2 0", "1m0s 1 1", "10m0s 0 1"}, 10 * time.Minute, []error{errStep, errLast}},
		{"stopped, and a step fails", Policy{Parallel: 2},
			[]func() (engine.Given, error){given(engine.Given{NotBefore: time.Unix(1, 0)}, 1, 10), fails(errStep), given(engine.Given{})},
			[]time.Duration{2 * time.Minute}, 30 * time.Second, []string{"0s 2 0", "1m0s 0 1", "10m0s 0 1"}, 10 * time.Minute, []error{errStop, errStep}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &script{t: t, began: time.Now(), steps: tt.steps}
				ctx, cancel := context.WithCancelCause(t.Context())
				defer cancel(nil)
				if tt.stop > 0 {
					time.AfterFunc(tt.stop, func() { cancel(errStop) })
				}
				written := make(chan struct{}, 1)
				for _, at := range tt.written {
					time.AfterFunc(at, func() { written <- struct{}{} })
				}
				l := &loop{Policy: tt.p, feed: s, ctx: ctx, cancel: cancel, results: make(chan engine.DeliveryResult, tt.p.Parallel), look: true,
					fn: func(_ context.Context, e event.Event) error {
						time.Sleep(time.Duration(e.ID) * time.Minute)
						return nil
					}}
				err := l.run(written)
				for _, want := range tt.want {
					if !errors.Is(err, want) {
						t.Errorf("%v, want %v", err, want)
					}
				}
				if took := time.Since(s.began); err != nil && tt.want == nil || took != tt.took {
					t.Errorf("after %v: %v, want %v", took, err, tt.took)
				}
				if !slices.Equal(s.asked, tt.asked) {
					t.Errorf("asked %q, want %q", s.asked, tt.asked)
				}
			})
		})
	}
}
