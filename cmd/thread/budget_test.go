package main

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// Budgets, for small machines. Sizes are of stripped programs; memory is the
// highest that was resident, pages of the program and of the database included.
const (
	maxBytes       = 12_000_000 // with SQLite; make dist-lite checks programs without
	maxResidentKiB = 10 << 10
	maxIdle        = 10 * time.Millisecond // of processor time in idleTime
	maxDescriptors = 16

	idleTime = 3 * time.Second
)

// TestBudgets prints what the program takes of a small machine, and fails when it
// is more than allowed. It builds the program several times:
//
//	THREAD_BUDGETS=1 go test -run Budgets -v ./cmd/thread
func TestBudgets(t *testing.T) {
	if os.Getenv("THREAD_BUDGETS") == "" {
		t.Skip("THREAD_BUDGETS is not set")
	}
	dir := t.TempDir()
	for _, target := range [][]string{{"GOARCH=amd64"}, {"GOARCH=arm", "GOARM=6"}, {"GOARCH=arm64"}} {
		name := filepath.Join(dir, strings.Join(target, "-"))
		build(t, name, append(target, "GOOS=linux"), "-ldflags=-s -w", ".")
		st, err := os.Stat(name)
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%-34s %9d bytes, at most %d", strings.Join(target, " "), st.Size(), maxBytes)
		if st.Size() > maxBytes {
			t.Errorf("%v: %d bytes are more than %d", target, st.Size(), maxBytes)
		}
	}
	if _, err := os.Stat("/proc/self/status"); err != nil {
		t.Skip("no /proc to measure processes with")
	}
	program := filepath.Join(dir, "thread")
	build(t, program, nil, "-ldflags=-s -w", ".")
	measure := filepath.Join(dir, "measure")
	build(t, measure, nil, writeMeasure(t, dir))
	inbox := filepath.Join(dir, "inbox")
	run := func(stdin string, args ...string) []byte {
		t.Helper()
		cmd := exec.Command(args[0], args[1:]...)
		cmd.Env = append(os.Environ(), "THREAD_DISPATCH=none")
		cmd.Stdin = strings.NewReader(stdin)
		cmd.Stderr = os.Stderr
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("%v: %v", args, err)
		}
		return out
	}
	run("", program, "init", inbox)
	run("", program, "subscribe", "--thread", inbox, "--consumer", "c", "--handler", "true")
	run(strings.Repeat(`{"source":"self","type":"message","content":"hello"}`+"\n", 100_000), program, "push", "--thread", inbox, "--batch", "--quiet")

	resident := func(what string, kib int64) {
		t.Helper()
		t.Logf("%-34s %6d KiB resident, at most %d", what, kib, maxResidentKiB)
		if kib > maxResidentKiB {
			t.Errorf("%s: %d KiB are more than %d", what, kib, maxResidentKiB)
		}
	}
	for _, args := range [][]string{
		{"push", "--thread", inbox, "--source", "self", "--type", "message", "--content", "hello"},
		{"pop", "--thread", inbox, "--consumer", "c", "--last-event-id", "50000"},
	} {
		out := run("", append([]string{measure, program}, args...)...)
		kib, err := strconv.ParseInt(strings.TrimSpace(string(out)), 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		resident(args[0]+", 100,000 events", kib)
	}

	for _, args := range [][]string{
		{"tail", "--thread", inbox, "-n", "1", "--follow"},
		{"consume", "--thread", inbox, "--consumer", "c", "--follow", "--", "sh", "-c", "cat >/dev/null; echo done"},
	} {
		run("", program, "seek", "--thread", inbox, "--consumer", "c", "--to", "100000") // one is unread
		f := follow(t, program, args)
		if args[0] == "consume" { // the line comes before the ack
			for !strings.Contains(string(run("", program, "info", "--thread", inbox)), "last_acked_id: 100001\n") {
			}
		}
		before := f.processorTime(t)
		time.Sleep(idleTime) // it is a measurement: nothing is to happen
		used := f.processorTime(t) - before
		what := args[0] + " --follow, idle"
		resident(what, f.peakKiB(t))
		fds := f.descriptors(t)
		t.Logf("%-34s %6v of processor time in %v, at most %v; %d descriptors, at most %d", what, used, idleTime, maxIdle, fds, maxDescriptors)
		if used > maxIdle {
			t.Errorf("%s: takes %v of processor time in %v", what, used, idleTime)
		}
		if fds > maxDescriptors {
			t.Errorf("%s: holds %d descriptors", what, fds)
		}
	}
}

func build(t *testing.T, out string, env []string, args ...string) {
	t.Helper()
	cmd := exec.Command("go", append([]string{"build", "-trimpath", "-o", out}, args...)...)
	cmd.Env = append(append(os.Environ(), "CGO_ENABLED=0"), env...)
	if text, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("go build %v: %v\n%s", args, err, text)
	}
}

// writeMeasure writes a program that runs another and prints its peak resident
// memory in KiB. It must be small: until a child calls exec, Linux counts its
// parent's memory as its own, and this test's is larger than what is measured.
func writeMeasure(t *testing.T, dir string) string {
	t.Helper()
	file := filepath.Join(dir, "measure.go")
	const source = `package main

import (
	"os"
	"strconv"
	"syscall"
)

func main() {
	p, err := os.StartProcess(os.Args[1], os.Args[1:], &os.ProcAttr{Files: []*os.File{os.Stdin, nil, os.Stderr}})
	if err != nil {
		panic(err)
	}
	state, err := p.Wait()
	if err != nil || !state.Success() {
		panic("failed")
	}
	os.Stdout.WriteString(strconv.FormatInt(int64(state.SysUsage().(*syscall.Rusage).Maxrss), 10) + "\n")
}

`
	if err := os.WriteFile(file, []byte(source), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// follower is a process that has done what there was to do and waits for more.
type follower struct{ pid int }

// follow starts the program and waits for its first line.
func follow(t *testing.T, program string, args []string) follower {
	t.Helper()
	cmd := exec.Command(program, args...)
	cmd.Env = append(os.Environ(), "THREAD_DISPATCH=none")
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Signal(os.Interrupt)
		cmd.Wait()
	})
	if _, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		t.Fatalf("%v prints nothing: %v", args, err)
	}
	return follower{cmd.Process.Pid}
}

func (f follower) proc(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/%s", f.pid, file))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// processorTime is the sum over its threads, in nanoseconds as the scheduler
// counts them.
func (f follower) processorTime(t *testing.T) time.Duration {
	t.Helper()
	tasks, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", f.pid))
	if err != nil {
		t.Fatal(err)
	}
	var sum time.Duration
	for _, task := range tasks {
		ns, err := strconv.ParseInt(strings.Fields(f.proc(t, "task/"+task.Name()+"/schedstat"))[0], 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		sum += time.Duration(ns)
	}
	return sum
}

func (f follower) peakKiB(t *testing.T) int64 {
	t.Helper()
	_, after, _ := strings.Cut(f.proc(t, "status"), "VmHWM:")
	kib, err := strconv.ParseInt(strings.Fields(after)[0], 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return kib
}

func (f follower) descriptors(t *testing.T) int {
	t.Helper()
	fds, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", f.pid))
	if err != nil {
		t.Fatal(err)
	}
	return len(fds)
}
