package lane

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

func yes() bool { return true }

// L-16 to L-19: The cases of the original's src/agents/pi-embedded-runner/runs.test.ts.
func TestOriginalRuns(t *testing.T) {
	var aborted []string
	abort := func(name string) func() { return func() { aborted = append(aborted, name) } }

	bubble(t, "25 aborts only compacting runs in compacting mode", func(t *testing.T) {
		r := NewRegistry(nil)
		aborted = nil
		r.Register("a", &Run{Abort: abort("a"), Compacting: yes})
		r.Register("b", &Run{Abort: abort("b"), Streaming: yes})
		equal(t, "count", r.AbortCompacting(), 1)
		if !slices.Equal(aborted, []string{"a"}) {
			t.Errorf("aborted: %v", aborted)
		}
		equal(t, "count of none", NewRegistry(nil).AbortCompacting(), 0)
	})

	bubble(t, "26 aborts every active run in all mode", func(t *testing.T) {
		var log logBook
		r := NewRegistry(log.logger())
		aborted = nil
		r.Register("a", &Run{Abort: func() { abort("a")(); panic("broken abort") }})
		r.Register("b", &Run{Abort: abort("b")})
		equal(t, "count", r.AbortAll(), 2)
		if !slices.Equal(aborted, []string{"a", "b"}) {
			t.Errorf("aborted: %v", aborted)
		}
		equal(t, "panics logged", len(log.lines("level=ERROR", "broken abort")), 1)
		aborted = nil
		equal(t, "one", r.Abort("b"), true)
		equal(t, "of none", r.Abort("c"), false)
		if !slices.Equal(aborted, []string{"b"}) {
			t.Errorf("aborted: %v", aborted)
		}
	})

	bubble(t, "27 waits for active runs to drain", func(t *testing.T) {
		r := NewRegistry(nil)
		a, b := new(Run), new(Run)
		r.Register("a", a)
		r.Register("b", b)
		time.AfterFunc(200*time.Millisecond, func() { r.Clear("a", a) })
		time.AfterFunc(500*time.Millisecond, func() { r.Clear("b", b) })
		start := time.Now()
		equal(t, "drained", r.WaitIdle(background, time.Second), true)
		equal(t, "took", time.Since(start), 500*time.Millisecond)
	})

	bubble(t, "28 returns drained=false when timeout elapses", func(t *testing.T) {
		r := NewRegistry(nil)
		r.Register("a", new(Run))
		start := time.Now()
		equal(t, "drained", r.WaitIdle(background, time.Second), false)
		equal(t, "took", time.Since(start), time.Second)
	})

	bubble(t, "29 shares active run state across distinct module instances", func(t *testing.T) {
		one := NewRegistry(nil)
		other := one // there are no modules to load twice: a handle is the pointer
		run := new(Run)
		one.Register("a", run)
		equal(t, "active seen", other.Active("a"), true)
		other.Clear("a", run)
		equal(t, "end seen", one.Active("a"), false)
	})

	bubble(t, "30 tracks and clears per-session transcript snapshots for active runs", func(t *testing.T) {
		r := NewRegistry(nil)
		equal(t, "kept without a run", r.PutNote("a", "snapshot", 1), false)
		run := new(Run)
		r.Register("a", run)
		equal(t, "kept", r.PutNote("a", "snapshot", "three messages"), true)
		got, ok := r.Note("a", "snapshot")
		equal(t, "snapshot", got, any("three messages"))
		equal(t, "found", ok, true)
		r.Clear("a", run)
		_, ok = r.Note("a", "snapshot")
		equal(t, "found after the end", ok, false)
	})

	bubble(t, "31 stores and consumes pending live model switch requests", func(t *testing.T) {
		r := NewRegistry(nil)
		r.Register("a", new(Run))
		r.PutNote("a", "switch", "model-b")
		got, ok := r.TakeNote("a", "switch")
		equal(t, "request", got, any("model-b"))
		equal(t, "found", ok, true)
		_, ok = r.TakeNote("a", "switch")
		equal(t, "found again", ok, false)
		_, ok = r.TakeNote("b", "switch")
		equal(t, "found without a run", ok, false)
	})

	bubble(t, "32 drops pending live model switch requests when the run clears", func(t *testing.T) {
		r := NewRegistry(nil)
		run := new(Run)
		r.Register("a", run)
		r.PutNote("a", "switch", "model-b")
		r.Clear("a", run)
		r.Register("a", run)
		_, ok := r.TakeNote("a", "switch")
		equal(t, "found", ok, false)
		r.PutNote("a", "switch", "model-b")
		r.Register("a", new(Run))
		_, ok = r.TakeNote("a", "switch")
		equal(t, "found by a replacement", ok, false)
	})

	// L-16 follows the seed where later versions of the original (34, 38) accept
	// messages while a tool runs.
	no := func() bool { return false }
	failure := errors.New("delivery failed")
	for _, c := range []struct {
		name string
		run  *Run
		want error
	}{
		{"33 returns false when no active run exists for the session", nil, NoActiveRun},
		{"34 refuses message when session is active but NOT streaming", &Run{Streaming: no}, NotStreaming},
		{"35 returns false when session is active but compacting", &Run{Streaming: yes, Compacting: yes}, Compacting},
		{"36 queues message when active and streaming", &Run{Streaming: yes, Compacting: no}, nil},
		{"37a returns false when agent loop not yet running", &Run{}, NotStreaming},
		{"37b returns false when agent loop already stopped", &Run{Streaming: yes, Stopped: yes}, NotStreaming},
		{"38 refuses when active, not streaming, not stopped", &Run{Streaming: no, Stopped: no}, NotStreaming},
		{"not streaming is found before compacting", &Run{Compacting: yes}, NotStreaming},
	} {
		bubble(t, c.name, func(t *testing.T) {
			r := NewRegistry(nil)
			var got []string
			if c.run != nil {
				c.run.Deliver = func(m string) error { got = append(got, m); return nil }
				r.Register("a", c.run)
			}
			equal(t, "error", r.Send("a", "hello"), c.want)
			if delivered := slices.Equal(got, []string{"hello"}); delivered != (c.want == nil) {
				t.Errorf("delivered: %v", got)
			}
		})
	}
	equal(t, "text of a refusal", NoActiveRun.Error()+" "+NotStreaming.Error()+" "+Compacting.Error(),
		"no_active_run not_streaming compacting")

	bubble(t, "the run's own refusal reaches the sender", func(t *testing.T) {
		r := NewRegistry(nil)
		r.Register("a", &Run{Streaming: yes, Deliver: func(string) error { return failure }})
		equal(t, "error", r.Send("a", "hello"), failure)
	})

	bubble(t, "39-41 isActiveForSessionKey true, false for unknown, false after clear", func(t *testing.T) {
		r := NewRegistry(nil)
		run := new(Run)
		r.Register("a", run)
		equal(t, "a", r.Active("a"), true)
		equal(t, "unknown", r.Active("b"), false)
		equal(t, "cleared", r.Clear("a", run), true)
		equal(t, "a after", r.Active("a"), false)
	})

	bubble(t, "42 forceDetach removes the run and notifies waiters", func(t *testing.T) {
		r := NewRegistry(nil)
		r.Register("a", new(Run))
		ended := make(chan bool)
		go func() { ended <- r.WaitEnd(background, "a", DefaultEndTimeout) }()
		synctest.Wait()
		start := time.Now()
		equal(t, "detached", r.Detach("a"), true)
		equal(t, "waiter", <-ended, true)
		equal(t, "took", time.Since(start), 0)
		equal(t, "active", r.Active("a"), false)
	})

	bubble(t, "43 forceDetach returns false when nothing registered", func(t *testing.T) {
		equal(t, "detached", NewRegistry(nil).Detach("a"), false)
	})

	bubble(t, "44 old run's clear becomes a no-op after force-detach", func(t *testing.T) {
		r := NewRegistry(nil)
		old, young := new(Run), new(Run)
		r.Register("a", old)
		r.Detach("a")
		r.Register("a", young)
		equal(t, "cleared", r.Clear("a", old), false)
		equal(t, "young active", r.Active("a"), true)
		equal(t, "cleared by its own", r.Clear("a", young), true)
	})
}

