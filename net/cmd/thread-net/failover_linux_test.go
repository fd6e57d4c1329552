package main

import (
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestFailover: the primary is killed while processes push and consume, and its synchronous
// standby takes over, that many times as THREAD_FAILOVERS says. Two times of five it is
// stopped, and continues when the standby has taken over. What was confirmed is there once,
// all of it is delivered, and the thread is sound.
func TestFailover(t *testing.T) {
	rounds, _ := strconv.Atoi(os.Getenv("THREAD_FAILOVERS"))
	if rounds == 0 {
		t.Skip("set THREAD_FAILOVERS to how often a primary is to be killed")
	}
	s := newServers(t)
	primary := s.at(0, 0)
	s.run("initdb", "-D", primary.data, "-U", "postgres", "-A", "trust", "-E", "UTF8", "--no-sync")
	primary.start()
	primary.sql("1", "SELECT 1")
	standby := primary.standby(1, 1)
	h := &host{t: t, url: s.address() + "fleet&durability=1"}
	h.run("init", h.url)
	if out := h.run("info"); !strings.Contains(out, "2 hosts, fsync") {
		t.Fatalf("the standby does not count: %s", out)
	}
	l := newLoad(h)
	var away time.Duration
	pauses := 0
	for round := range rounds {
		reach(t, l.pushers, 5)
		pause := round%5 == 1 || round%5 == 3
		if pause {
			pauses++
			t.Cleanup(primary.crash) // what is stopped would stay
			primary.signal(syscall.SIGSTOP)
		} else {
			primary.kill()
		}
		killed := time.Now()
		standby.sql("", "ALTER SYSTEM RESET synchronous_standby_names")
		standby.promote()
		reach(t, l.pushers, 5)
		away = max(away, time.Since(killed))
		if pause { // it still thinks that it is the primary
			primary.signal(syscall.SIGCONT)
			primary.sql("f", "SELECT pg_is_in_recovery()")
			primary.crash()
		}
		if round+1 < rounds {
			primary, standby = standby, standby.standby(round%2, round+2)
		}
	}
	t.Logf("%d primaries killed, %d stopped: %s; at most %v until every pusher had 5 more", rounds-pauses, pauses, l.verify(), away.Round(time.Millisecond))
}
