//go:build linux

// Command measure runs other programs in turn and says what each run cost. It is
// apart and small, because the price of a fork depends on the parent, and so does
// the memory that Linux counts for a child until it calls exec.
//
// It reads a Job as JSON from stdin and writes the Runs of each command as JSON.
package main

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Job is a number of rounds; in each, every command is run once. Their order
// changes from round to round, because what a command leaves to the disk and the
// kernel is paid by the one after it.
type Job struct {
	Rounds   int
	Warm     int // rounds before those, that do not count
	Commands []Command
}

// Command is a program with its arguments.
type Command struct {
	Args  []string
	Stdin string        // a file; "" for nothing
	Pipe  bool          // stdout is a pipe that is read to its end, and not /dev/null
	Env   []string      // added to the environment
	Stamp string        // a FIFO: the run has ended when the started command has written its time to it
	Pause time.Duration // after the run
}

// Run is what one run cost, from fork to exit, or to the time in Stamp.
type Run struct {
	Nanoseconds int64
	PeakKiB     int64 // resident, pages of mapped files included
	Written     int64 // bytes that were sent to the disk, as the kernel counts them
}

func main() {
	if err := measure(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "measure:", err)
		os.Exit(1)
	}
}

func measure(in io.Reader, out io.Writer) error {
	var job Job
	if err := json.NewDecoder(in).Decode(&job); err != nil {
		return err
	}
	runs := make([][]Run, len(job.Commands))
	random := rand.New(rand.NewPCG(1, 2))
	for i := range job.Warm + job.Rounds {
		for _, j := range random.Perm(len(job.Commands)) {
			r, err := job.Commands[j].run()
			if err != nil {
				return fmt.Errorf("%v: %w", job.Commands[j].Args, err)
			}
			if i >= job.Warm {
				runs[j] = append(runs[j], r)
			}
		}
	}
	return json.NewEncoder(out).Encode(runs)
}

func (c *Command) run() (r Run, err error) {
	stdin, err := os.Open(or(c.Stdin, os.DevNull))
	if err != nil {
		return r, err
	}
	defer stdin.Close()
	stdout, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	if err != nil {
		return r, err
	}
	var read *os.File
	if c.Pipe {
		stdout.Close()
		if read, stdout, err = os.Pipe(); err != nil {
			return r, err
		}
		defer read.Close()
	}
	var stamp *os.File
	if c.Stamp != "" {
		// For writing, too, so that there is no end of file between two writers.
		if stamp, err = os.OpenFile(c.Stamp, os.O_RDWR, 0); err != nil {
			return r, err
		}
		defer stamp.Close()
	}
	env := append(os.Environ(), c.Env...)
	files := []uintptr{stdin.Fd(), stdout.Fd(), os.Stderr.Fd()}
	var began unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &began); err != nil {
		return r, err
	}
	start := time.Now()
	pid, err := syscall.ForkExec(c.Args[0], c.Args, &syscall.ProcAttr{Env: env, Files: files})
	stdout.Close()
	if err != nil {
		return r, err
	}
	if read != nil {
		if _, err := io.CopyBuffer(struct{ io.Writer }{io.Discard}, struct{ io.Reader }{read}, make([]byte, 1<<20)); err != nil {
			return r, err
		}
	}
	// What the kernel counted is there until the child is waited for.
	for err = unix.EINTR; err == unix.EINTR; {
		err = unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil)
	}
	r.Nanoseconds = time.Since(start).Nanoseconds()
	if err != nil {
		return r, err
	}
	r.Written = writtenBytes(pid)
	var status syscall.WaitStatus
	var usage syscall.Rusage
	if _, err := syscall.Wait4(pid, &status, 0, &usage); err != nil {
		return r, err
	}
	r.PeakKiB = int64(usage.Maxrss)
	if status.ExitStatus() != 0 {
		return r, fmt.Errorf("exit status %d", status.ExitStatus())
	}
	if stamp != nil {
		var at int64
		if err := binary.Read(stamp, binary.NativeEndian, &at); err != nil {
			return r, err
		}
		r.Nanoseconds = at - began.Nano()
	}
	time.Sleep(c.Pause)
	return r, nil
}

func or(s, def string) string {
	if s == "" {
		return def
	}
	return s
}

// writtenBytes returns -1 where the kernel does not say.
func writtenBytes(pid int) int64 {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/io", pid))
	if err != nil {
		return -1
	}
	_, after, _ := strings.Cut(string(text), "\nwrite_bytes: ")
	line, _, _ := strings.Cut(after, "\n")
	n, err := strconv.ParseInt(line, 10, 64)
	if err != nil {
		return -1
	}
	return n
}
