//go:build linux

package serve

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"thread/engine"
	"thread/event"
	"thread/internal/dispatch"
	"thread/internal/programs"
	"thread/lock"
)

// TestMain lets the test binary stand in for the program.
func TestMain(m *testing.M) {
	programs.Is(programs.Main)
	if len(os.Args) > 1 {
		if verb, ok := verbs[os.Args[1]]; ok {
			if err := verb(os.Args[2:]); err != nil {
				fmt.Fprintln(os.Stderr, "Error:", err)
				os.Exit(1)
			}
			os.Exit(0)
		}
	}
	scrapeWait = 20 * time.Second         // tests want the counts of this moment
	os.Setenv("THREAD_DISPATCH", "spawn") // the host's notifier is not to be asked
	os.Exit(m.Run())
}

var verbs = map[string]func(args []string) error{
	"supervise": func(args []string) error { return dispatch.Supervise(context.Background(), args) },
	"dispatch": func(args []string) error { // --thread DIR
		t, err := engine.Open(args[1])
		if err != nil {
			return err
		}
		return dispatch.Run(context.Background(), t, dispatch.Options{})
	},
	"serve": func(args []string) error { // DIR…
		ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
		defer stop()
		limit := 5 * time.Second
		if v := os.Getenv("DRAIN"); v != "" {
			var err error
			if limit, err = time.ParseDuration(v); err != nil {
				return err
			}
		}
		o := Options{Threads: args, Limits: map[string]float64{"main": soakLimit}, Drain: limit, Log: slog.New(slog.NewTextHandler(os.Stderr, nil))}
		if token := os.Getenv("FLOODED"); token != "" { // over HTTP
			o.Listen, o.Clients, o.writeTime = "127.0.0.1:0", []Client{{Name: "token", Rights: "admin", Token: token}}, time.Second
		}
		var s *Server
		o.Ready = func() {
			fmt.Println("ready")
			if o.Listen != "" {
				fmt.Println(s.web.listener.Addr())
			}
		}
		s, err := New(o)
		if err != nil {
			return err
		}
		left, err := s.Run(ctx)
		if left > 0 {
			fmt.Println("left", left)
		}
		return err
	},
	"toil":          func([]string) error { return toil() },
	"consume":       consumeVerb,
	"toil-commands": func([]string) error { return toilKey(false) },
	"toil-worker":   func([]string) error { return toilKey(true) },
	"pop": func(args []string) error { // AFTER: prints the highest id, or nothing
		t, err := engine.Open(os.Getenv("THREAD_DIR"))
		if err != nil {
			return err
		}
		after, err := strconv.ParseInt(args[0], 10, 64)
		if err != nil {
			return err
		}
		page, err := t.Pop(context.Background(), os.Getenv("THREAD_CONSUMER"), engine.PopQuery{LastAcked: after, Limit: 100})
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
		}
		return nil
	},
}

// drain is a handler's end: it pops until nothing is left.
const drain = `n=$THREAD_LAST_ACKED_ID; while m=$("$T" pop $n) && [ -n "$m" ]; do n=$m; done`

// bench is a thread, its surroundings, and perhaps a server in this process.
type bench struct {
	testing.TB
	t   *engine.Thread
	dir string // for the test's own files
	s   *Server
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
	b := &bench{TB: t, t: thread, dir: dir}
	// A page that was closed may still look at the thread, which makes run/.gate.
	t.Cleanup(func() { b.until("removed", func() bool { return os.RemoveAll(thread.Dir()) == nil }) })
	t.Cleanup(func() { b.until("alone", func() bool { return len(b.others()) == 0 }) })
	return b
}

// others returns the processes that the test has started, by the directory in
// their environment, and processes of this program that have none yet: the kernel
// sets it up after the parent has learned that exec went well.
func (b *bench) others() (list []string) {
	self, err := os.Executable()
	if err != nil {
		b.Fatal(err)
	}
	all, _ := filepath.Glob("/proc/[0-9]*/environ")
	for _, path := range all {
		env, _ := os.ReadFile(path) // gone, or a zombie: nothing
		exe := ""
		if len(env) == 0 {
			exe, _ = os.Readlink(filepath.Join(filepath.Dir(path), "exe"))
		}
		ours := exe == self || strings.Contains(string(env), "\x00D="+b.dir+"\x00")
		if ours && path != fmt.Sprintf("/proc/%d/environ", os.Getpid()) {
			list = append(list, path)
		}
	}
	return list
}

// serve starts a server in this process and returns when it serves. It ends with
// the test.
func (b *bench) serve(o Options) {
	b.Helper()
	ready := make(chan struct{})
	o.Threads = append(o.Threads, b.t.Dir())
	o.Ready = func() { close(ready) }
	o.Drain = 5 * time.Second
	s, err := New(o)
	if err != nil {
		b.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() {
		_, err := s.Run(ctx)
		ended <- err
	}()
	b.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			b.Error(err)
		}
		s.standby.Stop()
	})
	select {
	case <-ready:
	case err := <-ended:
		ended <- nil
		b.Fatal(err)
	}
	b.s = s
}

