package survive

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

var (
	ctx     = context.Background()
	program string // the path of the program under test
	scratch string // a directory, removed at the end
	full    = os.Getenv("THREAD_CRASH") == "full"
	sample  = os.Getenv("THREAD_CRASH") == "sample" // more than a quick run, and not all
)

// jobWorker is the directory of the tests of jobs, and what makes this program one of their
// workers. The worker appends a line to the file "log" in it for what it does.
const jobWorker = "SURVIVE_JOB_WORKER"

// TestMain builds the program under test, or takes the one that THREAD_PROGRAM names.
func TestMain(m *testing.M) {
	if os.Getenv(handlerLog) != "" {
		os.Exit(handle())
	}
	if os.Getenv(jobWorker) != "" {
		os.Exit(asJobWorker())
	}
	os.Exit(func() int {
		var err error
		if scratch, err = os.MkdirTemp("", "survive-*"); err != nil {
			panic(err)
		}
		defer os.RemoveAll(scratch)
		if program = os.Getenv("THREAD_PROGRAM"); program == "" {
			program = filepath.Join(scratch, "thread")
			if err := buildProgram(program, "bundled"); err != nil {
				fmt.Fprintln(os.Stderr, err)
				return 1
			}
		}
		return m.Run()
	}())
}

// buildProgram builds the program with all verbs, and with more flags for go build.
func buildProgram(path, tags string, flags ...string) error {
	build := exec.Command("go", append(append([]string{"build", "-tags", tags, "-o", path}, flags...), root+"/cmd/thread")...)
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	return nil
}

// result is what a run of the program came to.
type result struct {
	code           int // -1: killed
	stdout, stderr string
}

func (r result) String() string {
	return fmt.Sprintf("exit %d, stdout %.200q, stderr %.2000q", r.code, r.stdout, r.stderr)
}

// runLimit is when a run counts as hanging. The program itself waits 4 s for a
// lock; a damaged database must be named within 8 s.
const runLimit = time.Minute

// environment keeps the runs from starting handlers.
func environment() []string { return append(os.Environ(), "THREAD_DISPATCH=none") }

// run runs name with args and stdin to its end.
func run(t testing.TB, stdin string, name string, args ...string) result {
	t.Helper()
	limit, cancel := context.WithTimeout(ctx, runLimit)
	defer cancel()
	cmd := exec.CommandContext(limit, name, args...)
	cmd.Env = environment()
	cmd.Stdin = strings.NewReader(stdin)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGQUIT) } // it says where it is
	cmd.WaitDelay = 5 * time.Second
	err := cmd.Run()
	if limit.Err() != nil {
		t.Fatalf("%s %q hangs: %.6000s", name, args, stderr.String())
	}
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	r := result{stdout: stdout.String(), stderr: stderr.String()}
	if exit != nil {
		r.code = exit.ExitCode()
		if status := exit.Sys().(syscall.WaitStatus); status.Signaled() && status.Signal() != syscall.SIGKILL {
			t.Fatalf("%s %q: %v", name, args, exit)
		}
	}
	return r
}

// thread runs the program and requires exit code 0.
func thread(t testing.TB, stdin string, args ...string) string {
	t.Helper()
	r := run(t, stdin, program, args...)
	if r.code != 0 {
		t.Fatalf("thread %q: %v", args, r)
	}
	return r.stdout
}

// copyDir copies a thread directory. Lock files and sockets in run/ are left out.
func copyDir(t testing.TB, from, to string) {
	t.Helper()
	if err := os.CopyFS(to, os.DirFS(from)); err != nil {
		t.Fatal(err)
	}
}

func removeAll(t testing.TB, dir string) {
	t.Helper()
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
}
