//go:build linux

package dispatch

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"thread/engine"
	"thread/internal/faults"
	"thread/lock"
)

// step is what others do when a call is about to be made for the n-th time.
type step struct {
	name, path string
	n          int
	do         func()
}

// meanwhile calls fn, and what the others do meanwhile.
func meanwhile(t *testing.T, dir string, fn func(), others ...step) *faults.Fault {
	t.Helper()
	f := &faults.Fault{}
	f.Before = func(c faults.Call, _ int) {
		for i := range others {
			if o := &others[i]; c.Name == o.name && strings.HasSuffix(c.Path, o.path) {
				if o.n--; o.n == 0 {
					o.do()
				}
			}
		}
	}
	f.Run(t, dir, fn)
	for _, o := range others {
		if o.n > 0 {
			t.Errorf("%s %s was not called: %v", o.name, o.path, f.Calls)
		}
	}
	return f
}

// TestRoomIsTakenMeanwhile: what a look for room finds when slots and places come and go
// meanwhile. What it does not return it gives back.
func TestRoomIsTakenMeanwhile(t *testing.T) {
	th, err := engine.Init(filepath.Join(faults.Dir(t), "t"))
	must(t, err)
	defer th.Close()
	r := newDispatcher(th, Options{MaxHandlers: 1})
	must(t, r.prepare())
	for _, path := range []string{r.slotPath(0), r.placePath("cron", 0)} {
		release(exclusive(t, path)) // so that it is there
	}
	var slot, place *lock.File
	freeSlot := func() { release(slot); slot = nil }
	takePlace := func() { place = exclusive(t, r.placePath("cron", 0)) }
	for what, tt := range map[string]struct {
		lane   string
		full   bool // the slot is taken at first
		others []step
		want   claimResult
	}{
		"there is room":                          {"cron", false, nil, claimed},
		"no slot":                                {"cron", true, nil, noSlot},
		"no slot, in no lane":                    {"", true, nil, noSlot},
		"a slot is freed":                        {"cron", true, []step{{"openat", "slots/0", 2, freeSlot}}, claimed},
		"a slot is freed, and the place is gone": {"cron", true, []step{{"openat", "slots/0", 2, freeSlot}, {"openat", "slots/cron.0", 2, takePlace}}, recheck},
		"the place is gone at once":              {"cron", false, []step{{"openat", "slots/cron.0", 1, takePlace}}, noPlace},
	} {
		slot, place = nil, nil
		if tt.full {
			slot = exclusive(t, r.slotPath(0))
		}
		var got *room
		var a claimResult
		var err error
		meanwhile(t, th.Dir(), func() { got, a, err = r.tryRoom(tt.lane) }, tt.others...)
		if err != nil || a != tt.want || (got != nil) != (tt.want == claimed) || got != nil && (got.slot == nil || got.place == nil) {
			t.Errorf("%s: %+v, %v, %v", what, got, a, err)
		}
		got.release()
		freeSlot()
		release(place)
		if open := faults.Open(t, th.Dir()); open != nil {
			t.Errorf("%s: open are %q", what, open)
		}
	}
	for _, path := range []string{"slots/0", "slots/cron.0"} {
		f := faults.Nth(syscall.EIO, 1, "openat", path)
		f.Run(t, th.Dir(), func() {
			if got, a, err := r.tryRoom("cron"); got != nil || a == claimed || !errors.Is(err, syscall.EIO) {
				t.Errorf("%s: %+v, %v, %v", path, got, a, err)
			}
		})
		if open := faults.Open(t, th.Dir()); open != nil {
			t.Errorf("%s: open are %q", path, open)
		}
	}
	// A place that is not there is of no consumer.
	must(t, os.WriteFile(r.placePath("cron", 0), []byte("c"), 0o600))
	if list := r.inLane("cron"); len(list) != 1 || list[0] != "c" {
		t.Errorf("in the lane are %q", list)
	}
	must(t, os.Remove(r.placePath("cron", 0)))
	if list := r.inLane("cron"); len(list) != 0 {
		t.Errorf("in the lane are %q", list)
	}
}

// TestClaimMeanwhile: what a claim comes to when others push, free a slot, change the lane or
// take the consumer meanwhile. Room that was had for nothing asks for another look.
func TestClaimMeanwhile(t *testing.T) {
	const freed, changed, taken, pushed = 1, 2, 4, 8
	for what, tt := range map[string]struct {
		events int
		want   claimResult
		lane   string
	}{
		"no slot":                              {0, noSlot, ""},
		"a slot is freed":                      {freed, claimed, ""},
		"and the consumer is taken":            {freed | taken, recheck, ""},
		"and its lane is changed":              {freed | changed, claimed, "cron"},
		"and its lane is changed, and no room": {freed | changed | pushed, claimed, "cron"},
	} {
		th := withEvent(t, filepath.Join(faults.Dir(t), "t"), "true")
		defer th.Close()
		b := &bench{TB: t, t: th}
		r := newDispatcher(th, Options{MaxHandlers: 1})
		must(t, r.prepare())
		slot := exclusive(t, r.slotPath(0))
		var other *lock.File
		others := []step{{"openat", "slots/0", 2, func() {
			if tt.events&freed != 0 {
				release(slot)
			}
			if tt.events&taken != 0 {
				other = exclusive(t, r.handlerLockPath("c"))
			}
			if tt.events&pushed != 0 {
				b.push("s")
			}
			if tt.events&changed != 0 {
				must(t, th.Unsubscribe(context.Background(), "c"))
				must(t, th.Subscribe(context.Background(), engine.Subscription{Consumer: "c", Handler: "true", Lane: "cron"}))
				b.push("s")
			}
		}}}
		var c *claim
		var a claimResult
		var err error
		meanwhile(t, th.Dir(), func() { c, a, err = r.claim(context.Background(), "c", r.rulePending) }, others...)
		if err != nil || a != tt.want || (c != nil) != (a == claimed) {
			t.Errorf("%s: %+v, %v, %v", what, c, a, err)
		}
		if c != nil {
			if c.room.lane != tt.lane || (c.room.place != nil) != (tt.lane != "") || c.room.slot == nil {
				t.Errorf("%s: the room is %+v", what, c.room)
			}
			c.drop()
		}
		release(slot)
		release(other)
		if open := faults.Open(t, th.Dir()); open != nil {
			t.Errorf("%s: open are %q", what, open)
		}
	}
}

