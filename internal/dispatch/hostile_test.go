//go:build linux

package dispatch

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"thread/engine"
	"thread/internal/command"
	"thread/lock"
)

// bare runs a shell script without any descriptor: not the standard files, not the
// tree lock.
func bare(script string) error {
	for fd := range 256 {
		unix.CloseOnExec(fd)
	}
	return unix.Exec("/bin/sh", []string{"sh", "-c", script}, os.Environ())
}

// outputOf returns the log files of a consumer's handler and their bytes.
func (b *bench) outputOf(consumer string) (names []string, size int64) {
	b.Helper()
	names, err := filepath.Glob(filepath.Join(filepath.Dir(OutputPath(b.t.Dir(), consumer)), "*.log"))
	if err != nil {
		b.Fatal(err)
	}
	for _, name := range names {
		info, err := os.Stat(name)
		if err != nil {
			b.Fatal(err)
		}
		size += info.Size()
	}
	return names, size
}

// What a handler prints is kept up to a bound, whatever it prints.
func TestHandlerFloods(t *testing.T) {
	b := newBench(t)
	megabytes := (outputCopies + 3) * outputMegabytes
	b.subscribe(engine.Subscription{Consumer: "c", Handler: fmt.Sprintf(`head -c %d000000 /dev/zero; `, megabytes) + drain})
	for range 2 {
		last := b.push("s")
		b.dispatch(Options{})
		b.awaitIdle()
		if got := b.acked("c"); got != last {
			t.Errorf("acked %d, want %d", got, last)
		}
		names, size := b.outputOf("c")
		if len(names) > outputCopies+1 || size > (outputCopies+1)*outputMegabytes<<20 {
			t.Errorf("%d files of %d bytes: %v", len(names), size, names)
		}
		if size < outputMegabytes<<20 {
			t.Errorf("only %d bytes were kept", size)
		}
	}
}

// A process that a handler leaves behind and that prints without end holds up
// nothing: not the end of the run, not the next one.
func TestLeftoverFloods(t *testing.T) {
	b := newBench(t)
	at := b.fifo("at")
	b.subscribe(engine.Subscription{Consumer: "c", Handler: drain + `; yes & echo $! > "$D/at"`})
	for range 2 {
		last := b.push("s")
		b.dispatch(Options{})
		pid := at.numbers()[0]
		b.awaitIdle()
		if got := b.acked("c"); got != last {
			t.Errorf("acked %d, want %d", got, last)
		}
		b.awaitGone(pid) // no process reads what it prints any more
	}
}

// When a handler with many children is killed, or its time is up, all of them are
// ended: those in its process group, those that ignore SIGTERM, and those in sessions
// by themselves. Others are not held up.
func TestHandlerForksMany(t *testing.T) {
	const each = 70
	for _, way := range []string{"killed", "timed out"} {
		t.Run(way, func(t *testing.T) {
			b := newBench(t)
			at := b.fifo("at")
			s := engine.Subscription{Consumer: "c", Handler: fmt.Sprintf(`
				if [ -e "$D/pids" ]; then %s; exit; fi
				i=0; while [ $i -lt %d ]; do i=$((i+1))
					sleep 1000 & echo $! >> "$D/pids"
					(trap "" TERM; exec sleep 1000) & echo $! >> "$D/pids"
					setsid sleep 1000 & echo $! >> "$D/pids"
				done
				echo $$ > "$D/at"; wait`, drain, each)}
			if way == "timed out" {
				s.Timeout = 500 * time.Millisecond // on a busy host not all are there by then
			}
			b.subscribe(s)
			b.subscribe(engine.Subscription{Consumer: "well", Handler: drain})
			last := b.push("s")
			b.dispatch(Options{})
			if way == "killed" {
				b.kill(at.numbers()[0])
			}
			b.awaitLog("consumer=c runs again in 20ms: "+way, 1)
			b.awaitIdle()
			pids := b.lines("pids")
			if way == "killed" && len(pids) != 3*each || len(pids) == 0 {
				t.Errorf("%d children, want %d", len(pids), 3*each)
			}
			for _, text := range pids {
				pid, err := strconv.Atoi(text)
				if err != nil {
					t.Fatal(err)
				}
				b.awaitGone(pid)
			}
			if c, well := b.acked("c"), b.acked("well"); c != last || well != last {
				t.Errorf("acked %d and %d, want %d", c, well, last)
			}
		})
	}
}

// awaitGone waits until a process that is to end has ended.
func (b *bench) awaitGone(pid int) {
	b.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if awaitDeath(ctx, pid); alive(pid) {
		b.Errorf("process %d is alive", pid)
		b.kill(pid)
	}
}

// A handler that closes every descriptor it was given is run, ended when its time is
// up, and run again like any other.
func TestHandlerClosesDescriptors(t *testing.T) {
	b := newBench(t)
	// On a busy host the time may be up before the handler is so far: then once more.
	b.subscribe(engine.Subscription{Consumer: "c", Timeout: 500 * time.Millisecond, Handler: `exec "$T" bare '
		if [ ! -e "$D/first" ]; then
			ls /proc/$$/fd > "$D/held"; echo $$ > "$D/pid"; mv "$D/pid" "$D/first"; while :; do sleep 1000; done
		fi
		` + drain + `'`})
	last := b.push("s")
	b.dispatch(Options{})
	b.awaitLog("consumer=c runs again in 20ms: timed out", 1)
	b.awaitIdle()
	pid, err := strconv.Atoi(strings.TrimSpace(b.read("first")))
	if err != nil {
		t.Fatal(err)
	}
	b.awaitGone(pid)
	for _, fd := range b.lines("held") {
		if n, err := strconv.Atoi(fd); err != nil || n == command.TreeFD {
			t.Errorf("the handler had descriptor %s", fd)
		}
	}
	if got := b.acked("c"); got != last {
		t.Errorf("acked %d, want %d", got, last)
	}
}

// What is left of a handler and is killed holds nothing any more when the next one
// starts: not the tree lock, and nothing else.
func TestKilledHoldsNothing(t *testing.T) {
	b := newBench(t)
	if err := b.r.prepare(); err != nil {
		t.Fatal(err)
	}
	for range 30 {
		tree, err := b.r.lockTree(t.Context(), "c", &command.Left{Trees: b.r.trees("c")}, 0)
		if err != nil {
			t.Fatal(err)
		}
		left := b.command("hold", b.path("own"))
		tree.attach(left)
		out, err := left.StdoutPipe()
		if err == nil {
			err = left.Start()
		}
		if err != nil {
			t.Fatal(err)
		}
		if _, err := out.Read(make([]byte, 4)); err != nil {
			t.Fatal(err)
		}
		tree.abandon()
		if tree, err = b.r.lockTree(t.Context(), "c", &command.Left{Trees: b.r.trees("c")}, 0); err != nil {
			t.Fatal(err)
		}
		own, err := lock.Try(b.path("own"), lock.Exclusive)
		if err != nil {
			t.Error(err)
		} else {
			own.Close()
		}
		tree.release()
		left.Wait()
	}
}
