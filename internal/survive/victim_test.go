//go:build linux

package survive

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// What runs handlers consists of several processes that are started again when
// they are killed. To meet one of them, and that once, the program is built with a
// file more: the first process of a role says its id and waits until it is traced.

var buildMeeting = sync.OnceValues(func() (path string, err error) {
	main, err := filepath.Abs("../../cmd/thread/victim.go")
	if err != nil {
		return "", err
	}
	victim, err := filepath.Abs("testdata/victim.go")
	if err != nil {
		return "", err
	}
	overlay, err := json.Marshal(map[string]any{"Replace": map[string]string{main: victim}})
	if err != nil {
		return "", err
	}
	list := filepath.Join(scratch, "overlay.json")
	if err := os.WriteFile(list, overlay, 0o600); err != nil {
		return "", err
	}
	path = filepath.Join(scratch, "thread-that-meets")
	return path, buildProgram(path, "bundled", "-overlay", list)
})

// fifo makes a named pipe and returns it open for both ways, so that no process waits
// for the other end.
func fifo(path string) (*os.File, error) {
	if err := unix.Mkfifo(path, 0o600); err != nil {
		return nil, err
	}
	// Not to block, so that reading from it can have an end.
	return os.OpenFile(path, os.O_RDWR|unix.O_NONBLOCK, 0)
}

// heard reads a number that a process has written into a fifo.
func heard(said *bufio.Reader, f *os.File) (int, error) {
	if err := f.SetReadDeadline(time.Now().Add(runLimit)); err != nil {
		return 0, err
	}
	line, err := said.ReadString('\n')
	if err != nil {
		return 0, fmt.Errorf("%s: %w", filepath.Base(f.Name()), err)
	}
	return strconv.Atoi(strings.TrimSpace(line))
}

// tracer is a strace of one running process, all of its threads, and none of its
// children.
type tracer struct {
	cmd *exec.Cmd
	log string
}

// trace begins to trace the process, and returns when every call that it makes
// from now on is seen.
func trace(pid int, log string, args ...string) (*tracer, error) {
	args = append(args, "-f", "-b", "execve", "-y", "-s", "200", "-o", log, "-p", strconv.Itoa(pid))
	tr := &tracer{exec.Command("strace", args...), log}
	stderr, err := tr.cmd.StderrPipe()
	if err == nil {
		err = tr.cmd.Start()
	}
	if err != nil {
		return nil, err
	}
	said := bufio.NewReader(stderr)
	line, err := said.ReadString('\n')
	if err != nil || !strings.Contains(line, " attached") {
		tr.cmd.Process.Kill()
		return nil, fmt.Errorf("strace: %q: %w", line, errors.Join(err, tr.cmd.Wait()))
	}
	go said.WriteTo(&bytes.Buffer{}) // so that it can continue saying
	return tr, nil
}

// end waits until the process has ended and returns whether it was killed, and
// whether anything was injected.
func (tr *tracer) end() (killed, injected bool, err error) {
	over := time.AfterFunc(2*runLimit, func() { tr.cmd.Process.Kill() })
	err = tr.cmd.Wait()
	if !over.Stop() {
		return false, false, errors.New("the process does not end")
	}
	if err != nil {
		return false, false, fmt.Errorf("strace: %w", err)
	}
	text, err := os.ReadFile(tr.log)
	return bytes.Contains(text, []byte("+++ killed by SIGKILL")), bytes.Contains(text, []byte("(INJECTED)")), err
}

// marked returns the processes that have the entry in their environment. One that
// has ended, and no process has waited for, has none any more.
func marked(entry string) (pids []int) {
	all, _ := filepath.Glob("/proc/[0-9]*/environ")
	for _, path := range all {
		env, _ := os.ReadFile(path)
		if bytes.Contains(append([]byte{0}, env...), []byte("\x00"+entry+"\x00")) {
			pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(path)))
			pids = append(pids, pid)
		}
	}
	return pids
}

// awaitAll waits until no process with the entry in its environment is left. A
// process may start the next one and end during a search, and has no environment
// for a moment while it becomes another program: it takes two that find nothing.
// After limit, it kills what is left, and returns an error.
func awaitAll(entry string, limit time.Duration) error {
	end := time.Now().Add(limit)
	for empty := 0; empty < 2; {
		pids := marked(entry)
		if empty++; len(pids) > 0 {
			empty = 0
		}
		for _, pid := range pids {
			fd, err := unix.PidfdOpen(pid, 0)
			if err != nil {
				continue // gone
			}
			left := time.Until(end)
			n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, max(0, int(left.Milliseconds())))
			unix.Close(fd)
			if n == 0 && err == nil {
				return killAll(entry, limit)
			}
		}
	}
	return nil
}

// killAll ends what a test has started and does not end.
func killAll(entry string, limit time.Duration) error {
	e := leftError{limit: limit}
	for pids := marked(entry); len(pids) > 0; pids = marked(entry) {
		for _, pid := range pids {
			args, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
			e.commands = append(e.commands, string(bytes.ReplaceAll(args, []byte{0}, []byte{' '})))
			unix.Kill(pid, unix.SIGKILL)
		}
	}
	return e
}

// leftError says which processes had not ended when the limit was over.
type leftError struct {
	limit    time.Duration
	commands []string
}

func (e leftError) Error() string {
	return fmt.Sprintf("after %v these were left: %q", e.limit, e.commands)
}

// killParent kills the process that has started another one.
func killParent(pid int) error {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return err
	}
	_, after, _ := strings.Cut(string(text), ") ") // of a name that the kernel has put in brackets
	var state string
	var parent int
	if _, err := fmt.Sscan(after, &state, &parent); err != nil {
		return err
	}
	return unix.Kill(parent, unix.SIGKILL)
}

// needMeeting returns the program of this file.
func needMeeting(t *testing.T) string {
	t.Helper()
	needStrace(t)
	path, err := buildMeeting()
	if err != nil {
		t.Fatal(err)
	}
	return path
}