// TestPushBetweenTwoLooks: an event that comes while a claim that found nothing gives its
// locks back is found by its second look.
func TestPushBetweenTwoLooks(t *testing.T) {
	th, err := engine.Init(filepath.Join(faults.Dir(t), "t"))
	must(t, err)
	defer th.Close()
	must(t, th.Subscribe(t.Context(), engine.Subscription{Consumer: "c", Handler: "true", Lane: "cron"}))
	b := &bench{TB: t, t: th}
	r := newDispatcher(th, Options{})
	must(t, r.prepare())
	var c *claim
	var a claimResult
	take := func() { c, a, err = r.claim(context.Background(), "c", r.rulePending) }
	meanwhile(t, th.Dir(), take, step{"close", "run/c.lock", 1, func() { b.push("s") }})
	if c == nil || a != claimed || err != nil || c.due.First != 1 {
		t.Fatalf("%+v, %v, %v", c, a, err)
	}
	c.drop()
	// A place on which no name can be written is given back.
	f := faults.Nth(syscall.EIO, 1, "ftruncate", "slots/cron.0")
	f.Run(t, th.Dir(), take)
	if c != nil || !errors.Is(err, syscall.EIO) {
		t.Errorf("no name: %+v, %v, %v", c, a, err)
	}
	if open := faults.Open(t, th.Dir()); open != nil {
		t.Errorf("open are %q", open)
	}
}

// TestLookAgainForFreedRoom: a look whose room was for nothing looks at every consumer again,
// and one that is called off, or finds an error, says so.
func TestLookAgainForFreedRoom(t *testing.T) {
	th := withEvent(t, filepath.Join(faults.Dir(t), "t"), "true")
	defer th.Close()
	r := newDispatcher(th, Options{MaxHandlers: 1})
	must(t, r.prepare())
	release(exclusive(t, r.handlerLockPath("c"))) // so that it is there
	slot := exclusive(t, r.slotPath(0))
	s := newSupervisor(r)
	var err error
	f := meanwhile(t, th.Dir(), func() { err = s.next(context.Background()) }, step{"openat", "slots/0", 2, func() {
		release(slot)
		exclusive(t, r.handlerLockPath("c"))
	}})
	n := 0
	for _, c := range f.Names("openat") {
		if strings.HasSuffix(c, "run/c.lock") {
			n++
		}
	}
	if err != nil || n != 3 || s.running != 0 {
		t.Errorf("the consumer was looked at %d times, %d run, %v", n, s.running, err)
	}
	called, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.next(called); !errors.Is(err, context.Canceled) {
		t.Errorf("called off: %v", err)
	}
	if err := s.work(called); !errors.Is(err, context.Canceled) || s.running != 0 {
		t.Errorf("called off: %v", err)
	}
}

// TestOneConsumerCannotRun: a consumer that cannot be locked and one whose filter fails are
// logged, and hold up no other one.
func TestOneConsumerCannotRun(t *testing.T) {
	b := newBench(t)
	broken := "json_extract(content, '$.a') = 1"
	b.subscribe(engine.Subscription{Consumer: "blocked", Handler: drain})
	b.subscribe(engine.Subscription{Consumer: "broken", Handler: drain, Filter: &broken})
	b.subscribe(engine.Subscription{Consumer: "c", Handler: drain})
	last := b.push("s") // which is not JSON
	must(t, b.r.prepare())
	must(t, os.MkdirAll(filepath.Join(b.r.handlerLockPath("blocked"), "full"), 0o700))
	s := newSupervisor(b.r)
	s.first = true
	must(t, s.work(t.Context()))
	if b.acked("c") != last || b.acked("blocked") != 0 || b.acked("broken") != 0 {
		t.Errorf("acked %d, %d and %d", b.acked("c"), b.acked("blocked"), b.acked("broken"))
	}
	for _, line := range []string{"[ERROR] supervise: consumer=blocked open ", "[WARN] dispatch: consumer=broken skipped (filter: "} {
		if strings.Count(b.log(), line) == 0 {
			t.Errorf("no %q in the log:\n%s", line, b.log())
		}
	}
	if strings.Count(b.log(), "consumer=broken") != 1 {
		t.Errorf("a filter that fails is logged again and again:\n%s", b.log())
	}
	must(t, os.RemoveAll(b.r.handlerLockPath("blocked")))
	server := b.server()
	b.run(server, "blocked", false, true)
	b.run(server, "broken", false, false)
	if b.acked("blocked") != last || strings.Count(b.log(), "consumer=broken") < 2 {
		t.Errorf("acked %d\n%s", b.acked("blocked"), b.log())
	}
	// A dead letter that was sent back is news.
	if ok, err := b.r.ruleNew(t.Context(), engine.Due{Retried: 1}, note{State: stateStopped}); !ok || err != nil {
		t.Errorf("a dead letter: %v, %v", ok, err)
	}
}