// L-18, which the original tests only through its callers.
func TestWaitEnd(t *testing.T) {
	for _, c := range []struct {
		name          string
		timeout, want time.Duration
	}{
		{"the default", DefaultEndTimeout, 15 * time.Second},
		{"the least, for zero", 0, 100 * time.Millisecond},
		{"the least, for a negative one", -time.Hour, 100 * time.Millisecond},
		{"the least, for a shorter one", time.Millisecond, 100 * time.Millisecond},
		{"as given", 2 * time.Second, 2 * time.Second},
	} {
		bubble(t, "times out after "+c.name, func(t *testing.T) {
			r := NewRegistry(nil)
			r.Register("a", new(Run))
			start := time.Now()
			equal(t, "ended", r.WaitEnd(background, "a", c.timeout), false)
			equal(t, "took", time.Since(start), c.want)
		})
	}
	bubble(t, "is true at once without a run", func(t *testing.T) {
		r := NewRegistry(nil)
		r.Register("a", new(Run))
		start := time.Now()
		equal(t, "unknown", r.WaitEnd(background, "b", DefaultEndTimeout), true)
		equal(t, "empty", r.WaitEnd(background, "", DefaultEndTimeout), true)
		equal(t, "took", time.Since(start), 0)
	})
	bubble(t, "spans the replacement of a run", func(t *testing.T) {
		r := NewRegistry(nil)
		old, young := new(Run), new(Run)
		r.Register("a", old)
		time.AfterFunc(time.Second, func() {
			r.Register("a", young)
			equal(t, "cleared by the old one", r.Clear("a", old), false)
		})
		time.AfterFunc(3*time.Second, func() { r.Clear("a", young) })
		start := time.Now()
		equal(t, "ended", r.WaitEnd(background, "a", DefaultEndTimeout), true)
		equal(t, "took", time.Since(start), 3*time.Second)
	})
}

