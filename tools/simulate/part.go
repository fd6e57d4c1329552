//go:build linux

package main

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// A part runs schedules on one CPU. Its number is in the environment; it reads jobs from one
// pipe, which all parts share, and writes into another one what it has done.
const (
	partVariable = "SIMULATE_PART"
	jobsFile     = 3
	tallyFile    = 4
)

// job is one schedule.
type job struct{ Scenario, Seed uint64 }

// tally is what has been done.
type tally struct {
	Schedules, Calls, Slow, Same, Repeated int64
	Last                                   uint64 // seed
}

func (t *tally) add(o tally) {
	t.Schedules += o.Schedules
	t.Calls += o.Calls
	t.Slow += o.Slow
	t.Same += o.Same
	t.Repeated += o.Repeated
	t.Last = max(t.Last, o.Last)
}

// part is a started part.
type part struct {
	cmd    *exec.Cmd
	tally  *os.File
	output bytes.Buffer
}

// startParts starts the parts, gives them the jobs, and waits. The first one that fails ends
// the others. It returns the highest exit code.
func startParts(o options, list iter.Seq[job], stdout, stderr io.Writer) (sum tally, code int, err error) {
	n := runtime.NumCPU()
	if o.cpus > 0 {
		n = min(n, o.cpus)
	}
	read, write, err := os.Pipe()
	if err != nil {
		return sum, 0, err
	}
	args := []string{"-work", o.work, "-programs", o.program, "-scenario", o.scenario, "-repeat", strconv.Itoa(o.repeat),
		"-bug", o.bug, "-minutes", strconv.FormatFloat(o.minutes, 'g', -1, 64), "-count", strconv.Itoa(o.count),
		"-trace=" + strconv.FormatBool(o.trace), "-faults=" + strconv.FormatBool(o.faults)}
	runtime.LockOSThread() // parts end with their thread
	parts := make([]part, n)
	for i := range parts {
		if err := parts[i].start(i, args, read, stderr); err != nil {
			return sum, 0, err
		}
	}
	read.Close()
	end := func() {
		for i := range parts {
			_ = parts[i].cmd.Process.Signal(syscall.SIGTERM)
		}
	}
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	go func() {
		<-signals
		end()
	}()
	go func() {
		defer write.Close()
		for j := range list {
			if binary.Write(write, binary.NativeEndian, j) != nil {
				return // all parts have ended
			}
		}
	}()
	var mu sync.Mutex
	var group sync.WaitGroup
	for i := range parts {
		p := &parts[i]
		group.Go(func() {
			_ = p.cmd.Wait()
			mu.Lock()
			defer mu.Unlock()
			if p.cmd.ProcessState.ExitCode() != 0 && code == 0 {
				_, _ = io.Copy(stdout, &p.output)
				end()
			}
			code = max(code, p.cmd.ProcessState.ExitCode())
			var done tally
			if binary.Read(p.tally, binary.NativeEndian, &done) == nil {
				sum.add(done)
			}
			if code == 0 {
				_, _ = io.Copy(stdout, &p.output)
			}
		})
	}
	group.Wait()
	return sum, code, nil
}

func (p *part) start(number int, args []string, jobs *os.File, stderr io.Writer) error {
	read, write, err := os.Pipe()
	if err != nil {
		return err
	}
	defer write.Close()
	p.tally = read
	p.cmd = exec.Command("/proc/self/exe", args...)
	p.cmd.Env = append(os.Environ(), partVariable+"="+strconv.Itoa(number))
	p.cmd.Stdout, p.cmd.Stderr = &p.output, stderr
	p.cmd.ExtraFiles = []*os.File{jobs, write}
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
	return p.cmd.Start()
}

// runPart is the program of a part.
func runPart(args []string, stdout, stderr io.Writer) int {
	var o options
	flags := o.flags(stderr)
	flags.StringVar(&o.work, "work", "", "")
	if flags.Parse(args) != nil {
		return 2
	}
	number, _ := strconv.Atoi(os.Getenv(partVariable))
	unix.CloseOnExec(jobsFile)
	unix.CloseOnExec(tallyFile)
	var done tally
	err := done.schedule(o, number, stdout)
	_ = binary.Write(os.NewFile(tallyFile, "tally"), binary.NativeEndian, &done)
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

// schedule runs jobs until there are none, or the time has passed.
func (t *tally) schedule(o options, number int, stdout io.Writer) error {
	list, err := chosen(o)
	if err != nil {
		return err
	}
	b := newBench(o, number)
	debug.SetGCPercent(-1) // a collection would wait for a thread that starts a program
	cpus, err := allowed()
	if err != nil {
		return err
	}
	if b.l, err = newLauncher(cpus[len(cpus)-1-number%len(cpus)]); err != nil {
		return fmt.Errorf("%w: %w", errNotAllowed, err)
	}
	begun := time.Now()
	until := begun.Add(time.Duration(o.minutes * float64(time.Minute)))
	jobs := os.NewFile(jobsFile, "jobs")
	for o.count > 0 || time.Now().Before(until) {
		var next job
		if binary.Read(jobs, binary.NativeEndian, &next) != nil {
			return nil
		}
		if err := t.run(o, b, &list[next.Scenario], next.Seed, stdout); err != nil {
			return failedError{list[next.Scenario].name, next.Seed, err, o.bug, fmt.Sprintf("after %d schedules in %.1f s", t.Schedules, time.Since(begun).Seconds())}
		}
		if t.Last = max(t.Last, next.Seed); t.Schedules%200 == 0 {
			runtime.GC()
		}
	}
	return nil
}

// run runs the schedule of a seed, as often as the options ask.
func (t *tally) run(o options, b *bench, sc *scenario, seed uint64, stdout io.Writer) error {
	var first string
	for i := range o.repeat {
		s, err := b.one(sc, seed, o.faults)
		t.Schedules++
		t.Calls += int64(len(s.trace))
		if s.isSlow {
			t.Slow++
		}
		trace := strings.Join(s.trace, "\n")
		if o.trace && (err != nil || o.count == 1 && o.repeat == 1) {
			fmt.Fprintln(stdout, trace)
		}
		switch {
		case err != nil:
			return err
		case i == 0:
			first = trace
			continue
		case trace == first:
			t.Same++
		case o.trace:
			fmt.Fprintf(stdout, "seed %d:\n%s\n--- and\n%s\n", seed, first, trace)
		}
		t.Repeated++
	}
	return nil
}

// allowed are the CPUs that this process may use.
func allowed() (cpus []int, err error) {
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(0, &set); err != nil {
		return nil, err
	}
	for cpu := range len(set) * 64 {
		if set.IsSet(cpu) {
			cpus = append(cpus, cpu)
		}
	}
	return cpus, nil
}

func newBench(o options, number int) *bench {
	return &bench{programs: o.program, work: o.work, dir: filepath.Join(o.work, "d"+strconv.Itoa(number))}
}
