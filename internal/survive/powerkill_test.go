package survive

import (
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
)

// TestPowerLossAfterKill kills one command, runs a second one, and cuts the power in
// the middle of that: what the first command wrote without syncing may be lost then, and
// the second one has built on it. The thread must be as it was before either of them,
// between them or after them, and as after the second one once that had returned 0.
func TestPowerLossAfterKill(t *testing.T) {
	needStrace(t)
	push := []string{"push", "--source", "s", "--type", "t", "--content", "killed", "--thread", "D"}
	more := []string{"push", "--source", "s", "--type", "t", "--content", "more", "--thread", "D"}
	pop := []string{"pop", "--consumer", "c", "--last-event-id", "2", "--thread", "D"}
	compact := []string{"compact", "--thread", "D"}
	batch := []string{"push", "--batch", "--thread", "D"}
	pairs := [][2][]string{{push, more}}
	states := 7 // at each call
	if sample || full {
		pairs = append(pairs, [2][]string{push, pop}, [2][]string{push, compact}, [2][]string{pop, more}, [2][]string{batch, more}, [2][]string{push, batch}, [2][]string{compact, more})
	}
	if sample {
		states = 3
	}
	if full {
		states = 60
	}
	var total atomic.Int64
	t.Cleanup(func() { t.Logf("%d states of the disk were tried", total.Load()) })
	try := func(name string, from func(t *testing.T, dir string), pair [2][]string) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			template := filepath.Join(t.TempDir(), "template")
			from(t, template)
			for _, kill := range killsBefore(t, template, pair[0]) {
				k := killed{template: template, dir: filepath.Join(t.TempDir(), "thread"), kill: kill}
				total.Add(k.lose(t, pair, states))
			}
		})
	}
	for _, pair := range pairs {
		try(pair[0][0]+"_and_"+pair[1][0], fresh, pair)
	}
	try("push_that_folds_and_push", journalled(63), [2][]string{push, more}) // after the first push of all
}

// killsBefore returns the points at which the first command is killed: each of its
// writes and syncs, and none, which is nil; in a quick run only its last sync.
func killsBefore(t *testing.T, template string, args []string) []*point {
	s := started{operation: operation{args: args, stdin: batch(9, "killed")}, template: template, dir: filepath.Join(t.TempDir(), "thread")}
	s.renew(t)
	thread(t, "", "push", "--thread", s.dir, "--source", "s", "--type", "t", "--content", "x")
	c := record(t, s.dir, s.stdin, s.command()...)
	points := func(call string, ordinals []int) (kills []*point) {
		for _, n := range ordinals {
			kills = append(kills, &point{call: call, when: fmt.Sprint(n), effect: "signal=KILL"})
		}
		return kills
	}
	syncs := c.ours["fdatasync"]
	if !sample && !full {
		return points("fdatasync", syncs[len(syncs)-1:])
	}
	return slices.Concat(points("fdatasync", syncs), points("pwrite64", c.ours["pwrite64"]), points("fsync", c.ours["fsync"]), []*point{nil})
}

// killed is a command that is killed, and one that follows it.
type killed struct {
	template, dir string
	kill          *point // nil: it is not killed
}

// lose tries what the disk may hold when the power is lost in the second command.
func (k *killed) lose(t *testing.T, pair [2][]string, states int) (tried int64) {
	s := started{operation: operation{stdin: batch(9, "killed")}, template: k.template, dir: k.dir}
	s.renew(t)
	// A first command makes all of it durable, and the mark that says so.
	first := steps(t, s.dir, "", "push", "--thread", s.dir, "--source", "s", "--type", "t", "--content", "x")
	s.before = s.look(t, s.dir)
	s.lines = lineFiles(t, s.dir)
	d := load(t, s.template).moved(s.template, s.dir)
	for _, step := range first {
		step.do(d)
	}
	s.args = pair[0]
	done, r := stepsUntil(t, s.dir, s.stdin, k.kill, s.command()...)
	if r.code != 0 && (r.code != -1 || k.kill == nil) {
		t.Fatalf("%q, to be killed at %v: %v", s.args, k.kill, r)
	}
	for _, step := range done {
		step.do(d)
	}
	between := s.look(t, s.dir)
	if r.code == 0 { // not killed, or the call came from another thread
		s.before = between
	}
	s.between = &between
	s.args = pair[1]
	list := steps(t, s.dir, s.stdin, s.command()...)
	s.after = s.look(t, s.dir)
	for cut := range len(list) + 1 {
		at, end := "the exit", result{code: 0}
		if cut < len(list) {
			at, end = fmt.Sprintf("call %d of %d, %s", cut, len(list), list[cut].call), result{code: -1}
		} else {
			s.between = nil
		}
		if !sample && !full && cut < len(list) && !isStored(list[cut].call) {
			list[cut].do(d)
			continue
		}
		for n := range states {
			if err := s.powerLost(t, d, end, rand.New(rand.NewPCG(uint64(cut), uint64(n))), n); err != nil {
				t.Fatalf("%q killed at %v, then %q, power lost before %s, state %d: %v", pair[0], k.kill, pair[1], at, n, err)
			}
			tried++
		}
		if cut < len(list) {
			list[cut].do(d)
		}
	}
	return tried
}

// isStored reports whether a call is of a file that holds the events.
func isStored(call string) bool {
	return strings.HasSuffix(call, " events.db") || strings.HasSuffix(call, " events.journal")
}
