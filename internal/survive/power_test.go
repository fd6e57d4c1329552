package survive

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
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
	states := 2 // at each call
	if sample {
		states = 7
	}
	if full {
		states = 60
	}
	var total atomic.Int64
	t.Cleanup(func() { t.Logf("%d states of the disk were tried", total.Load()) })
	for _, op := range operations() {
		switch op.name {
		case "push", "push that folds", "push that completes a block", "push that rotates", "push that heals", "push that clears half a batch",
			"push that releases", "batch", "push with lines off", "push with lines off that folds", "pop", "subscribe", "compact", "prune", "retain", "push that retains":
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
					err := s.powerLost(t, d, end, rand.New(rand.NewPCG(uint64(cut), uint64(n))), n)
					if renamed := cut < len(list) && strings.HasPrefix(list[cut].call, "fsync events-"); renamed && isLostLines(err) {
						err = nil
					}
					if err != nil {
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

// isLostLines reports whether check has found that rotated lines are gone, and nothing
// else: FAT may lose what is in a file between its rename and the sync that follows. All
// the events are in the database then.
func isLostLines(err error) bool {
	for line := range strings.Lines(fmt.Sprint(err)) {
		if !lostLines.MatchString(line) {
			return false
		}
	}
	return true
}

var lostLines = regexp.MustCompile(`^check: events(-[0-9-]+)?\.jsonl: (events [0-9]+ to [0-9]+ have no line|holds no line)\n?$`)

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

// TestPowerNewDirectories: what has a new name when a command returns 0 has it after a loss of power
// right then, and so have the directories above it that the command made: on FAT nothing but
// a sync of each makes it so.
func TestPowerNewDirectories(t *testing.T) {
	needStrace(t)
	for _, c := range []struct {
		name  string
		args  []string // D is the directory
		files []string // that must be there
	}{
		{"init", []string{"init", "D/new/below/t"}, []string{"new/below/t/events.db"}},
		{"export", []string{"export", "--thread", "D/t", "--to", "D/new/below/e"}, []string{"new/below/e/events.db", "new/below/e/events.jsonl"}},
		{"export of lines", []string{"export", "--thread", "D/t", "--format", "jsonl", "--to", "D/lines"}, []string{"lines"}},
		{"import", []string{"import", "D/old", "--to", "D/new/below/t"}, []string{"new/below/t/events.db"}},
		{"backup", []string{"backup", "--thread", "D/t", "D/new/below"}, []string{"new/below/000001/events.db", "new/below/000001/copied.json"}},
		{"restore", []string{"restore", "D/b", "--to", "D/new/below/t"}, []string{"new/below/t/events.db"}},
	} {
		t.Run(strings.ReplaceAll(c.name, " ", "_"), func(t *testing.T) {
			t.Parallel()
			base := t.TempDir()
			dir, cut := base+"/d", base+"/cut"
			thread(t, "", "init", dir+"/t")
			thread(t, "", "push", "--thread", dir+"/t", "--source", "s", "--type", "t", "--content", "x")
			thread(t, "", "export", "--thread", dir+"/t", "--to", dir+"/old")
			thread(t, "", "backup", "--thread", dir+"/t", dir+"/b")
			d := load(t, dir)
			var args []string
			for _, arg := range c.args {
				if below, ok := strings.CutPrefix(arg, "D/"); ok {
					arg = filepath.Join(dir, below)
				}
				args = append(args, arg)
			}
			for _, s := range steps(t, dir, "", args...) {
				s.do(d)
			}
			d.cutOff(t, dir, cut, rand.New(rand.NewPCG(1, 1)), func() bool { return false })
			for _, name := range c.files {
				is, err := os.ReadFile(filepath.Join(cut, name))
				want, err2 := os.ReadFile(filepath.Join(dir, name))
				if err := errors.Join(err, err2); err != nil || !bytes.Equal(is, want) {
					t.Errorf("%s: %d bytes are left of %d, %v", name, len(is), len(want), err)
				}
			}
		})
	}
}
