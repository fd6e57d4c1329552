//go:build linux

// Command simulate runs several real programs of a thread at once, in an order that a seed
// chooses, and checks what they leave. It needs Linux.
//
//	simulate [-scenario NAME] [-seed N] [-count N | -minutes M] [-bug PATCH]
//
// Every program is stopped by the kernel at its calls on files (seccomp), and one program
// continues at a time. A printed seed repeats its schedule.
//
// The exit code is 0 when no schedule failed, 1 when one did, 2 for wrong arguments, and
// 3 when the kernel does not allow it here.
package main

import (
	_ "embed"
	"errors"
	"flag"
	"fmt"
	"io"
	"iter"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"thread/internal/bugs"
)

func main() {
	switch {
	case os.Getenv(partVariable) == "":
		os.Exit(run(os.Args[1:], os.Stdout, os.Stderr))
	case os.Getenv(guardVariable) == "":
		os.Exit(guard(os.Args[1:], os.Stdout, os.Stderr))
	default:
		os.Exit(runPart(os.Args[1:], os.Stdout, os.Stderr))
	}
}

type options struct {
	scenario string
	seed     uint64
	count    int
	minutes  float64
	bug      string
	program  string
	cpus     int
	trace    bool
	repeat   int
	faults   bool
	work     string // of parts: the directory with the templates
}

