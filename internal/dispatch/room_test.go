//go:build linux

package dispatch

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"thread/engine"
	"thread/internal/lanes"
	"thread/lock"
)

// L-05: without a server, too, no more handlers run in a lane than its limit.
func TestLanesWithoutServer(t *testing.T) {
	for _, name := range []string{"cron", "a b/ü", "subagent", ""} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			limit := lanes.DefaultLimit(name)
			if name == "" {
				limit = 11 // no lane is named: the slots are what counts
			}
			came, leave := b.fifo("came"), b.fifo("leave")
			for i := range limit + 1 {
				b.subscribe(engine.Subscription{Consumer: fmt.Sprint("c", i), Lane: name,
					Handler: `echo $THREAD_CONSUMER > "$D/came"; read _ < "$D/leave"; ` + drain})
			}
			last := b.push("s")
			b.dispatch(Options{MaxHandlers: 12})
			for range limit {
				came.line()
			}
			if name == "" {
				came.line() // and the twelfth
			} else if held := b.places(name); held != limit {
				t.Errorf("%d places are held, want %d", held, limit)
			}
			for range limit + 1 {
				leave.say()
			}
			b.awaitIdle()
			for i := range limit + 1 {
				if got := b.acked(fmt.Sprint("c", i)); got != last {
					t.Errorf("c%d has acked %d of %d", i, got, last)
				}
			}
			if name != "" && b.places(name) != 0 {
				t.Errorf("%d places are held afterwards", b.places(name))
			}
		})
	}
}

// places counts the held places of a lane.
func (b *bench) places(name string) (n int) {
	b.Helper()
	for i := range lanes.DefaultLimit(name) {
		held, err := isHeld(b.r.placePath(name, i))
		if err != nil {
			b.Fatal(err)
		}
		if held {
			n++
		}
	}
	return n
}

// The place of a handler whose supervisor and standby are killed is free when the
// handler has ended, and who waits for it is run: by the process that came meanwhile.
func TestPlaceOfKilledSupervisor(t *testing.T) {
	b := newBench(t)
	came, leave := b.fifo("came"), b.fifo("leave")
	// The first acks what there is: no look at events finds it any more.
	b.subscribe(engine.Subscription{Consumer: "first", Lane: "cron", Handler: drain + `; echo $$ > "$D/came"; read _ < "$D/leave"`})
	last := b.push("s")
	b.dispatch(Options{})
	first, err := strconv.Atoi(came.line())
	if err != nil {
		t.Fatal(err)
	}
	for { // a standby may be on its way
		list, err := processes(b.t.Dir(), superviseVerb)
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range list {
			unix.Kill(p.pid, unix.SIGSTOP)
		}
		if again, _ := processes(b.t.Dir(), superviseVerb); len(again) == len(list) && len(list) >= 2 {
			for _, p := range list {
				unix.Kill(p.pid, unix.SIGKILL)
			}
			break
		}
	}
	b.until("supervisors are gone", func() bool {
		list, err := processes(b.t.Dir(), superviseVerb)
		return err == nil && len(list) == 0
	})
	if !alive(first) || b.places("cron") != 1 {
		t.Fatalf("alive: %v, %d places are held", alive(first), b.places("cron"))
	}
	b.subscribe(engine.Subscription{Consumer: "second", Lane: "cron", Handler: drain})
	b.dispatch(Options{})
	b.awaitLog("consumer=second waits for a place in lane cron, which has 1", 1)
	b.awaitLog("consumer=first", 1)
	if b.acked("second") != 0 {
		t.Error("two handlers in the lane")
	}
	leave.say()
	b.awaitIdle()
	if b.acked("second") != last || b.places("cron") != 0 {
		t.Errorf("acked %d of %d, %d places are held", b.acked("second"), last, b.places("cron"))
	}
}

// A place whose holder says nothing of itself, and one that names no process, hold up only
// those who need it, and only while it is held.
func TestPlaceOfNobody(t *testing.T) {
	b := newBench(t)
	if err := b.r.prepare(); err != nil {
		t.Fatal(err)
	}
	for i, said := range []string{"", strings.Repeat("x", 1<<20)} {
		path := b.r.placePath("cron", 0)
		if err := os.WriteFile(path, []byte(said), 0o600); err != nil {
			t.Fatal(err)
		}
		l, err := lock.Try(path, lock.Exclusive)
		if err != nil {
			t.Fatal(err)
		}
		consumer := fmt.Sprint("c", i)
		b.subscribe(engine.Subscription{Consumer: consumer, Lane: "cron", Handler: drain})
		other := b.push("s")
		b.dispatch(Options{})
		b.awaitIdle()
		if got := b.acked(consumer); got != 0 {
			t.Errorf("%q: acked %d without a place", said, got)
		}
		release(l)
		b.dispatch(Options{})
		b.awaitIdle()
		if got := b.acked(consumer); got != other {
			t.Errorf("%q: acked %d of %d", said, got, other)
		}
	}
}

func (b *bench) until(what string, ok func() bool) {
	b.Helper()
	for end := time.Now().Add(patience); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			b.Fatalf("not: %s\n%s", what, b.log())
		}
	}
}

// TestFirstComeFirstServed: L-03 and L-06. Of those that wait for a place in a lane, the
// consumer with the oldest unread event has it next, also when the one before is fed.
func TestFirstComeFirstServed(t *testing.T) {
	b := newBench(t)
	came, leave := b.fifo("came"), b.fifo("leave")
	for i := 1; i <= 6; i++ {
		c := fmt.Sprint("c", i)
		where := "source = '" + c + "'"
		b.subscribe(engine.Subscription{Consumer: c, Lane: "cron", Filter: &where,
			Handler: drain + `; echo $THREAD_CONSUMER > "$D/came"; read _ < "$D/leave"`})
	}
	b.push("c6")
	b.dispatch(Options{})
	got := []string{came.line()}
	for _, c := range []string{"c4", "c2", "c6", "c5"} {
		b.push(c)
		b.dispatch(Options{})
	}
	for len(got) < 5 {
		leave.say()
		got = append(got, came.line())
	}
	leave.say()
	b.awaitIdle()
	if s := strings.Join(got, " "); s != "c6 c4 c2 c6 c5" {
		t.Errorf("ran %s", s)
	}
}

// L-06: a place that is freed between two tries goes to the consumer that was refused, and
// not to its last holder, which was fed meanwhile.
func TestFreedPlaceIsNotPassed(t *testing.T) {
	b := newBench(t)
	order := b.fifo("order")
	for _, c := range []string{"fed", "waits"} {
		where := "source = '" + c + "'"
		b.subscribe(engine.Subscription{Consumer: c, Lane: "cron", Filter: &where, Handler: drain + `; echo $THREAD_CONSUMER > "$D/order"`})
	}
	b.push("waits")
	b.push("fed")
	if err := b.r.prepare(); err != nil {
		t.Fatal(err)
	}
	place, err := lock.Try(b.r.placePath("cron", 0), lock.Exclusive)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := place.File().WriteAt([]byte("fed"), 0); err != nil {
		t.Fatal(err)
	}
	freed := false
	defer func(was func(string)) { testPoint = was }(testPoint)
	testPoint = func(point string) {
		if point == "full" && !freed {
			freed = true
			release(place)
		}
	}
	s := newSupervisor(b.r)
	done := make(chan error, 1)
	go func() { done <- s.work(t.Context()) }()
	if got := order.line() + " " + order.line(); got != "waits fed" {
		t.Errorf("ran %s", got)
	}
	if err := <-done; err != nil || !freed {
		t.Errorf("freed: %v, %v", freed, err)
	}
}
