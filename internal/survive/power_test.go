package survive

import (
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
)

// TestPowerLoss records the system calls of an operation and replays what a cut
// of the power after each of them could leave on the disk. The thread must then be
// as it was before or as it is after the operation, and as after it once the
// program had returned 0.
func TestPowerLoss(t *testing.T) {
	needStrace(t)
	states := 7 // at each call
	if full {
		states = 60
	}
	var total atomic.Int64
	t.Cleanup(func() { t.Logf("%d states of the disk were tried", total.Load()) })
	for _, op := range operations() {
		switch op.name {
		case "push", "push that completes a block", "push that rotates", "push that heals", "push that clears half a batch",
			"push that releases", "batch", "pop", "subscribe", "compact", "prune":
		default:
			continue
		}
		t.Run(strings.ReplaceAll(op.name, " ", "_"), func(t *testing.T) {
			t.Parallel()
			s := op.start(t)
			s.renew(t)
			list := steps(t, s.dir, s.stdin, s.command()...)
			d := load(t, s.template).moved(s.template, s.dir)
			for cut := range len(list) + 1 {
				at, end := "the exit", result{code: 0}
				if cut < len(list) {
					at, end = fmt.Sprintf("call %d of %d, %s", cut, len(list), list[cut].call), result{code: -1}
				}
				for n := range states {
					if !full && len(list) > 16 && cut%(len(list)/6) != 0 && cut < len(list)-4 {
						break
					}
					if err := s.powerLost(t, d, end, rand.New(rand.NewPCG(uint64(cut), uint64(n))), n); err != nil {
						t.Fatalf("power lost before %s, state %d: %v", at, n, err)
					}
					total.Add(1)
				}
				if cut < len(list) {
					list[cut].do(d)
				}
			}
		})
	}
}

// powerLost looks at one of the states that the disk can be left in.
func (s *started) powerLost(t *testing.T, d *disk, end result, r *rand.Rand, n int) error {
	share := []float64{0, 1, 0.5, 0.1, 0.9, 0.3, 0.7}[n%7]
	dir := filepath.Join(filepath.Dir(s.dir), "cut")
	d.cutOff(t, s.dir, dir, r, func() bool { return r.Float64() < share })
	c, err := read(dir)
	if err != nil {
		return err
	}
	if err := s.judge(end, c); err != nil {
		return err
	}
	if err := faultless(dir); err != nil {
		return err
	}
	return works(t, dir, s.lines, c)
}

// moved returns the disk with all paths below from put below to.
func (d *disk) moved(from, to string) *disk {
	m := &disk{names: map[string]*file{}, synced: map[string]*file{}}
	for path, f := range d.names {
		p := to + strings.TrimPrefix(path, from)
		m.names[p], m.synced[p] = f, f
	}
	return m
}
