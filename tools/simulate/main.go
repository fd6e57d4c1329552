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
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"thread/internal/bugs"
)

func main() {
	if os.Getenv("SIMULATE_GUARDED") == "" {
		os.Exit(guard(os.Args[1:], os.Stdout, os.Stderr))
	}
	os.Exit(run(os.Args[1:], os.Stdout, os.Stderr))
}

type options struct {
	scenario string
	seed     uint64
	count    int
	minutes  float64
	bug      string
	program  string
	cpu      int
	trace    bool
	repeat   int
	faults   bool
}

func run(args []string, stdout, stderr io.Writer) int {
	var o options
	flags := flag.NewFlagSet("simulate", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.StringVar(&o.scenario, "scenario", "", "only this scenario")
	flags.Uint64Var(&o.seed, "seed", 0, "the first seed; 0: a random one")
	flags.IntVar(&o.count, "count", 0, "how many schedules; 0: until the time has passed, or one with a seed")
	flags.Float64Var(&o.minutes, "minutes", 1, "how long")
	flags.StringVar(&o.bug, "bug", "", "plant the bug of this patch")
	flags.StringVar(&o.program, "programs", "", "a directory with built programs; without it they are built")
	flags.IntVar(&o.cpu, "cpu", runtime.NumCPU()-1, "the CPU that the programs share")
	flags.BoolVar(&o.trace, "trace", false, "print the calls of a schedule that failed, or of the one of a seed")
	flags.IntVar(&o.repeat, "repeat", 1, "run each seed so often, and count equal orders of calls")
	flags.BoolVar(&o.faults, "faults", true, "with kills")
	if err := flags.Parse(args); err != nil || flags.NArg() > 0 {
		return 2
	}
	err := simulate(o, stdout)
	var failed failedError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &failed):
		fmt.Fprintln(stdout, err)
		return 1
	case errors.Is(err, errNotAllowed):
		fmt.Fprintln(stderr, "Error:", err)
		return 3
	default:
		fmt.Fprintln(stderr, "Error:", err)
		return 2
	}
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

func simulate(o options, stdout io.Writer) error {
	list := scenarios
	if o.scenario != "" {
		list = slices.DeleteFunc(slices.Clone(list), func(s scenario) bool { return s.name != o.scenario })
		if len(list) == 0 {
			return fmt.Errorf("no scenario %q", o.scenario)
		}
	}
	work, err := os.MkdirTemp(memory(), "simulate-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	if o.program == "" {
		if o.program, err = build(o.bug, work); err != nil {
			return err
		}
	}
	if o.program, err = filepath.Abs(o.program); err != nil {
		return err
	}
	b := &bench{programs: o.program, work: work, dir: filepath.Join(work, "d")}
	for i := range list {
		if err := b.prepare(&list[i]); err != nil {
			return fmt.Errorf("scenario %s: %w", list[i].name, err)
		}
	}
	debug.SetGCPercent(-1) // a collection would wait for a thread that starts a program
	if b.l, err = newLauncher(o.cpu); err != nil {
		return fmt.Errorf("%w: %w", errNotAllowed, err)
	}
	b.l.env = b.environment()
	seed, one := o.seed, o.seed != 0 && o.count == 0
	if seed == 0 {
		seed = rand.Uint64N(1e12) + 1
		fmt.Fprintf(stdout, "the first seed is %d\n", seed)
	}
	begun := time.Now()
	until := begun.Add(time.Duration(o.minutes * float64(time.Minute)))
	var kept []job
	if o.seed == 0 {
		kept = keptSeeds(list)
	}
	done, steps, same, slowOnes := 0, 0, 0, 0
	for ; one && done == 0 || !one && (o.count > 0 && done < o.count || o.count == 0 && time.Now().Before(until)); done++ {
		next := job{&list[done%len(list)], seed}
		if done < len(kept) {
			next = kept[done]
		} else {
			seed++
		}
		var first string
		for i := range o.repeat {
			s, err := b.one(next.scenario, next.seed, o.faults)
			steps += len(s.trace)
			if s.isSlow {
				slowOnes++
			}
			if o.trace && (err != nil || one && o.repeat == 1) {
				fmt.Fprintln(stdout, strings.Join(s.trace, "\n"))
			}
			if err != nil {
				return failedError{next.scenario.name, next.seed, err, o.bug, fmt.Sprintf("after %d schedules in %.1f s", done+1, time.Since(begun).Seconds())}
			}
			trace := strings.Join(s.trace, "\n")
			switch {
			case i == 0:
				first = trace
			case trace == first:
				same++
			case o.trace:
				fmt.Fprintf(stdout, "seed %d:\n%s\n--- and\n%s\n", next.seed, first, trace)
			}
		}
		if done%200 == 0 {
			runtime.GC()
		}
	}
	fmt.Fprintf(stdout, "%d schedules of %d scenarios, %d calls, %.1f a second, seeds up to %d", done*o.repeat, len(list), steps, float64(done*o.repeat)/time.Since(begun).Seconds(), seed-1)
	if slowOnes > 0 {
		fmt.Fprintf(stdout, ", %d judged as after a crash: they took more than %v", slowOnes, slow)
	}
	if o.repeat > 1 {
		fmt.Fprintf(stdout, ", %d of %d repetitions in the same order", same, done*(o.repeat-1))
	}
	fmt.Fprintln(stdout)
	return nil
}

// job is one schedule.
type job struct {
	scenario *scenario
	seed     uint64
}

// seeds has schedules that have found something once, also a bug that was planted, a line each:
// the scenario, the seed, and what it was.
//
//go:embed seeds
var seeds string

// keptSeeds are the schedules of the file that belong to these scenarios.
func keptSeeds(list []scenario) (jobs []job) {
	for line := range strings.Lines(seeds) {
		var name string
		var seed uint64
		_, _ = fmt.Sscan(line, &name, &seed)
		for i := range list {
			if list[i].name == name {
				jobs = append(jobs, job{&list[i], seed})
			}
		}
	}
	return jobs
}

// memory is a file system without real syncs, where there is one.
func memory() string {
	if info, err := os.Stat("/dev/shm"); err == nil && info.IsDir() {
		return "/dev/shm"
	}
	return ""
}

// build builds the programs, with a bug if there is a patch.
func build(patch, work string) (string, error) {
	args := []string{"build", "-o", filepath.Join(work, "bin") + "/"}
	if patch != "" {
		bug, err := bugs.ReadOne(patch)
		if err != nil {
			return "", err
		}
		overlay, err := bug.Plant(".", work)
		if err != nil {
			return "", err
		}
		args = append(args, "-overlay", overlay)
	}
	cmd := exec.Command("go", append(args, "./cmd/...")...)
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build: %w: %s", err, out)
	}
	return filepath.Join(work, "bin"), nil
}
