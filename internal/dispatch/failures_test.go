//go:build linux

package dispatch

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"thread/engine"
	"thread/event"
	"thread/internal/command"
	"thread/internal/faults"
)

// ofLocks are the calls that fail on the files of a thread next to its database.
var ofLocks = []string{"openat", "read", "write", "pread64", "pwrite64", "fsync", "ftruncate", "flock", "close", "unlinkat", "mkdirat", "renameat", "getdents64"}

// TestFailuresOfARun: each system call of a server that runs a handler fails once. Nothing
// stays open or locked, and the event is handled, now or at the next look.
func TestFailuresOfARun(t *testing.T) {
	exe, err := os.Executable()
	must(t, err)
	t.Setenv("T", exe)
	t.Setenv(envDispatch, wakeNone)
	defer func(delay, grace time.Duration) { firstDelay, killGrace = delay, grace }(firstDelay, killGrace)
	firstDelay, killGrace = time.Millisecond, time.Millisecond
	for name, handler := range map[string]string{"ok": drain + `; echo ran >> "$RAN"`, "fails": `echo ran >> "$RAN"; [ "$(wc -l < "$RAN")" -gt 1 ] || exit 1; ` + drain} {
		t.Run(name, func(t *testing.T) {
			faults.Each(t, syscall.EIO, ofLocks, func(t *testing.T, f *faults.Fault) {
				if passOver(f, 8) {
					return
				}
				root := faults.Dir(t)
				ran := filepath.Join(root, "ran")
				t.Setenv("RAN", ran)
				th := withEvent(t, filepath.Join(root, "t"), handler)
				defer th.Close()
				var failed error
				f.Run(t, th.Dir(), func() { failed = serveOnce(th) })
				if f.Hit == nil && failed != nil {
					t.Error(failed)
				}
				if open := faults.Open(t, th.Dir()); open != nil {
					t.Errorf("open are %q", open)
				}
				lockAndRelease(t, th)
				for n := 0; unread(t, th); n++ {
					if n == 20 {
						log, _ := os.ReadFile(filepath.Join(th.Dir(), "logs", "thread.log"))
						t.Fatalf("the event is not handled, after %v\n%s", failed, log)
					}
					must(t, serveOnce(th))
				}
				text, err := os.ReadFile(ran)
				must(t, err)
				if n := strings.Count(string(text), "\n"); n == 0 || f.Hit == nil && n != map[string]int{"ok": 1, "fails": 2}[name] {
					t.Errorf("it ran %d times", n)
				}
				s, err := Status(th, "c")
				if err != nil || s.Running || s.RetryAt != nil {
					t.Errorf("%+v, %v", s, err)
				}
			})
		})
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// lockAndRelease requires that the consumer is locked by no other process, or not for long:
// what is left of a run is ended first.
func lockAndRelease(t *testing.T, th *engine.Thread) {
	t.Helper()
	ctx := context.Background()
	// Twice the grace is also how long a look at all processes of the host may take.
	defer func(grace time.Duration) { killGrace = grace }(killGrace)
	killGrace = max(killGrace, time.Second)
	l, err := LockConsumer(ctx, th, "c")
	for until := time.Now().Add(20 * time.Second); errors.Is(err, ErrHandled) && time.Now().Before(until); {
		time.Sleep(time.Millisecond) // others need the processor to end
		l, err = LockConsumer(ctx, th, "c")
	}
	if err != nil {
		t.Fatalf("it stays locked: %v", err)
	}
	if _, err := LockConsumer(ctx, th, "c"); !errors.Is(err, ErrHandled) {
		t.Errorf("locked twice: %v", err)
	}
	must(t, l.Release(ctx))
}

// passOver leaves out all failures but one of n, unless THREAD_FAILURES is set: all of them
// take minutes on a busy host.
func passOver(f *faults.Fault, n int) bool {
	if f.At%n == 1 || os.Getenv("THREAD_FAILURES") != "" {
		return false
	}
	f.Hit = &faults.Call{}
	return true
}

// withEvent makes a thread with an unread event of consumer c.
func withEvent(t *testing.T, dir, handler string) *engine.Thread {
	t.Helper()
	th, err := engine.Init(dir)
	must(t, err)
	must(t, th.Subscribe(context.Background(), engine.Subscription{Consumer: "c", Handler: handler, AckOnSuccess: true}))
	_, err = th.Push(context.Background(), event.Draft{Source: "s", Type: "message", Content: "x"})
	must(t, err)
	return th
}

// serveOnce runs the handler, and again when it is to be run again.
func serveOnce(th *engine.Thread) error {
	ctx := context.Background()
	server, err := NewServer(ctx, th)
	if err != nil {
		return err
	}
	defer server.Close()
	o, err := server.Run(ctx, "c", false, nil)
	for o.Retry != nil && err == nil {
		o, err = server.Resume(ctx, o.Retry, nil)
	}
	if o.Retry != nil {
		o.Retry.Release()
	}
	return err
}

func unread(t *testing.T, th *engine.Thread) bool {
	t.Helper()
	d, err := th.DueFor(context.Background(), "c", 0)
	must(t, err)
	return d.First != 0
}

// TestFailuresOfAConsumerLock: each system call of LockConsumer and of Release fails once,
// also behind a run whose supervisor was killed. Nothing stays open or locked.
func TestFailuresOfAConsumerLock(t *testing.T) {
	t.Setenv(envDispatch, wakeNone)
	ctx := context.Background()
	for _, lost := range []bool{false, true} {
		faults.Each(t, syscall.EIO, ofLocks, func(t *testing.T, f *faults.Fault) {
			if passOver(f, 2) {
				return
			}
			th := withEvent(t, filepath.Join(faults.Dir(t), "t"), "true")
			defer th.Close()
			if lost {
				leaveRunning(t, th)
			}
			var failed error
			var l *ConsumerLock
			f.Run(t, th.Dir(), func() {
				if l, failed = LockConsumer(ctx, th, "c"); failed != nil {
					return
				}
				l.Dead(1)
				if l.Supervised() || len(l.Environment()) != 1 || l.Work() == nil {
					failed = errors.New("the lock is not one")
				}
				failed = errors.Join(failed, l.Release(ctx))
			})
			if f.Hit == nil && failed != nil {
				t.Error(failed)
			}
			if open := faults.Open(t, th.Dir()); open != nil {
				t.Errorf("open are %q", open)
			}
			lockAndRelease(t, th)
			if s, err := Status(th, "c"); err != nil || s.Running {
				t.Errorf("%+v, %v", s, err)
			}
		})
	}
}

// leaveRunning leaves what a supervisor leaves that is killed before its handler has begun.
func leaveRunning(t *testing.T, th *engine.Thread) {
	t.Helper()
	r := newDispatcher(th, Options{})
	must(t, r.prepare())
	l, err := r.tryRecord("c")
	must(t, err)
	defer release(l)
	n := note{State: stateRunning, RunID: newRunID(), StartedAt: time.Now()}
	must(t, writeRecord(l, &record{note: n, Consumer: "c"}))
	must(t, r.writeNote("c", n))
}

// TestFailuresOfQuestions: what is asked about consumers is answered, or an error, when a
// system call fails; nothing is changed and nothing stays open.
func TestFailuresOfQuestions(t *testing.T) {
	ctx := context.Background()
	th := withEvent(t, filepath.Join(faults.Dir(t), "t"), "true")
	defer th.Close()
	leaveRunning(t, th)
	for name, ask := range map[string]func() (any, error){
		"active":   func() (any, error) { return Active(ctx, th) },
		"status":   func() (any, error) { return Status(th, "c") },
		"running":  func() (any, error) { return Running(ctx, th) },
		"why":      func() (any, error) { return Why(ctx, th, "c", 1) },
		"unpopped": func() (any, error) { return Unpopped(ctx, th) },
	} {
		t.Run(name, func(t *testing.T) {
			want, err := ask()
			must(t, err)
			faults.Each(t, syscall.EIO, append(ofLocks, "newfstatat"), func(t *testing.T, f *faults.Fault) {
				var got any
				var err error
				f.Run(t, th.Dir(), func() { got, err = ask() })
				// What a consumer's files say is left out where they cannot be read.
				file := f.Hit != nil && (strings.HasPrefix(f.Hit.Path, "./run") || strings.HasPrefix(f.Hit.Path, "./logs")) && f.Hit.Name != "flock" && f.Hit.Name != "newfstatat"
				if err == nil && !file && !reflect.DeepEqual(got, want) {
					t.Errorf("%+v, want %+v", got, want)
				}
				for _, c := range f.Calls {
					if (c.Name == "write" || c.Name == "pwrite64" || c.Name == "unlinkat" || c.Name == "renameat") && !strings.HasPrefix(c.Path, "./events.db") && !strings.Contains(c.Path, "/.synced") {
						t.Errorf("it changes something: %v", c)
					}
				}
				if open := faults.Open(t, th.Dir()); open != nil {
					t.Errorf("open are %q", open)
				}
				if again, err := ask(); err != nil || !reflect.DeepEqual(again, want) {
					t.Errorf("asked again: %+v, %v", again, err)
				}
			})
		})
	}
	called, cancel := context.WithCancel(ctx)
	cancel()
	for name, err := range map[string]error{
		"active": second(Active(called, th)), "running": second(Running(called, th)), "why": second(Why(called, th, "c", 1)),
	} {
		if !errors.Is(err, context.Canceled) {
			t.Errorf("%s, called off: %v", name, err)
		}
	}
}

func second[T any](_ T, err error) error { return err }

// TestLinkFails: a standby that cannot read what it is sent is told so.
func TestLinkFails(t *testing.T) {
	mine := errors.New("mine")
	if _, stop, err := readState(func([]byte) (int, []*os.File, error) { return 0, nil, mine }); stop || !errors.Is(err, mine) {
		t.Errorf("%v %v", stop, err)
	}
}

// TestReopenOutput: of a handler's output its own pipe is opened again, and nothing else.
func TestReopenOutput(t *testing.T) {
	read, write, err := os.Pipe()
	must(t, err)
	defer read.Close()
	defer write.Close()
	file, err := os.Create(filepath.Join(t.TempDir(), "f"))
	must(t, err)
	defer file.Close()
	number := func(f *os.File) uint64 {
		info, err := f.Stat()
		must(t, err)
		return info.Sys().(*syscall.Stat_t).Ino
	}
	for _, tt := range []struct {
		name           string
		stdout, stderr *os.File
		inode          uint64
		want           bool
	}{
		{"its pipe", write, nil, number(write), true},
		{"on stderr", nil, write, number(write), true},
		{"both redirected", file, file, number(write), false},
		{"another pipe", write, nil, number(write) + 1, false},
		{"a file of that number", file, nil, number(file), false},
	} {
		cmd := exec.Command("cat")
		if tt.stdout != nil {
			cmd.Stdout = tt.stdout
		}
		if tt.stderr != nil {
			cmd.Stderr = tt.stderr
		}
		in, err := cmd.StdinPipe()
		must(t, err)
		must(t, cmd.Start())
		f := reopenOutput(cmd.Process.Pid, tt.inode)
		if (f != nil) != tt.want {
			t.Errorf("%s: %v", tt.name, f)
		}
		if f != nil {
			f.Close()
		}
		in.Close()
		must(t, cmd.Wait())
	}
}

// TestAdoptOrphans: a program that adopts what its handlers leave counts it, and waits for
// it: nothing of it stays as a zombie. The exit codes of what it starts are not lost.
func TestAdoptOrphans(t *testing.T) {
	b := newBench(t)
	b.fifo("left")
	b.fifo("go")
	out, err := b.command("adopts").CombinedOutput()
	if string(out) != "1 is left, and then 0\n" || err != nil {
		t.Errorf("%s%v", out, err)
	}
}

// adopts starts a shell that leaves a process.
func adopts() error {
	AdoptOrphans()
	d := os.Getenv("D")
	cmd := exec.Command("sh", "-c", `{ echo here > "$D/left"; read x < "$D/go"; } & read y < "$D/left"`)
	if err := command.StartOwn(cmd); err != nil {
		return err
	}
	if err := waitChild(cmd); err != nil {
		return err
	}
	n := countOrphans()
	if err := os.WriteFile(filepath.Join(d, "go"), []byte("\n"), 0); err != nil {
		return err
	}
	for until := time.Now().Add(patience); countOrphans() > 0 && time.Now().Before(until); {
		runtime.Gosched()
	}
	fmt.Printf("%d is left, and then %d\n", n, countOrphans())
	for range 100 {
		p, err := command.Start(command.Spec{Argv: []string{"sh", "-c", "exit 3"}})
		if err != nil {
			return err
		}
		if x := p.Wait(context.Background()); x.Code != 3 {
			return fmt.Errorf("a command that exits with 3 exits with %d", x.Code)
		}
	}
	return nil
}
