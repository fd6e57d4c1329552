package survive

import (
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"thread/jsonlog"
)

// tooLong is when a command on what storage that ignored syncs left counts as hanging.
const tooLong = 25 * time.Second

// TestLyingCard replays several commands on a disk that says of its last syncs that
// they are done when they are not, and cuts the power: any of the sectors that were
// written since the last true one can be there or not. What is lost then is lost.
// But no command may crash, hang, or print an event that was never pushed, nor
// leave one out between two others.
func TestLyingCard(t *testing.T) {
	needStrace(t)
	states := 20
	if sample {
		states = 200
	}
	if full {
		states = 2000
	}
	template, dir := filepath.Join(t.TempDir(), "template"), filepath.Join(t.TempDir(), "thread")
	lettered(t, template)
	copyDir(t, template, dir)
	var list []step
	for _, args := range [][]string{
		{"push", "--source", "self", "--type", "message", "--content", "one"},
		{"push", "--batch"},
		{"pop", "--consumer", "c", "--last-event-id", "2"},
		{"push", "--source", "self", "--type", "message", "--content", "two", "--dedupe-key", "two"},
		{"compact"},
		{"push", "--batch"},
		{"push", "--source", "self", "--type", "message", "--content", "three"},
	} {
		list = append(list, steps(t, dir, batch(150, strings.Repeat("some content ", 12)), append(args, "--thread", dir)...)...)
	}
	want := lines(thread(t, "", "peek", "--thread", dir, "--last-event-id", "0", "--limit", "100000"))
	var syncs []int // their places in list
	for i, s := range list {
		if strings.HasPrefix(s.call, "fsync ") || strings.HasPrefix(s.call, "fdatasync ") {
			syncs = append(syncs, i)
		}
	}
	var mu sync.Mutex
	refused, shorter, whole := 0, 0, 0
	t.Run("states", func(t *testing.T) {
		for worker := range 2 {
			t.Run(fmt.Sprint(worker), func(t *testing.T) {
				t.Parallel()
				left := filepath.Join(t.TempDir(), "left")
				for n := worker; n < states; n += 2 {
					r := rand.New(rand.NewPCG(uint64(n), 5))
					// The power is cut after one of the steps, and the last that many syncs
					// before it were lies.
					end := 1 + r.IntN(len(list))
					done, _ := slices.BinarySearch(syncs, end)
					lies := 1 + r.IntN(min(8, max(1, done)))
					d := load(t, template).moved(template, dir)
					for i, s := range list[:end] {
						if at, isSync := slices.BinarySearch(syncs, i); isSync && at >= done-lies {
							continue
						}
						s.do(d)
					}
					share := []float64{0.5, 0.9, 0.1, 0.99}[n%4]
					d.cutOff(t, dir, left, r, func() bool { return r.Float64() < share })
					v := victim{t: t, dir: left, want: want}
					got, err := v.liedTo()
					if err != nil {
						t.Fatalf("state %d, %d of %d syncs were lies: %v", n, lies, done, err)
					}
					mu.Lock()
					switch {
					case got.code != 0:
						refused++
					case len(lines(got.stdout)) < len(want):
						shorter++
					default:
						whole++
					}
					mu.Unlock()
				}
			})
		}
	})
	t.Logf("%d states: peek refused %d, was without the newest events in %d, had all in %d", states, refused, shorter, whole)
	if refused == 0 || shorter == 0 {
		t.Error("the card did not lie")
	}
}

// liedTo runs every kind of command on what is left.
func (v *victim) liedTo() (peek result, err error) {
	timed := func(args ...string) (result, error) {
		began := time.Now()
		r, err := v.command(args...)
		if took := time.Since(began); err == nil && took > tooLong {
			err = fmt.Errorf("thread %s takes %v", args[0], took)
		}
		return r, err
	}
	to := v.dir + ".repaired"
	look := []string{"peek", "--thread", v.dir, "--last-event-id", "0", "--limit", "100000"}
	if peek, err = timed(look...); err != nil {
		return peek, err
	}
	if err := v.beginning(peek); err != nil {
		return peek, err
	}
	defer removeAll(v.t, to)
	repair, err := timed("repair", "--thread", v.dir, "--to", to)
	if err != nil {
		return peek, err
	}
	if err := v.nothingMadeUp(repair, to); err != nil {
		return peek, err
	}
	for _, args := range [][]string{
		{"check"}, {"info"}, {"pop", "--consumer", "c", "--last-event-id", "1"}, {"dead", "list"}, {"dead", "retry"},
		{"push", "--source", "s", "--type", "t", "--content", "after"}, {"compact"},
	} {
		if _, err := timed(append(args, "--thread", v.dir)...); err != nil {
			return peek, err
		}
	}
	again, err := timed(look...)
	if err != nil {
		return peek, err
	}
	return peek, v.beginning(again)
}

// beginning requires that a successful peek printed the first events, in order and
// as they were pushed, and behind them at most what was pushed since.
func (v *victim) beginning(r result) error {
	if r.code != 0 || r.stdout == "" {
		return nil
	}
	for i, line := range lines(r.stdout) {
		if i < len(v.want) && line == v.want[i] || strings.Contains(line, `"content":"after"`) {
			continue
		}
		return fmt.Errorf("event %d is %.300s", i+1, line)
	}
	return nil
}

// nothingMadeUp requires that each event that was saved was pushed.
func (v *victim) nothingMadeUp(r result, to string) error {
	if !strings.Contains(r.stdout, "Saved ") {
		return nil
	}
	for line := range strings.Lines(thread(v.t, "", "peek", "--thread", to, "--last-event-id", "0", "--limit", "100000")) {
		line = strings.TrimSuffix(line, "\n")
		if id, ok := jsonlog.LineID([]byte(line)); !ok || id > int64(len(v.want)) || line != v.want[id-1] {
			return fmt.Errorf("repair made up %.300s", line)
		}
	}
	return nil
}
