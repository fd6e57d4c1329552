//go:build linux

package dispatch

import (
	"cmp"
	"context"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"thread/engine"
	"thread/internal/programs"
)

func TestTaskID(t *testing.T) {
	for _, tc := range []struct{ dir, want string }{
		{"/home/user/mythread", "dispatch--home-user-mythread"},
		{"/" + strings.Repeat("a", 39), "dispatch--" + strings.Repeat("a", 39)},
		{"/" + strings.Repeat("a", 40), "dispatch--" + strings.Repeat("a", 31) + "-c4e2f4"},
		{"/ä/😀", "dispatch------"},
		{"/azAZ09", "dispatch--azAZ09"},
	} {
		want := tc.want
		if len(tc.dir) == 41 {
			sum, err := exec.Command("sh", "-c", "printf %s "+tc.dir+" | sha1sum | cut -c 1-6").Output()
			if err != nil {
				t.Fatal(err)
			}
			want = want[:len(want)-6] + strings.TrimSpace(string(sum))
		}
		if got := TaskID(tc.dir); got != want {
			t.Errorf("%s: %s, want %s", tc.dir, got, want)
		}
	}
}

// T-56.
func TestShellWord(t *testing.T) {
	for _, s := range []string{"/a/my thread", "/plain/path-1_2.x", "/it's", "/$HOME/`id`;&|<>()*?[]#~!\"\\", "/a\nb", "/ä", "~", "/a{b,c}"} {
		out, err := exec.Command("sh", "-c", "printf %s "+programs.ShellWord(s)).Output()
		if err != nil || string(out) != s {
			t.Errorf("sh reads %s as %q, %v", programs.ShellWord(s), out, err)
		}
	}
	if got := programs.ShellWord("/plain/path-1_2.x"); got != "/plain/path-1_2.x" {
		t.Errorf("%s is quoted", got)
	}
}

// notifier makes a stand-in that notes its arguments, one a line, and then runs
// body. It returns a PATH with it.
func (b *bench) notifier(body string) string {
	b.Helper()
	bin := b.path("bin")
	if err := os.Mkdir(bin, 0o700); err != nil {
		b.Fatal(err)
	}
	script := "#!/bin/sh\nprintf '%s\\n' \"$@\" > \"$D/args.new\"; mv \"$D/args.new\" \"$D/args\"\n" + body + "\n"
	// A child that another test just starts would have the file open for writing,
	// too, and it could not be run (ETXTBSY).
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	if err := os.WriteFile(filepath.Join(bin, notifierCommand), []byte(script), 0o700); err != nil {
		b.Fatal(err)
	}
	return bin + ":" + os.Getenv("PATH")
}

// T-57, T-58.
func TestNotifier(t *testing.T) {
	for _, tc := range []struct {
		name, body, source, log string
	}{
		{"takes the task", `exit 0`, "grp-1/topic-2", "[INFO] push: notifier task add exit=0"},
		{"has it already", `echo "task already exists" >&2; exit 1`, "s", "[INFO] push: notifier task add exit=1 (already exists)"},
		{"fails", `echo ENOENT >&2; exit 1`, "../x", "[WARN] push: notifier task add: exit status 1: ENOENT"},
		{"fails otherwise", `echo "already exists" >&2; exit 3`, "a\nb", "[WARN] push: notifier task add: exit status 3"},
		{"answers when the push is over", `while [ ! -e "$D/go" ]; do sleep 0.01; done`, "s", "[INFO] push: notifier task add exit=0"},
		{"does not answer", `sleep 1000 & echo $! > "$D/child"; wait`, "", "[WARN] push: notifier task add: no answer within 2s"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			// Parallel tests cannot set the environment: the commands get theirs.
			limit := time.Minute
			if strings.Contains(tc.log, "no answer") {
				limit = notifierLimit
			}
			testNotifier(t, tc.body, tc.source, tc.log, limit)
		})
	}
}

