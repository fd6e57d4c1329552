//go:build linux

package dispatch

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"thread/engine"
	"thread/event"
	"thread/lock"
)

// toil is the handler of the soak test: it pops a few events at a time, notes
// each delivery, acks as it goes, and crashes now and then. It also notes when
// it is not alone, or not in a lane of one place.
func toil() error {
	thread, err := engine.Open(os.Getenv(envDir))
	if err != nil {
		return err
	}
	consumer, dir := os.Getenv(envConsumer), os.Getenv("D")
	note := func(name, format string, args ...any) error {
		f, err := os.OpenFile(dir+"/"+name, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
		if err != nil {
			return err
		}
		defer f.Close()
		_, err = fmt.Fprintf(f, format, args...)
		return err
	}
	alone, err := lock.Try(dir+"/alone-"+consumer, lock.Exclusive)
	if err != nil {
		return note("violations", "%s: %v\n", consumer, err)
	}
	defer alone.Close()
	if name := os.Getenv("LANE"); name != "" {
		place, err := lock.Try(dir+"/lane-"+name, lock.Exclusive)
		if err != nil {
			return note("violations", "%s in lane %s: %v\n", consumer, name, err)
		}
		defer place.Close()
	}
	if err := note("runs", "%s\n", consumer); err != nil {
		return err
	}
	acked, err := strconv.ParseInt(os.Getenv(envLastAcked), 10, 64)
	if err != nil {
		return err
	}
	for {
		page, err := thread.Pop(context.Background(), consumer, engine.PopQuery{LastAcked: acked, Limit: 5})
		if err != nil {
			return err
		}
		empty := true
		for e, err := range page.Events {
			if err != nil {
				return err
			}
			empty = false
			if err := note("delivered", "%s %d\n", consumer, e.ID); err != nil {
				return err
			}
			acked = e.ID
		}
		if empty {
			return nil
		}
		switch rand.IntN(25) {
		case 0:
			os.Exit(1)
		case 1:
			unix.Kill(os.Getpid(), unix.SIGKILL)
		}
	}
}

type soak struct {
	*bench
	sources []string
	mu      sync.Mutex
	events  map[int64]string // id → source
	kills   map[string]int
}

// TestSoak pushes, while handlers crash and everything that this package starts
// is killed at random, and then looks whether every event has been delivered to
// every consumer that it matches. First anything may be killed, dispatches too,
// with pushes going on a little longer than the killing. Then only what works,
// and the last kill comes after the last push. THREAD_SOAK is the time it takes.
func TestSoak(t *testing.T) {
	length := 4 * time.Second
	if v := os.Getenv("THREAD_SOAK"); v != "" {
		var err error
		if length, err = time.ParseDuration(v); err != nil {
			t.Fatal(err)
		}
	}
	s := &soak{bench: newBench(t), sources: []string{"north", "east", "south", "west"}, events: map[int64]string{}, kills: map[string]int{}}
	for i, source := range s.sources {
		where := "source = '" + source + "'"
		s.subscribe(engine.Subscription{Consumer: source, Filter: &where, Handler: `LANE=cron "$T" toil "$THREAD_DIR"`, Lane: "cron"})
		s.subscribe(engine.Subscription{Consumer: fmt.Sprint("all", i), Handler: `"$T" toil "$THREAD_DIR"; exit $?`})
	}
	s.storm(length/2, length/2-length/8, true)
	s.check("with dispatches being killed")
	s.storm(length/2-length/8, length/2, false)
	s.check("with the last kill after the last push")
	t.Logf("%d events, %d runs, %d deliveries, killed: %v", len(s.events), len(s.lines("runs")), strings.Count(s.read("delivered"), "\n"), s.kills)
	if v := s.read("violations"); v != "" {
		t.Errorf("two handlers of one consumer, or in the lane cron: %s", v)
	}
}

// storm pushes for one time and kills for another, which begin together.
func (s *soak) storm(pushing, killing time.Duration, dispatches bool) {
	var all sync.WaitGroup
	start := time.Now()
	for range 3 {
		all.Go(func() {
			for time.Since(start) < pushing {
				source := s.sources[rand.IntN(len(s.sources))]
				e, err := s.t.Push(context.Background(), event.Draft{Source: source, Type: "message", Content: "x"})
				if err != nil {
					s.Error(err)
					return
				}
				s.mu.Lock()
				s.events[e.ID] = source
				s.mu.Unlock()
				if err := Wake(context.Background(), s.t, source); err != nil {
					s.Error(err)
				}
				time.Sleep(time.Duration(rand.IntN(60)) * time.Millisecond) // the load's pace
			}
		})
	}
	all.Go(func() {
		for time.Since(start) < killing {
			s.killOne(dispatches)
			time.Sleep(time.Duration(20+rand.IntN(60)) * time.Millisecond) // the killer's pace
		}
	})
	all.Wait()
}

// killOne kills a process of the thread, and waits until it is dead: the next one may
// be its standby, or the one that it stands by for, and who has both killed at once has
// no process left. Without dispatches, it spares them and the supervisors that they have
// only just started, which have no standby yet: what only one process knows is lost
// with it.
func (s *soak) killOne(dispatches bool) {
	list, err := processes(s.t.Dir(), superviseVerb, "dispatch", "toil")
	if err != nil {
		s.Error(err)
		return
	}
	hasStandby := map[int]bool{}
	for _, p := range list {
		if p.verb == superviseVerb && p.mode == modeStandby {
			hasStandby[p.parent] = true
		}
	}
	for _, i := range rand.Perm(len(list)) {
		p := list[i]
		spare := p.verb == "dispatch" || p.verb == superviseVerb && !hasStandby[p.pid] && (p.mode == modeWork || !alive(p.parent))
		if spare && !dispatches {
			continue
		}
		if unix.Kill(p.pid, unix.SIGKILL) == nil {
			s.kills[strings.TrimSpace(p.verb+" "+p.mode)]++
			ctx, cancel := context.WithTimeout(context.Background(), patience)
			awaitDeath(ctx, p.pid)
			cancel()
		}
		return
	}
}

// check waits until no process works any more, and then compares. Handlers and their
// supervisors may have died five times in a row: that consumer is left to the
// next push, whose dispatch it gets.
func (s *soak) check(when string) {
	s.Helper()
	s.awaitIdle()
	for s.anyStalled() {
		s.dispatch(Options{})
		s.awaitIdle()
	}
	delivered := map[string]bool{}
	for _, line := range strings.Split(s.read("delivered"), "\n") {
		delivered[line] = true
	}
	missing := 0
	for id, source := range s.events {
		for i, matching := range s.sources {
			for _, consumer := range []string{matching, fmt.Sprint("all", i)} {
				if (consumer != matching || matching == source) && !delivered[fmt.Sprint(consumer, " ", id)] {
					missing++
					s.Logf("%s: event %d from %s was not delivered to %s", when, id, source, consumer)
				}
			}
		}
	}
	if missing > 0 {
		s.Errorf("%s: %d deliveries are missing", when, missing)
	}
}

// anyStalled reports whether a consumer with something unread is left to the next
// push.
func (s *soak) anyStalled() bool {
	s.Helper()
	all, err := s.t.Due(context.Background())
	if err != nil {
		s.Fatal(err)
	}
	for _, d := range all {
		if s.state(d.Consumer).Stalled {
			return true
		}
	}
	return false
}
