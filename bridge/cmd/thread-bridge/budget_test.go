package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"

	"thread/engine"
)

// Budgets of issue 19: bytes on the disk, pages in memory, and what waiting costs.
const (
	maxEdge     = 12_500_000
	maxFull     = 24_600_000            // with expr, which is 5.5 MB of it
	maxResident = 25 << 10              // KiB
	maxIdle     = 50 * time.Millisecond // of processor time in a minute
)

// TestBudgets builds the program as it is shipped, and lets it wait for messages:
//
//	THREAD_BUDGETS=1 go test -run Budgets -v ./cmd/thread-bridge
func TestBudgets(t *testing.T) {
	if os.Getenv("THREAD_BUDGETS") == "" {
		t.Skip("THREAD_BUDGETS is not set")
	}
	dir := t.TempDir()
	build := func(name string, most int64, flags ...string) string {
		path := filepath.Join(dir, name)
		cmd := exec.Command("go", append(append([]string{"build", "-trimpath", "-ldflags=-s -w -funcalign=4", "-o", path}, flags...), ".")...)
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH=amd64", "GOEXPERIMENT=nogreenteagc") // as make dist
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		st, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%-10s %9d bytes, at most %d", name, st.Size(), most)
		if st.Size() > most {
			t.Errorf("%s: %d bytes are more than %d", name, st.Size(), most)
		}
		return path
	}
	full, edge := build("full", maxFull), build("edge", maxEdge, "-tags", "edge,lite")
	if runtime.GOOS != "linux" || runtime.GOARCH != "amd64" {
		t.Skip("processes are measured on linux/amd64")
	}
	c, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(3, "q"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close) // behind the parallel parts
	for _, p := range []struct{ program, adapter string }{
		{edge, fmt.Sprintf("mock, connection: {dir: %q}", filepath.Join(dir, "queue"))},
		{edge, `jetstream, connection: {servers: "nats://127.0.0.1:4222"}`},
		{full, fmt.Sprintf("kafka, connection: {brokers: %q}", c.ListenAddrs()[0])},
	} {
		kind, _, _ := strings.Cut(p.adapter, ",")
		t.Run(kind, func(t *testing.T) {
			t.Parallel() // they wait, most of the time
			idle(t, p.program, p.adapter)
		})
	}
}

// idle runs a trigger that has nothing to do for a minute.
func idle(t *testing.T, program, adapter string) {
	dir, config := filepath.Join(t.TempDir(), "t"), filepath.Join(t.TempDir(), "c.yaml")
	if _, err := engine.Init(dir); err != nil {
		t.Fatal(err)
	}
	queue := "q"
	if strings.HasPrefix(adapter, "jetstream") {
		queue = stream(t)
	}
	if err := os.WriteFile(config, fmt.Appendf(nil, "queue_name: %s\nconsumer_group: g\nadapter: {type: %s}\n", queue, adapter), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(program, "trigger", "run", "--thread", dir, "--config", config)
	log, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer cmd.Wait()
	defer cmd.Process.Kill()
	said := make([]byte, 4096)
	if n, err := log.Read(said); err != nil || !strings.Contains(string(said[:n]), "started") {
		t.Fatalf("%v %s", err, said)
	}
	time.Sleep(2 * time.Second) // joining a group is not waiting
	before := processor(t, cmd.Process.Pid)
	time.Sleep(time.Minute) // it is a measurement: nothing is to happen
	used := processor(t, cmd.Process.Pid) - before
	kib := resident(t, cmd.Process.Pid)
	t.Logf("%6d KiB resident, at most %d; %v of processor time in a minute, at most %v", kib, maxResident, used, maxIdle)
	if kib > maxResident || used > maxIdle {
		t.Errorf("%d KiB, %v", kib, used)
	}
}

// processor returns the processor time of a process, to the microsecond.
func processor(t *testing.T, pid int) time.Duration {
	t.Helper()
	tasks, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", pid))
	if err != nil || len(tasks) == 0 {
		t.Fatal(err, "no tasks")
	}
	var sum time.Duration
	for _, path := range tasks {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		n, err := strconv.ParseInt(strings.Fields(string(text))[0], 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		sum += time.Duration(n)
	}
	return sum
}

// resident returns the most KiB that a process had in memory.
func resident(t *testing.T, pid int) (kib int64) {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			if _, err := fmt.Sscan(rest, &kib); err != nil {
				t.Fatal(err)
			}
		}
	}
	return kib
}

// TestDeadCode: nothing is linked into the edge build that looks up methods by a name it
// computes. With that the linker keeps every exported method of every type: 4 MB of 15.
// The full build pays for that with expr, and for nothing else.
func TestDeadCode(t *testing.T) {
	for _, tags := range []string{"", "edge,lite"} {
		out, err := exec.CommandContext(t.Context(), "go", "list", "-deps", "-tags", tags, ".").Output()
		if err != nil {
			t.Fatal(err)
		}
		for pkg := range strings.Lines(string(out)) {
			switch pkg = strings.TrimSpace(pkg); {
			case strings.HasPrefix(pkg, "github.com/expr-lang/expr"):
				if tags == "" {
					continue
				}
				fallthrough
			case slices.Contains([]string{"text/template", "html/template", "github.com/prometheus/client_golang/prometheus"}, pkg):
				t.Errorf("%s is linked with -tags %q", pkg, tags)
			}
		}
	}
}
