//go:build linux

package dispatch

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"thread/engine"
	"thread/event"
	"thread/internal/programs"
	"thread/lock"
)

// TestMain lets the test binary stand in for the program: dispatch and supervise
// as cmd/thread calls them, and push, pop and last for handlers.
func TestMain(m *testing.M) {
	programs.Is(programs.Main)
	if ms, err := strconv.Atoi(os.Getenv("DISPATCH_TEST_DELAY_MS")); err == nil {
		firstDelay = time.Duration(ms) * time.Millisecond
		killGrace = firstDelay
	}
	if points := strings.Fields(os.Getenv("DISPATCH_TEST_STOP_AT")); len(points) > 0 {
		testPoint = func(point string) {
			if slices.Contains(points, point) {
				meet(os.Getenv("DISPATCH_TEST_MEET"))
			}
		}
	}
	if place := os.Getenv("DISPATCH_TEST_DIE_AT"); place != "" {
		testPoint = func(point string) {
			if point == place && os.Mkdir(os.Getenv("DISPATCH_TEST_DIED"), 0o700) == nil { // once
				self, _ := os.FindProcess(os.Getpid())
				self.Kill()
				select {}
			}
		}
	}
	if limit, err := time.ParseDuration(os.Getenv("DISPATCH_TEST_NOTIFIER_LIMIT")); err == nil {
		notifierLimit = limit
	}
	if deaths := os.Getenv("DISPATCH_TEST_DEATHS"); deaths != "" {
		testPoint = func(point string) {
			if point == "working" {
				dieEarly(deaths)
			}
		}
	}
	if len(os.Args) > 1 {
		if verb, ok := verbs[os.Args[1]]; ok {
			if err := verb(os.Args[2:]); err != nil {
				fmt.Fprintln(os.Stderr, "Error:", err)
				os.Exit(1)
			}
			os.Exit(0)
		}
	}
	// Tests say which way they want; the host's notifier is not to be asked.
	os.Setenv(envDispatch, wakeSpawn)
	os.Exit(m.Run())
}

// meet tells the test at the named pipe that this process is at the point, and
// waits for its answer.
func meet(fifo string) {
	os.WriteFile(fifo, []byte("here\n"), 0)
	if f, err := os.Open(fifo + ".go"); err == nil {
		f.Read(make([]byte, 3))
		f.Close()
	}
}

var verbs = map[string]func(args []string) error{
	"serves":      serves,
	superviseVerb: func(args []string) error { return Supervise(context.Background(), args) },
	"dispatch": func(args []string) error { // --thread DIR [max]
		t, err := engine.Open(args[1])
		if err != nil {
			return err
		}
		var o Options
		if len(args) > 2 {
			o.MaxHandlers, _ = strconv.Atoi(args[2])
		}
		return Run(context.Background(), t, o)
	},
	"push": func(args []string) error { // DIR SOURCE
		t, err := engine.Open(args[0])
		if err != nil {
			return err
		}
		e, err := t.Push(context.Background(), event.Draft{Source: args[1], Type: "message", Content: "pushed"})
		if err != nil {
			return err
		}
		fmt.Println(e.ID)
		return Wake(context.Background(), t, args[1])
	},
	"hold": func(args []string) error { // FILE: holds its lock until it is killed
		if _, err := lock.Try(args[0], lock.Exclusive); err != nil {
			return err
		}
		fmt.Println("held")
		time.Sleep(time.Hour) // a deadlock ends the program
		return nil
	},
	"adopts": func([]string) error { return adopts() },
	"toil":   func([]string) error { return toil() },
	"wakes":  func(args []string) error { return wakes(args[0]) },
	"lock":   func(args []string) error { return holdConsumer(args[0], args[1], strings.Join(args[2:], "")) },
	"bare":   func(args []string) error { return bare(args[0]) },
	"pop": func(args []string) error { // AFTER: prints the highest id, or nothing
		t, err := engine.Open(os.Getenv(envDir))
		if err != nil {
			return err
		}
		after, err := strconv.ParseInt(args[0], 10, 64)
		if err != nil {
			return err
		}
		page, err := t.Pop(context.Background(), os.Getenv(envConsumer), engine.PopQuery{LastAcked: after, Limit: 100})
		if err != nil {
			return err
		}
		last := int64(0)
		for e, err := range page.Events {
			if err != nil {
				return err
			}
			last = e.ID
		}
		if last != 0 {
			fmt.Println(last)
			return Popped(t, os.Getenv(envConsumer), last)
		}
		return nil
	},
}

// drain is a handler that pops until nothing is left, with "$T" as the program.
const drain = `n=$THREAD_LAST_ACKED_ID; while m=$("$T" pop $n) && [ -n "$m" ]; do n=$m; done`

// bench is a thread and its surroundings in a test.
type bench struct {
	testing.TB
	t   *engine.Thread
	r   *dispatcher
	dir string // a directory for the test's own files
}

func newBench(t testing.TB) *bench {
	t.Helper()
	dir := t.TempDir()
	thread, err := engine.Init(filepath.Join(dir, "thread"))
	if err != nil {
		t.Fatal(err)
	}
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("T", exe)
	t.Setenv("D", dir)
	t.Setenv("DISPATCH_TEST_DELAY_MS", "20")
	b := &bench{TB: t, t: thread, r: newDispatcher(thread, Options{}), dir: dir}
	t.Cleanup(b.settleDown)
	return b
}

// settleDown waits until no supervisor of the test is left, so that the
// directory can go and no process stays behind.
func (b *bench) settleDown() {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	list := awaitNobody(ctx, b.t.Dir(), superviseVerb, "dispatch")
	if b.Failed() || len(list) > 0 {
		b.Logf("supervisors left: %v\n%s", list, b.log())
	}
	if len(list) > 0 {
		b.Error("supervisors did not end")
	}
}

func (b *bench) path(name string) string { return filepath.Join(b.dir, name) }

func (b *bench) subscribe(s engine.Subscription) {
	b.Helper()
	if err := b.t.Subscribe(context.Background(), s); err != nil {
		b.Fatal(err)
	}
}

// push stores an event without waking anybody.
func (b *bench) push(source string) int64 {
	b.Helper()
	e, err := b.t.Push(context.Background(), event.Draft{Source: source, Type: "message", Content: "x"})
	if err != nil {
		b.Fatal(err)
	}
	return e.ID
}

func (b *bench) dispatch(o Options) {
	b.Helper()
	if err := Run(context.Background(), b.t, o); err != nil {
		b.Fatal(err)
	}
}

// command returns the program with arguments, as a process to be started.
func (b *bench) command(args ...string) *exec.Cmd {
	exe, err := os.Executable()
	if err != nil {
		b.Fatal(err)
	}
	return exec.Command(exe, args...)
}

func (b *bench) log() string {
	text, _ := os.ReadFile(filepath.Join(b.t.Dir(), "logs", "thread.log"))
	return string(text)
}

func (b *bench) read(name string) string {
	text, err := os.ReadFile(b.path(name))
	if err != nil && !os.IsNotExist(err) {
		b.Fatal(err)
	}
	return string(text)
}

func (b *bench) lines(name string) []string { return strings.Fields(b.read(name)) }

func (b *bench) acked(consumer string) int64 {
	b.Helper()
	d, err := b.t.DueFor(context.Background(), consumer, 0)
	if err != nil {
		b.Fatal(err)
	}
	return d.Progress.LastAcked
}

func (b *bench) state(consumer string) State {
	b.Helper()
	s, err := Status(b.t, consumer)
	if err != nil {
		b.Fatal(err)
	}
	return s
}
