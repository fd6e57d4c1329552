//go:build linux

package dispatch

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"thread/engine"
)

// serves is a server with a standby of two threads: it runs consumer c of the first until it
// is killed, or stops in order when it is told to.
func serves(dirs []string) error {
	g := StartStandby(func(format string, args ...any) error { fmt.Printf(format+"\n", args...); return nil })
	var first *Server
	for i, dir := range dirs {
		t, err := engine.Open(dir)
		if err != nil {
			return err
		}
		s, err := NewServer(context.Background(), t)
		if err != nil {
			return err
		}
		g.Add(dir)
		s.UseStandby(g)
		if i == 0 {
			first = s
		}
	}
	go func() { _, _ = first.Run(context.Background(), "c", false, nil) }()
	_, _ = os.Stdin.Read(make([]byte, 1))
	g.Stop()
	return nil
}

// TestServerIsKilled: the standby of a killed server supervises the handlers that run, keeps
// what they print, and runs what is due in all of its threads; but leaves it all to another
// server.
func TestServerIsKilled(t *testing.T) {
	for _, how := range []string{"killed", "stopped", "replaced"} {
		t.Run(how, func(t *testing.T) {
			b := newBench(t)
			at, leave := b.fifo("at"), b.fifo("leave")
			b.subscribe(engine.Subscription{Consumer: "c", Handler: `echo $$ > "$D/at"; read _ < "$D/leave"; echo said; ` + drain})
			last := b.push("s")
			quiet, err := engine.Init(b.path("quiet"))
			must(t, err)
			other, err := engine.Init(b.path("other"))
			must(t, err)
			must(t, other.Subscribe(t.Context(), engine.Subscription{Consumer: "o", Handler: drain}))
			o := &bench{TB: t, t: other, r: newDispatcher(other, Options{}), dir: b.dir}
			t.Cleanup(o.settleDown)
			server := b.command("serves", b.t.Dir(), b.path("deleted"), other.Dir(), quiet.Dir())
			gone, err := engine.Init(b.path("deleted"))
			must(t, err)
			in, err := server.StdinPipe()
			must(t, err)
			must(t, server.Start())
			handler := at.numbers()[0]
			b.awaitLog(" started pid=", 1) // and its output is shared
			b.until("the handler is noted", func() bool {
				a, err := Active(t.Context(), b.t)
				return err == nil && len(a) == 1 && a[0].PID == handler
			})
			otherLast := o.push("s")
			if how == "stopped" {
				leave.say()
				b.until("the handler has ended", func() bool {
					a, err := Active(t.Context(), b.t)
					return err == nil && len(a) == 0 && b.acked("c") == last
				})
				b.push("s")
				in.Write([]byte("x"))
				must(t, server.Wait())
				b.until("the standby has ended", func() bool { return len(standbysOf(server)) == 0 })
				if strings.Contains(b.log()+o.log(), "taking over") || b.acked("c") != last || o.acked("o") != 0 {
					t.Errorf("a standby that was stopped takes over:\n%s%s", b.log(), o.log())
				}
				return
			}
			must(t, gone.Close())
			must(t, os.RemoveAll(gone.Dir()))
			var pings *Pings
			if how == "replaced" {
				must(t, o.r.prepare())
				pings, err = o.r.listen()
				must(t, err)
			}
			must(t, server.Process.Kill())
			server.Wait()
			b.awaitLog("the server ended, taking over", 1)
			b.awaitLog(fmt.Sprint("adopted pid=", handler), 1)
			if pings != nil {
				if p, err := pings.Next(); err != nil || p.Push {
					t.Errorf("the next server is told %+v, %v", p, err)
				}
			} else {
				o.awaitLog("consumer=o", 1)
			}
			leave.say()
			b.awaitIdle()
			o.awaitIdle()
			if got := b.acked("c"); got != last {
				t.Errorf("acked %d of %d", got, last)
			}
			if text, err := os.ReadFile(OutputPath(b.t.Dir(), "c")); err != nil || string(text) != "said\n" {
				t.Errorf("the output is %q, %v", text, err)
			}
			if pings == nil && o.acked("o") != otherLast {
				t.Errorf("in the other thread %d is acked of %d", o.acked("o"), otherLast)
			}
			if pings != nil {
				if strings.Contains(o.log(), "taking over") || o.acked("o") != 0 {
					t.Errorf("the thread of another server is taken over:\n%s", o.log())
				}
				must(t, pings.Close())
			}
			for _, dir := range []string{quiet.Dir(), gone.Dir()} {
				if text, _ := os.ReadFile(filepath.Join(dir, "logs", "thread.log")); strings.Contains(string(text), "taking over") {
					t.Errorf("%s is taken over, which has nothing to do", dir)
				}
			}
			if _, err := os.Lstat(gone.Dir()); err == nil {
				t.Error("a deleted thread is back")
			}
		})
	}
}

// standbysOf returns the processes that a server has left.
func standbysOf(server *exec.Cmd) (list []int) {
	paths, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	parent := fmt.Sprint("-parent\x00", server.Process.Pid, "\x00")
	for _, path := range paths {
		text, _ := os.ReadFile(path)
		var pid int
		if _, err := fmt.Sscanf(path, "/proc/%d/", &pid); err == nil && strings.Contains(string(text), parent) && syscall.Kill(pid, 0) == nil {
			list = append(list, pid)
		}
	}
	return list
}