// untilStopped starts a server that stop tells to end, with 20 s for its handlers, and
// returns when it serves. left then has how many handlers it leaves.
func (b *bench) untilStopped(o Options) (s *Server, stop context.CancelFunc, left <-chan int) {
	b.Helper()
	ctx, stop := context.WithCancel(b.Context())
	ready := make(chan struct{})
	o.Threads, o.Drain, o.Ready = []string{b.t.Dir()}, 20*time.Second, func() { close(ready) }
	s, err := New(o)
	if err != nil {
		b.Fatal(err)
	}
	ended := make(chan int)
	go func() {
		n, err := s.Run(ctx)
		if err != nil {
			b.Error(err)
		}
		ended <- n
	}()
	<-ready
	return s, stop, ended
}

func (b *bench) subscribe(s engine.Subscription) {
	b.Helper()
	if err := b.t.Subscribe(context.Background(), s); err != nil {
		b.Fatal(err)
	}
}

// push stores an event and wakes the server or dispatch, as the program does.
func (b *bench) push(source string) int64 {
	b.Helper()
	e, err := b.t.Push(context.Background(), event.Draft{Source: source, Type: "message", Content: "x"})
	if err == nil {
		err = dispatch.Wake(context.Background(), b.t, source)
	}
	if err != nil {
		b.Fatal(err)
	}
	return e.ID
}

func (b *bench) path(name string) string { return filepath.Join(b.dir, name) }

func (b *bench) lines(name string) []string {
	text, err := os.ReadFile(b.path(name))
	if err != nil && !os.IsNotExist(err) {
		b.Fatal(err)
	}
	return strings.Split(strings.TrimSuffix(string(text), "\n"), "\n")
}

// fifo makes a named pipe of the test and returns it open.
func (b *bench) fifo(name string) *os.File {
	b.Helper()
	f, err := openPipe(b.path(name))
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { f.Close() })
	return f
}

// line reads what a handler has written to a fifo, one line at a time.
func (b *bench) line(f *os.File) string {
	b.Helper()
	f.SetReadDeadline(time.Now().Add(20 * time.Second))
	var line []byte
	for one := make([]byte, 1); ; {
		if _, err := f.Read(one); err != nil {
			b.Fatalf("nothing comes: %v\n%s", err, b.log())
		}
		if one[0] == '\n' {
			return string(line)
		}
		line = append(line, one[0])
	}
}

func (b *bench) log() string {
	text, _ := os.ReadFile(filepath.Join(b.t.Dir(), "logs", "thread.log"))
	return string(text)
}

func (b *bench) ask(q Request) Answer {
	b.Helper()
	a, err := askDirectory(b.t.Dir(), q)
	if err != nil {
		b.Fatal(err)
	}
	return a
}

// idle waits until no consumer is on its way.
func (b *bench) idle() {
	b.Helper()
	b.until("idle", func() bool { return len(b.ask(Request{Op: "runs"}).Runs) == 0 })
}

// until asks again and again: for what nothing tells of.
func (b *bench) until(what string, ok func() bool) {
	b.Helper()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(30 * time.Second); !ok(); <-tick.C {
		if time.Now().After(end) {
			b.Fatalf("not %s:\n%s", what, b.log())
		}
	}
}

// toil is the handler of the soak test: it pops a few events at a time, notes
// each delivery, acks as it goes, and now and then it crashes, hangs, or leaves a
// process behind. It notes when it is not alone, and when more run than may.
func toil() error {
	thread, err := engine.Open(os.Getenv("THREAD_DIR"))
	if err != nil {
		return err
	}
	consumer, dir := os.Getenv("THREAD_CONSUMER"), os.Getenv("D")
	note := func(name, format string, args ...any) error {
		f, err := os.OpenFile(filepath.Join(dir, name), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
		if err != nil {
			return err
		}
		defer f.Close()
		_, err = fmt.Fprintf(f, format, args...)
		return err
	}
	alone, err := lock.Try(filepath.Join(dir, "alone-"+consumer), lock.Exclusive)
	if err != nil {
		return note("violations", "%s is not alone: %v\n", consumer, err)
	}
	defer alone.Close()
	if os.Getenv(envState) != "" { // started by a server
		var place *lock.File
		for i := range soakLimit {
			// Handlers of a killed server are not the next one's.
			if place, err = lock.Try(filepath.Join(dir, fmt.Sprintf("place-%s-%d", os.Getenv("SERVER"), i)), lock.Exclusive); err == nil {
				break
			}
		}
		if err != nil {
			return note("violations", "%s is more than the limit: %v\n", consumer, err)
		}
		defer place.Close()
		if err := note("served", "%s\n", consumer); err != nil {
			return err
		}
	}
	acked, err := strconv.ParseInt(os.Getenv("THREAD_LAST_ACKED_ID"), 10, 64)
	if err != nil {
		return err
	}
	for {
		page, err := thread.Pop(context.Background(), consumer, engine.PopQuery{LastAcked: acked, Limit: 5})
		if err != nil {
			return err
		}
		empty := true
		for e, err := range page.Events {
			if err != nil {
				return err
			}
			empty = false
			if err := note("delivered", "%s %d\n", consumer, e.ID); err != nil {
				return err
			}
			acked = e.ID
		}
		if empty {
			return nil
		}
		switch rand.IntN(60) {
		case 0:
			os.Exit(1)
		case 1:
			syscall.Kill(os.Getpid(), syscall.SIGKILL)
		case 2:
			time.Sleep(time.Hour) // until its time is up
		case 3, 4:
			exec.Command("sleep", "0.3").Start()
		}
	}
}

// soakLimit is the limit of the lane main in the soak test.
const soakLimit = 3