func (o *options) flags(stderr io.Writer) *flag.FlagSet {
	flags := flag.NewFlagSet("simulate", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.StringVar(&o.scenario, "scenario", "", "only this scenario")
	flags.Uint64Var(&o.seed, "seed", 0, "the first seed; 0: a random one")
	flags.IntVar(&o.count, "count", 0, "how many schedules; 0: until the time has passed, or one with a seed")
	flags.Float64Var(&o.minutes, "minutes", 1, "how long")
	flags.StringVar(&o.bug, "bug", "", "plant the bug of this patch")
	flags.StringVar(&o.program, "programs", "", "a directory with built programs; without it they are built")
	flags.IntVar(&o.cpus, "cpus", 0, "how many CPUs run schedules; 0: all, or one with a seed")
	flags.BoolVar(&o.trace, "trace", false, "print the calls of a schedule that failed, or of the one of a seed")
	flags.IntVar(&o.repeat, "repeat", 1, "run each seed so often, and count equal orders of calls")
	flags.BoolVar(&o.faults, "faults", true, "with kills")
	return flags
}

func run(args []string, stdout, stderr io.Writer) int {
	var o options
	if flags := o.flags(stderr); flags.Parse(args) != nil || flags.NArg() > 0 {
		return 2
	}
	code, err := lead(o, stdout, stderr)
	if err != nil {
		fmt.Fprintln(stderr, "Error:", err)
		return 2
	}
	return code
}

var errNotAllowed = errors.New("the kernel does not allow it - run it on Linux 5.19 or later, outside of a sandbox")

// failedError is a schedule after which something is wrong.
type failedError struct {
	scenario string
	seed     uint64
	why      error
	bug      string
	after    string
}

func (e failedError) Error() string {
	bug := ""
	if e.bug != "" {
		bug = " -bug " + e.bug
	}
	return fmt.Sprintf("FAILED %s: scenario %s: %v\nreplay: go run ./tools/simulate -scenario %s -seed %d -trace%s", e.after, e.scenario, e.why, e.scenario, e.seed, bug)
}

// chosen are the scenarios that the options name.
func chosen(o options) ([]scenario, error) {
	list := slices.Clone(scenarios)
	if o.scenario != "" {
		list = slices.DeleteFunc(list, func(s scenario) bool { return s.name != o.scenario })
	}
	if len(list) == 0 {
		return nil, fmt.Errorf("no scenario %q", o.scenario)
	}
	return list, nil
}

// lead prepares what all CPUs share, starts a part on each, and adds up what they have done.
func lead(o options, stdout, stderr io.Writer) (int, error) {
	list, err := chosen(o)
	if err != nil {
		return 0, err
	}
	if o.work, err = os.MkdirTemp(memory(), "simulate-"); err != nil {
		return 0, err
	}
	defer os.RemoveAll(o.work)
	if o.program == "" {
		if o.program, err = build(o.bug, o.work); err != nil {
			return 0, err
		}
	}
	if o.program, err = filepath.Abs(o.program); err != nil {
		return 0, err
	}
	b := newBench(o, 0)
	for i := range list {
		if err := b.prepare(&list[i]); err != nil {
			return 0, fmt.Errorf("scenario %s: %w", list[i].name, err)
		}
	}
	var kept []job
	if o.seed == 0 {
		kept, o.seed = keptSeeds(list), rand.Uint64N(1e12)+1
		fmt.Fprintf(stdout, "the first seed is %d\n", o.seed)
	} else if o.count == 0 {
		o.count, o.cpus = 1, 1
	}
	begun := time.Now()
	sum, code, err := startParts(o, jobs(o, list, kept), stdout, stderr)
	if err != nil || code != 0 {
		return code, err
	}
	fmt.Fprintf(stdout, "%d schedules of %d scenarios, %d calls, %.1f a second, seeds up to %d", sum.Schedules, len(list), sum.Calls, float64(sum.Schedules)/time.Since(begun).Seconds(), sum.Last)
	if sum.Slow > 0 {
		fmt.Fprintf(stdout, ", %d judged as after a crash: they took more than %v", sum.Slow, slow)
	}
	if sum.Repeated > 0 {
		fmt.Fprintf(stdout, ", %d of %d repetitions in the same order", sum.Same, sum.Repeated)
	}
	fmt.Fprintln(stdout)
	return 0, nil
}

// seeds has schedules that have found something once, also a bug that was planted, a line each:
// the scenario, the seed, and what it was.
//
//go:embed seeds
var seeds string

// keptSeeds are the schedules of the file that belong to these scenarios.
func keptSeeds(list []scenario) (kept []job) {
	for line := range strings.Lines(seeds) {
		var name string
		var j job
		_, _ = fmt.Sscan(line, &name, &j.Seed)
		if i := slices.IndexFunc(list, func(s scenario) bool { return s.name == name }); i >= 0 {
			j.Scenario = uint64(i)
			kept = append(kept, j)
		}
	}
	return kept
}

// jobs are the schedules to run: those that are kept, then seeds from the first one, with
// the scenarios in turns.
func jobs(o options, list []scenario, kept []job) iter.Seq[job] {
	return func(yield func(job) bool) {
		for i := 0; o.count == 0 || i < o.count; i++ {
			j := job{uint64(i % len(list)), o.seed + uint64(max(i-len(kept), 0))}
			if i < len(kept) {
				j = kept[i]
			}
			if !yield(j) {
				return
			}
		}
	}
}

// memory is a file system without real syncs, where there is one.
func memory() string {
	if info, err := os.Stat("/dev/shm"); err == nil && info.IsDir() {
		return "/dev/shm"
	}
	return ""
}

// shortDelay makes a failed handler run again after 50 ms, in place of one second: else a CPU
// would do nothing for a third of the time that schedules of push take.
const shortDelay = "tools/simulate/short-delay.patch"

// build builds the programs, with a bug if there is a patch.
func build(patch, work string) (string, error) {
	change, err := bugs.ReadOne(shortDelay)
	if err != nil {
		return "", err
	}
	if patch != "" {
		bug, err := bugs.ReadOne(patch)
		if err != nil {
			return "", err
		}
		change = change.With(bug)
	}
	overlay, err := change.Plant(".", work)
	if err != nil {
		return "", err
	}
	// With symbols, see clockSymbol.
	cmd := exec.Command("go", "build", "-trimpath", "-o", filepath.Join(work, "bin")+"/", "-overlay", overlay, "./cmd/...")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0") // a program with a loader starts in 3.2 ms, a static one in 2.4
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build: %w: %s", err, out)
	}
	return filepath.Join(work, "bin"), nil
}
