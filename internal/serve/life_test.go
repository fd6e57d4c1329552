//go:build linux

package serve

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"thread/engine"
	"thread/event"
	"thread/internal/dispatch"
)

// TestReplaced: another directory in place of the one that is served is served
// in turn, even with separate sockets that no process listens on, and when the
// server has seen that the first one was gone.
func TestReplaced(t *testing.T) {
	for _, seen := range []bool{false, true} {
		t.Run(fmt.Sprint("seen=", seen), func(t *testing.T) { testReplaced(t, seen) })
	}
}

func testReplaced(t *testing.T, seen bool) {
	b := newBench(t)
	at := b.fifo("at")
	b.serve(Options{Sweep: 20 * time.Millisecond})
	dir := b.t.Dir()
	other, err := engine.Init(b.path("other"))
	if err != nil {
		t.Fatal(err)
	}
	if err := other.Subscribe(t.Context(), engine.Subscription{Consumer: "c", Handler: `echo $PPID > "$D/at"; ` + drain}); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{".wake", controlSocket} {
		l, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(other.Dir(), "run", name), Net: "unix"})
		if err != nil {
			t.Fatal(err)
		}
		l.SetUnlinkOnClose(false)
		l.Close()
	}
	if err := os.Rename(dir, b.path("old")); err != nil {
		t.Fatal(err)
	}
	if seen {
		b.until("forgotten", func() bool { return b.s.count() == 0 })
	}
	if err := os.Rename(other.Dir(), dir); err != nil {
		t.Fatal(err)
	}
	if b.t, err = engine.Open(dir); err != nil {
		t.Fatal(err)
	}
	b.until("served", func() bool {
		_, err := askDirectory(dir, Request{Op: "runs"})
		return err == nil
	})
	b.push("s")
	if got := b.line(at); got != fmt.Sprint(os.Getpid()) {
		t.Errorf("the handler's parent is %s", got)
	}
	b.idle()
}

// child is a server in a separate process.
type child struct {
	*exec.Cmd
	out *bufio.Reader
}

func (b *bench) child(env ...string) *child {
	b.Helper()
	cmd := exec.Command(os.Getenv("T"), "serve", b.t.Dir())
	cmd.Env = append(os.Environ(), env...)
	cmd.Stderr = os.Stderr
	if !testing.Verbose() {
		cmd.Stderr = nil
	}
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		b.Fatal(err)
	}
	c := &child{cmd, bufio.NewReader(out)}
	b.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	if line, err := c.out.ReadString('\n'); err != nil {
		b.Fatalf("the server does not start: %q %v", line, err)
	}
	return c
}

// TestKilled: sockets that a killed server left keep no process from serving, and
// the handler that ran continues, next to no other one.
func TestKilled(t *testing.T) {
	b := newBench(t)
	at, leave := b.fifo("at"), b.fifo("leave")
	b.subscribe(engine.Subscription{Consumer: "c", Handler: `echo started > "$D/at"; echo run >> "$D/runs"; read x < "$D/leave"; ` + drain})
	c := b.child()
	b.push("s")
	b.line(at)
	c.Process.Kill()
	c.Wait()
	if _, err := os.Lstat(filepath.Join(b.t.Dir(), "run", controlSocket)); err != nil {
		t.Errorf("the test is not what it is called: %v", err)
	}
	if _, err := askDirectory(b.t.Dir(), Request{Op: "runs"}); err != ErrNobody {
		t.Errorf("a killed server: %v", err)
	}
	b.serve(Options{})
	b.push("s")
	if _, err := leave.WriteString("go\n"); err != nil {
		t.Fatal(err)
	}
	b.until("done", func() bool {
		d, err := b.t.DueFor(t.Context(), "c", 0)
		st, serr := dispatch.Status(b.t, "c")
		return err == nil && serr == nil && d.First == 0 && !st.Running
	})
	b.idle()
	if runs, _ := os.ReadFile(b.path("runs")); string(runs) != "run\n" {
		t.Errorf("runs: %q\n%s", runs, b.log())
	}
}

