package otlp

import (
	"context"
	"errors"
	"strings"

	"thread/engine"
	"thread/event"
	"thread/internal/spans"
	"thread/internal/traces"
)

// Tracer exports what is recorded in threads. A nil Tracer does nothing.
type Tracer struct {
	c    *Client
	opts func(dir string) []engine.Option

	followers map[string]*traces.Follower
	failed    map[string]string // the last failure, by address
}

// NewTracer returns a tracer that opens a thread with the options that opts returns for its
// address.
func NewTracer(c *Client, opts func(dir string) []engine.Option) *Tracer {
	return &Tracer{c: c, opts: opts, followers: map[string]*traces.Follower{}, failed: map[string]string{}}
}

// Start exports from the threads that dirs returns, each second. stop ends it, after
// what has ended by then, and within some seconds.
func (t *Tracer) Start(dirs func() []string) (stop func()) {
	if t == nil {
		return func() {}
	}
	ctx, cancel := context.WithCancel(context.Background())
	for _, dir := range dirs() {
		t.note(dir, t.follower(ctx, dir))
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer t.close()
		follow(ctx, func(ctx context.Context) bool { return t.look(ctx, dirs()) })
	}()
	return func() {
		cancel()
		<-done
	}
}

// follower makes the follower of a thread, unless it is there.
func (t *Tracer) follower(ctx context.Context, dir string) error {
	if t.followers[dir] != nil {
		return nil
	}
	t.followers[dir] = traces.Follow(dir, t.opts(dir)...)
	return t.followers[dir].Begin(ctx)
}

func (t *Tracer) close() {
	for _, f := range t.followers {
		f.Close()
	}
}

// look exports from each thread. others says that another process exports from one.
func (t *Tracer) look(ctx context.Context, dirs []string) (others bool) {
	there := map[string]bool{}
	for _, dir := range dirs {
		there[dir] = true
		err := t.follower(ctx, dir)
		if err == nil {
			err = t.followers[dir].Look(ctx, t.c.Send)
		}
		if errors.Is(err, traces.ErrHeld) {
			others, err = true, nil
		}
		if ctx.Err() == nil {
			t.note(dir, err)
		}
	}
	for dir, f := range t.followers {
		if !there[dir] {
			f.Close()
			delete(t.followers, dir)
			delete(t.failed, dir)
		}
	}
	return others
}

// note warns of an error once.
func (t *Tracer) note(dir string, err error) {
	said := ""
	if err != nil {
		said = err.Error()
	}
	if said != "" && said != t.failed[dir] {
		t.c.warn("traces: the history of %s cannot be read, tried again: %s", dir, said)
	}
	t.failed[dir] = said
}

// Environment returns what the handler of a run finds of its trace, as
// VARIABLE=value.
func (t *Tracer) Environment(ctx context.Context, th *engine.Thread, runID string, first int64) []string {
	if t == nil {
		return nil
	}
	var env []string
	_ = th.View(ctx, func(tx *engine.Tx) error { // the handler will meet the error itself
		e, ok, err := tx.Event(first)
		if !ok || err != nil {
			return err
		}
		env = []string{"TRACEPARENT=" + spans.Handler(th.Address(), runID, &event.Event{ID: e.ID, Content: strings.Clone(e.Content)}).Traceparent()}
		return nil
	})
	return env
}