// Whatever notifier does and answers, the push's own process dispatches.
func testNotifier(t *testing.T, body, source, log string, limit time.Duration) {
	dir := t.TempDir()
	thread, err := engine.Init(filepath.Join(dir, "my\nthread"))
	if err != nil {
		t.Fatal(err)
	}
	b := &bench{TB: t, t: thread, r: newDispatcher(thread, Options{}), dir: dir}
	t.Cleanup(b.settleDown)
	b.subscribe(engine.Subscription{Consumer: "c", Handler: `echo run >> "$D/runs"; ` + drain})
	path := b.notifier(body)
	push := b.command("push", thread.Dir(), cmp.Or(source, "s"))
	push.Env = append(os.Environ(), envDispatch+"=auto", "D="+dir, "T="+push.Path, "PATH="+path, "DISPATCH_TEST_NOTIFIER_LIMIT="+limit.String())
	if out, err := push.CombinedOutput(); err != nil || string(out) != "1\n" {
		t.Fatalf("push: %q, %v", out, err)
	}
	if err := os.WriteFile(b.path("go"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	b.awaitLog(log, 1)
	b.awaitIdle()
	want := strings.Join([]string{"task", "add", "--author", cmp.Or(source, "s"), "--task-id", TaskID(thread.Dir()), "--command",
		"thread dispatch --thread '" + thread.Dir() + "'", ""}, "\n")
	if got := b.read("args"); got != want {
		t.Errorf("notifier got %q, want %q", got, want)
	}
	if got := len(b.lines("runs")); got != 1 {
		t.Errorf("%d runs", got)
	}
	for _, text := range b.lines("child") { // of the notifier that was given up
		pid, err := strconv.Atoi(text)
		if err != nil {
			t.Fatal(err)
		}
		b.awaitGone(pid)
	}
}

func TestWakeModes(t *testing.T) {
	for _, tc := range []struct {
		mode           string
		notified, runs bool
	}{
		{wakeSpawn, false, true}, {wakeNotifier, true, true}, {wakeNone, false, false}, {"", true, true}, {wakeAuto, true, true}, {"typo", false, true},
	} {
		t.Run("mode "+tc.mode, func(t *testing.T) {
			b := newBench(t)
			t.Setenv("PATH", b.notifier("exit 0"))
			t.Setenv(envDispatch, tc.mode)
			b.subscribe(engine.Subscription{Consumer: "c", Handler: `echo run >> "$D/runs"; ` + drain})
			b.push("s")
			if err := Wake(context.Background(), b.t, "s"); err != nil {
				t.Fatal(err)
			}
			b.awaitIdle()
			if got := b.read("args") != ""; got != tc.notified {
				t.Errorf("notifier called: %v", got)
			}
			if got := len(b.lines("runs")) == 1; got != tc.runs {
				t.Errorf("handler ran: %v", got)
			}
		})
	}
	for _, mode := range []string{wakeSpawn, wakeNotifier, wakeNone, wakeAuto, "typo"} {
		t.Run("without a subscription, mode "+mode, func(t *testing.T) {
			b := newBench(t)
			t.Setenv("PATH", b.notifier("exit 0"))
			t.Setenv(envDispatch, mode)
			b.push("s")
			if err := WakeUnsubscribed(context.Background(), b.t, "s"); err != nil {
				t.Fatal(err)
			}
			b.awaitIdle()
			if got, want := b.read("args") != "", mode == wakeNotifier || mode == wakeAuto; got != want {
				t.Errorf("notifier called: %v", got)
			}
		})
	}
	t.Run("a source with a NUL", func(t *testing.T) {
		b := newBench(t)
		t.Setenv("PATH", b.notifier("exit 0"))
		t.Setenv(envDispatch, wakeAuto)
		b.subscribe(engine.Subscription{Consumer: "c", Handler: `echo run >> "$D/runs"; ` + drain})
		b.push("a\x00b")
		if err := Wake(context.Background(), b.t, "a\x00b"); err != nil {
			t.Fatal(err)
		}
		b.awaitIdle()
		if runs := b.lines("runs"); len(runs) != 1 || !strings.Contains(b.read("args"), "a\uFFFDb") {
			t.Errorf("%d runs, notifier got %q", len(runs), b.read("args"))
		}
	})
	t.Run("notifier is missing", func(t *testing.T) {
		b := newBench(t)
		t.Setenv(envDispatch, wakeNotifier)
		b.subscribe(engine.Subscription{Consumer: "c", Handler: `echo run >> "$D/runs"; ` + drain})
		b.push("s")
		if err := Wake(context.Background(), b.t, "s"); err != nil {
			t.Fatal(err)
		}
		b.awaitIdle()
		if got := b.lines("runs"); len(got) != 1 || !strings.Contains(b.log(), "[WARN] push: notifier task add:") {
			t.Errorf("%d runs, want 1", len(got))
		}
	})
}

// Who waits for the end of the push's standard files, or of any pipe that it
// inherited, does not wait for the handler; and the handler has no terminal and a
// separate session.
func TestDetached(t *testing.T) {
	b := newBench(t)
	at, leave := b.fifo("at"), b.fifo("go")
	b.subscribe(engine.Subscription{Consumer: "c", Handler: `ls -l /proc/$$/fd > "$D/fds"; cut -d ' ' -f 5-7 /proc/$$/stat > "$D/session"; echo $$ > "$D/at"; read x < "$D/go"; ` + drain})
	var read, write [3]*os.File
	for i := range read {
		var err error
		if read[i], write[i], err = os.Pipe(); err != nil {
			t.Fatal(err)
		}
	}
	push := b.command("push", b.t.Dir(), "s")
	push.Stdout, push.Stderr = write[0], write[1]
	push.ExtraFiles = []*os.File{nil, nil, write[2]} // descriptor 5
	if err := push.Start(); err != nil {
		t.Fatal(err)
	}
	for i := range write {
		write[i].Close()
	}
	handler := at.numbers()[0]
	for i := range read {
		read[i].SetReadDeadline(time.Now().Add(patience))
		if _, err := io.ReadAll(read[i]); err != nil {
			t.Errorf("pipe %d is open while the handler runs: %v", i, err)
		}
		read[i].Close()
	}
	if err := push.Wait(); err != nil {
		t.Error(err)
	}
	if got := strings.Fields(b.read("session")); len(got) != 3 || got[2] != "0" {
		t.Errorf("process group, session, terminal: %v", got)
	}
	if sid, err := unix.Getsid(handler); err != nil || sid != handler {
		t.Errorf("the handler's session is %d, want %d", sid, handler)
	}
	for _, line := range strings.Split(b.read("fds"), "\n") {
		if strings.Contains(line, ".lock") || strings.Contains(line, ".busy") || strings.Contains(line, "slots/") {
			t.Errorf("the handler has a lock: %s", line)
		}
	}
	leave.say()
	b.awaitIdle()
}

// A dispatch without work leaves no trace.
func TestNothingDue(t *testing.T) {
	b := newBench(t)
	b.subscribe(engine.Subscription{Consumer: "c", Handler: "exit 1"})
	b.dispatch(Options{})
	if _, err := os.Stat(filepath.Join(b.t.Dir(), "run", "slots")); err == nil || b.log() != "" {
		t.Errorf("slots were made (%v), or something was logged: %q", err == nil, b.log())
	}
}