// TestOutlivesDrain: a handler that does not end in time is asked to, with all of its
// process group, and nothing runs it again before the next push or server.
func TestOutlivesDrain(t *testing.T) {
	for _, next := range []string{"push", "server"} {
		t.Run(next, func(t *testing.T) {
			b := newBench(t)
			at := b.fifo("at")
			b.subscribe(engine.Subscription{Consumer: "c", Handler: `
				if [ -e "$D/first" ]; then ` + drain + `; echo again > "$D/at"; exit; fi
				: > "$D/first"
				(trap 'echo child >> "$D/asked"; exit' TERM; echo started > "$D/at"; while :; do sleep 0.05; done) &
				trap 'echo shell >> "$D/asked"; wait; exit 1' TERM
				wait; wait`})
			c := b.child("DRAIN=100ms")
			b.push("s")
			b.line(at)
			c.Process.Signal(syscall.SIGTERM)
			rest, err := io.ReadAll(c.out)
			if err != nil || string(rest) != "" {
				t.Errorf("it says %q %v", rest, err)
			}
			if err := c.Wait(); err != nil {
				t.Error(err)
			}
			asked, _ := os.ReadFile(b.path("asked"))
			if !strings.Contains(string(asked), "child") || !strings.Contains(string(asked), "shell") {
				t.Errorf("asked to end: %q", asked)
			}
			b.until("alone", func() bool { return len(b.others()) == 0 })
			st, err := dispatch.Status(b.t, "c")
			if err != nil || st.Running || st.Failures != 0 || st.Stalled || !st.Left || st.LastExit != "stopped with the server" {
				t.Errorf("state %+v, %v", st, err)
			}
			if d, err := b.t.DueFor(t.Context(), "c", 0); err != nil || d.First == 0 {
				t.Errorf("it was run: %v %v", d, err)
			}
			switch next {
			case "push":
				b.push("s")
				if err := dispatch.Wake(t.Context(), b.t, "s"); err != nil {
					t.Fatal(err)
				}
			case "server":
				b.serve(Options{})
			}
			b.line(at)
			b.until("done", func() bool {
				d, err := b.t.DueFor(t.Context(), "c", 0)
				st, serr := dispatch.Status(b.t, "c")
				return err == nil && serr == nil && d.First == 0 && !st.Running
			})
		})
	}
}

// TestPushWhileEnding: a push that meets a server in any state of its end, or
// none, is handled by another process.
func TestPushWhileEnding(t *testing.T) {
	b := newBench(t)
	at := b.fifo("at")
	b.subscribe(engine.Subscription{Consumer: "c", Handler: `echo ran > "$D/at"; ` + drain})
	for range 5 {
		c := b.child()
		pushed := make(chan struct{})
		go func() {
			defer close(pushed)
			for range 5 {
				if _, err := b.t.Push(t.Context(), event.Draft{Source: "s", Type: "m"}); err != nil {
					t.Error(err)
				}
				if err := dispatch.Wake(t.Context(), b.t, "s"); err != nil {
					t.Error(err)
				}
			}
		}()
		b.line(at)
		c.Process.Signal(syscall.SIGTERM)
		done := make(chan struct{})
		go func() { // handlers that are to end must not wait for the test
			defer close(done)
			buf := make([]byte, 1000)
			for {
				at.SetReadDeadline(time.Now().Add(20 * time.Second))
				if _, err := at.Read(buf); err != nil || strings.Contains(string(buf), "stop") {
					return
				}
			}
		}()
		<-pushed
		b.until("handled", func() bool {
			d, err := b.t.DueFor(t.Context(), "c", 0)
			st, serr := dispatch.Status(b.t, "c")
			return err == nil && serr == nil && d.First == 0 && !st.Running
		})
		if _, err := at.WriteString("stop\n"); err != nil {
			t.Fatal(err)
		}
		<-done
		if err := c.Wait(); err != nil {
			t.Error(err)
		}
	}
}