func TestWaitsEndWithTheirContext(t *testing.T) {
	bubble(t, "all of them", func(t *testing.T) {
		ctx, cancel := context.WithTimeout(background, time.Second)
		defer cancel()
		r, q := NewRegistry(nil), New(nil)
		r.Register("a", new(Run))
		g := make(gate)
		defer g.open()
		submit(t, q, Lane(solo), g.run)
		start := time.Now()
		results := make(chan bool)
		go func() { results <- r.WaitEnd(ctx, "a", time.Minute) }()
		go func() { results <- r.WaitIdle(ctx, time.Minute) }()
		go func() { results <- q.WaitActive(ctx, time.Minute) }()
		for range 3 {
			equal(t, "ended", <-results, false)
		}
		equal(t, "took", time.Since(start), time.Second)
	})
}

func TestRegisterRefusesNothingToRegister(t *testing.T) {
	for _, f := range []func(r *Registry){
		func(r *Registry) { r.Register("", new(Run)) },
		func(r *Registry) { r.Register("a", nil) },
	} {
		r := NewRegistry(nil)
		func() {
			defer func() {
				if recover() == nil {
					t.Error("no panic")
				}
			}()
			f(r)
		}()
		equal(t, "sessions", len(r.Sessions()), 0)
	}
}

// Every registration is cleared once, by the first caller, and each waiter is
// notified.
func TestRegistryStress(t *testing.T) {
	r := NewRegistry(nil)
	var wg sync.WaitGroup
	for w := range 4 {
		wg.Go(func() {
			session := strconv.Itoa(w % 2)
			for range 1_000 {
				run := &Run{Streaming: yes, Deliver: func(string) error { return nil }}
				r.Register(session, run)
				r.Send(session, "hello")
				r.PutNote(session, "key", w)
				r.TakeNote(session, "key")
				r.AbortAll()
				r.Clear(session, run)
				if w == 0 {
					r.Detach("1")
				}
			}
			r.Detach(session)
		})
	}
	equal(t, "idle", r.WaitIdle(background, time.Minute), true)
	wg.Wait()
	equal(t, "sessions", len(r.Sessions()), 0)
}
