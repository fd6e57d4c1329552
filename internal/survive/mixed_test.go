//go:build linux

package survive

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	ondisk "thread/internal/store/bolt/disk"
	"thread/jsonlog"
)

// TestMixedVersions lets the program of an earlier commit and this one push,
// dispatch, consume and serve one thread together, while processes of both are killed.
// Afterwards every event was handled by every consumer, and never did two handlers
// of one consumer work at once. It needs the repository with its history, and
// THREAD_MIXED, which is how long it takes.
func TestMixedVersions(t *testing.T) {
	length, err := time.ParseDuration(os.Getenv("THREAD_MIXED"))
	if err != nil {
		t.Skip("set THREAD_MIXED to how long it may take, for example 20s")
	}
	programs := []string{program, buildEarlier(t)}
	dir := t.TempDir()
	tk := &take{scene: &scene{base: dir}, dir: dir}
	script := filepath.Join(dir, "handler")
	if err := os.WriteFile(script, []byte(drainAlone), 0o600); err != nil {
		t.Fatal(err)
	}
	run := func(program string, args ...string) error {
		cmd := exec.Command(program, append(args, "--thread", tk.path("thread"))...)
		cmd.Env = append(os.Environ(), tk.mark(), "T="+program, "THREAD_DISPATCH=spawn")
		out, err := cmd.CombinedOutput()
		if err != nil {
			return fmt.Errorf("%s: %w: %s", strings.Join(args, " "), err, out)
		}
		return nil
	}
	// The earlier one makes the thread: it knows no later format.
	if out, err := exec.Command(programs[1], "init", tk.path("thread")).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	worker := `flock -n "$D/alone-w" sh -c 'cat >> "$D/delivered-w"' || echo "w is not alone" >> "$D/violations"`
	for consumer, handler := range map[string]string{
		"c": "exec sh " + script,
		"d": "sh " + script + "; exit $?",
		"w": fmt.Sprintf(`"$T" consume --backoff 50ms -- sh -c %s`, "'"+strings.ReplaceAll(worker, "'", `'\''`)+"'"),
	} {
		if err := run(program, "subscribe", "--consumer", consumer, "--handler", handler); err != nil {
			t.Fatal(err)
		}
	}
	ctx, stop := context.WithTimeout(t.Context(), length)
	defer stop()
	var all sync.WaitGroup
	var mu sync.Mutex
	pushed := 0
	for i := range 4 {
		all.Go(func() {
			for ctx.Err() == nil {
				if err := run(programs[i%2], "push", "--source", "s", "--type", "message", "--content", "x"); err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				pushed++
				mu.Unlock()
				time.Sleep(time.Duration(rand.IntN(80)) * time.Millisecond) // the load's pace
			}
		})
	}
	all.Go(func() { // servers come and go
		for i := 0; ctx.Err() == nil; i++ {
			server := exec.Command(programs[i%2], "serve", "--drain", "1s", "--thread", tk.path("thread"))
			server.Env = append(os.Environ(), tk.mark(), "T="+programs[i%2])
			if err := server.Start(); err != nil {
				t.Error(err)
				return
			}
			pause, cancel := context.WithTimeout(ctx, time.Duration(500+rand.IntN(1000))*time.Millisecond)
			<-pause.Done()
			cancel()
			_ = server.Process.Signal([]os.Signal{os.Kill, syscall.SIGTERM}[rand.IntN(2)])
			server.Wait()
		}
	})
	kills := 0
	all.Go(func() {
		for ctx.Err() == nil {
			if list := atWork(tk.mark(), programs); len(list) > 0 {
				if syscall.Kill(list[rand.IntN(len(list))], syscall.SIGKILL) == nil {
					kills++
				}
			}
			time.Sleep(time.Duration(30+rand.IntN(80)) * time.Millisecond) // the killer's pace
		}
	})
	all.Wait()
	// What only one process knew may have been lost with it, and a consumer may have
	// failed too often: those are the next push's.
	for try := 0; ; try++ {
		if err := run(programs[try%2], "dispatch"); err != nil {
			t.Fatal(err)
		}
		if err := awaitAll(tk.mark(), handlersLimit); err != nil {
			// A supervisor of the earlier program, started from within a handler, kept that handler's
			// tree lock open, and could wait for it for ever. It is ended by now.
			var left leftError
			if !errors.As(err, &left) || slices.ContainsFunc(left.commands, func(c string) bool { return !strings.HasPrefix(c, programs[1]+" supervise ") }) {
				t.Fatal(err)
			}
			t.Log(err)
		}
		missing := ""
		for _, consumer := range []string{"c", "d", "w"} {
			text, _ := os.ReadFile(tk.path("delivered-" + consumer))
			var got []int64
			for line := range bytes.Lines(text) {
				if id, ok := jsonlog.LineID(bytes.TrimSuffix(line, []byte("\n"))); ok {
					got = append(got, id)
				}
			}
			slices.Sort(got)
			if got = slices.Compact(got); len(got) != pushed {
				missing += fmt.Sprintf("%s was given %d of %d events; ", consumer, len(got), pushed)
			}
		}
		if missing == "" {
			break
		}
		if try == 5 {
			t.Fatalf("%s\n%s", missing, tk.log())
		}
	}
	if text, err := os.ReadFile(tk.path("violations")); err == nil {
		t.Errorf("two at once: %s", text)
	}
	t.Logf("%d events, %d kills", pushed, kills)
}

// atWork returns the processes of the programs that carry the mark, except for pushes:
// those count only when they have succeeded.
func atWork(mark string, programs []string) (list []int) {
	all, _ := filepath.Glob("/proc/[0-9]*")
	for _, dir := range all {
		exe, _ := os.Readlink(dir + "/exe")
		line, _ := os.ReadFile(dir + "/cmdline")
		args := strings.Split(string(line), "\x00")
		if !slices.Contains(programs, exe) || len(args) < 2 || args[1] == "push" || args[1] == "dispatch" || args[1] == "serve" {
			continue
		}
		if env, _ := os.ReadFile(dir + "/environ"); bytes.Contains(env, []byte(mark+"\x00")) {
			pid, _ := strconv.Atoi(filepath.Base(dir))
			list = append(list, pid)
		}
	}
	return list
}

// buildEarlier builds the program of the first commit with this format of threads: programs of
// it may be at work on a thread while this one is installed.
func buildEarlier(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	const needs = "THREAD_MIXED needs a clone with the whole history: git fetch --unshallow"
	format := fmt.Sprintf("FormatVersion = %d", ondisk.FormatVersion)
	log := exec.Command("git", "log", "--reverse", "--format=%H", "-S", format, "--", "internal/store/bolt/disk/format.go")
	log.Dir = "../.."
	out, err := log.Output()
	earlier, _, found := strings.Cut(string(out), "\n")
	if err != nil || !found {
		t.Fatalf("no commit has %q: %v\n%s", format, err, needs)
	}
	archive := exec.Command("git", "archive", "--format=tar", "-o", filepath.Join(dir, "a.tar"), earlier)
	archive.Dir = "../.."
	if out, err := archive.CombinedOutput(); err != nil {
		t.Fatalf("commit %s is not here: %s %v\n%s", earlier, out, err, needs)
	}
	for _, args := range [][]string{
		{"tar", "xf", "a.tar"},
		{"go", "build", "-o", "thread", "./cmd/thread"},
	} {
		cmd := exec.Command(args[0], args[1:]...)
		cmd.Dir = dir
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %v: %s", args, err, out)
		}
	}
	return filepath.Join(dir, "thread")
}
