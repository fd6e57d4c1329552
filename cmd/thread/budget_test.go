package main

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"
)

// Budgets, for small machines (issue 9). Memory is the highest that was resident,
// pages of the program and of the database included.
const (
	maxPushKiB     = 9 << 10
	maxPageKiB     = 16 << 10              // of pop and peek, 100 events of 300 bytes
	maxIdleKiB     = 11 << 10              // of a follower that waits
	maxIdle        = 10 * time.Millisecond // of processor time in idleTime
	maxDescriptors = 18

	idleTime = 3 * time.Second
	measured = 7 // runs of which the least counts
)

// maxBytes bounds the programs that make dist ships; 0 is for one that does not
// exist there. make dist-lite checks thread alone with the flags for the smallest
// hosts. thread-serve has html/template, with which the linker keeps every exported
// method: 3 MB, the SDK of thread mcp, 2.5 MB, the export of traces, 0.25 MB, and the
// pages and paths over HTTP. The machine of expr has the same effect on every program;
// thread-lite is built without it.
var maxBytes = []struct {
	target                         string // as tools/dist.sh has it
	thread, serve, history, sqlite int64  // thread-outbox has the bound of thread-history
}{
	{"linux/amd64", 9_130_000, 21_140_000, 9_900_000, 13_630_000},
	{"linux/arm/6", 8_080_000, 19_180_000, 8_880_000, 13_220_000},
	{"linux/arm64", 8_630_000, 19_960_000, 9_310_000, 13_190_000},
	{"linux/386", 8_530_000, 20_620_000, 9_210_000, 12_840_000},
	{"linux/arm/5", 8_080_000, 19_600_000, 8_880_000, 13_410_000},
	{"linux/arm/7", 8_080_000, 19_480_000, 8_880_000, 13_220_000},
	{"linux/riscv64", 8_040_000, 19_710_000, 8_730_000, 12_210_000},
	{"linux/mips", 9_240_000, 21_190_000, 10_020_000, 0},
	{"linux/mipsle", 9_240_000, 21_190_000, 10_020_000, 0},
	{"linux/ppc64le", 8_920_000, 20_960_000, 9_750_000, 13_590_000},
	{"linux/s390x", 9_390_000, 22_040_000, 10_230_000, 14_460_000},
	{"darwin/amd64", 8_980_000, 21_300_000, 9_790_000, 13_280_000},
	{"darwin/arm64", 8_440_000, 20_280_000, 9_150_000, 12_970_000},
	{"freebsd/amd64", 8_780_000, 21_060_000, 9_410_000, 13_470_000},
}

// maxLiteBytes bounds the program of thread-lite on the first three targets.
const maxLiteBytes = 6_870_000

// TestBudgets prints what the program takes of a small machine, and fails when it
// is more than allowed. It builds the program as make dist does, for the first
// three targets, or for all of them, which takes minutes:
//
//	THREAD_BUDGETS=1 go test -run Budgets -v ./cmd/thread
//	THREAD_BUDGETS=all go test -run Budgets -v ./cmd/thread
func TestBudgets(t *testing.T) {
	budgets := maxBytes
	switch os.Getenv("THREAD_BUDGETS") {
	case "":
		t.Skip("THREAD_BUDGETS is not set")
	case "all":
	default:
		budgets = budgets[:3]
	}
	dir := t.TempDir()
	shipped := func(target, program string) string {
		return filepath.Join(dir, strings.ReplaceAll(target, "/", "-"), program)
	}
	args := []string{"-p", "-o", dir}
	for _, b := range budgets {
		args = append(args, b.target)
	}
	if out, err := exec.Command("../../tools/dist.sh", args...).CombinedOutput(); err != nil {
		t.Fatalf("tools/dist.sh: %v\n%s", err, out)
	}
	for i, b := range budgets {
		lite := b.thread
		switch {
		case i < 3:
			lite = maxLiteBytes
		case !strings.HasPrefix(b.target, "linux/"):
			lite = 0
		}
		for _, p := range []struct {
			program string
			most    int64
		}{{"thread", b.thread}, {"thread-lite", lite}, {"thread-serve", b.serve}, {"thread-history", b.history}, {"thread-outbox", b.history}, {"thread-sqlite", b.sqlite}} {
			st, err := os.Stat(shipped(b.target, p.program))
			if err != nil {
				if p.most > 0 || !errors.Is(err, fs.ErrNotExist) {
					t.Error(err)
				}
				continue
			}
			t.Logf("%-34s %9d bytes, at most %d", b.target+" "+p.program, st.Size(), p.most)
			if st.Size() > p.most {
				t.Errorf("%s: %d bytes of %s are more than %d", b.target, st.Size(), p.program, p.most)
			}
		}
	}
	if runtime.GOOS != "linux" || runtime.GOARCH != "amd64" {
		t.Skip("processes are measured on linux/amd64")
	}
	program := shipped("linux/amd64", "thread")
	measure := filepath.Join(dir, "measure")
	build(t, measure, writeMeasure(t, dir))
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
	line := fmt.Sprintf(`{"source":"self","type":"message","content":"%0300d"}`+"\n", 0)
	run(strings.Repeat(line, 100_000), program, "push", "--thread", inbox, "--batch", "--quiet")

	resident := func(what string, kib, most int64) {
		t.Helper()
		t.Logf("%-34s %6d KiB resident, at most %d", what, kib, most)
		if kib > most {
			t.Errorf("%s: %d KiB are more than %d", what, kib, most)
		}
	}
	for _, b := range []struct {
		most int64
		args []string
	}{
		{maxPushKiB, []string{"push", "--thread", inbox, "--source", "self", "--type", "message", "--content", "hello"}},
		{maxPageKiB, []string{"pop", "--thread", inbox, "--consumer", "c", "--last-event-id", "50000"}},
		{maxPageKiB, []string{"peek", "--thread", inbox, "--last-event-id", "50000"}},
	} {
		// The least of the runs is what the program needs: how much more of its file
		// the kernel maps around that differs by 400 KiB from run to run.
		least := int64(math.MaxInt64)
		for range measured {
			out := run("", append([]string{measure, program}, b.args...)...)
			kib, err := strconv.ParseInt(strings.TrimSpace(string(out)), 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			least = min(least, kib)
		}
		resident(b.args[0]+", 100,000 events", least, b.most)
	}

	for _, args := range [][]string{
		{"tail", "--thread", inbox, "-n", "1", "--follow"},
		{"consume", "--thread", inbox, "--consumer", "c", "--follow", "--", "sh", "-c", "cat >/dev/null; echo done"},
	} {
		run("", program, "seek", "--thread", inbox, "--consumer", "c", "--to", "100000") // what was pushed is unread
		f := follow(t, program, args)
		if args[0] == "consume" { // the line comes before the ack
			for !strings.Contains(string(run("", program, "info", "--thread", inbox)), fmt.Sprintf("last_acked_id: %d\n", 100_000+measured)) {
			}
		}
		before := f.processorTime(t)
		time.Sleep(idleTime) // it is a measurement: nothing is to happen
		used := f.processorTime(t) - before
		what := args[0] + " --follow, idle"
		resident(what, f.peakKiB(t), maxIdleKiB)
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

func build(t *testing.T, out, from string) {
	t.Helper()
	cmd := exec.Command("go", "build", "-trimpath", "-ldflags=-s -w", "-o", out, from)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if text, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("go build %s: %v\n%s", from, err, text)
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
