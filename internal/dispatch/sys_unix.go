//go:build unix

package dispatch

import (
	"errors"
	"io"
	"iter"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"thread/internal/command"
	"thread/lock"
)

// shell runs handlers. It is found without a PATH, as a push from a timer or from
// env -i has none.
const shell = "/bin/sh"

// detach makes cmd the leader of a session and a separate process group: no
// terminal, and no signal that is meant for ours.
func detach(cmd *exec.Cmd) {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Setsid = true
}

// closeInherited closes what this process has inherited beyond the three standard
// files: a caller that waits for the end of its pipe must not wait for a handler,
// and a handler's tree lock is not for a supervisor that its push has started. What
// the process has opened itself is closed on exec, and so are those it was given by
// name.
func closeInherited() {
	for fd := range openDescriptors() {
		if flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err == nil && flags&unix.FD_CLOEXEC == 0 {
			unix.Close(fd)
		}
	}
}

// sealed calls start so that what it starts inherits none of the descriptors that
// this process has inherited. Afterwards they are as before: a process that continues
// has children that are to have them.
func sealed(start func() error) error {
	sealing.Lock()
	defer sealing.Unlock()
	for fd := range openDescriptors() {
		flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0)
		if err == nil && flags&unix.FD_CLOEXEC == 0 {
			unix.CloseOnExec(fd)
			defer func() { _, _ = unix.FcntlInt(uintptr(fd), unix.F_SETFD, flags) }() // it has them already
		}
	}
	return start()
}

var sealing sync.Mutex

// openDescriptors are those above the standard files; none where the system has
// no directory of them.
func openDescriptors() iter.Seq[int] {
	return func(yield func(int) bool) {
		dir, err := os.Open("/dev/fd")
		if err != nil {
			return
		}
		names, _ := dir.Readdirnames(-1)
		dir.Close()
		for _, name := range names {
			if fd, err := strconv.Atoi(name); err == nil && fd > 2 && !yield(fd) {
				return
			}
		}
	}
}

// readyFD is where a supervisor tells the dispatch that waits for it.
const readyFD = 3

// withReady lets cmd tell when it has handed over. The wait that it returns is to
// be called when cmd has been started, or could not be; it reports whether cmd came so
// far that another process takes over from it, or timed out.
func withReady(cmd *exec.Cmd) (await func(limit time.Duration) (handedOver, timedOut bool), err error) {
	reader, writer, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	cmd.ExtraFiles = []*os.File{writer}
	cmd.Args = append(cmd.Args, "-ready", "yes")
	return func(limit time.Duration) (handedOver, timedOut bool) {
		writer.Close()
		defer reader.Close()
		_ = reader.SetReadDeadline(time.Now().Add(limit))
		said, err := io.ReadAll(reader)
		return len(said) > 0, errors.Is(err, os.ErrDeadlineExceeded)
	}, nil
}

// readyFile is the other end of withReady's pipe.
func readyFile() *os.File {
	unix.CloseOnExec(readyFD)
	return os.NewFile(readyFD, "ready")
}

func terminateGroup(cmd *exec.Cmd) { syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) }
func killGroup(cmd *exec.Cmd)      { syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }

func exitText(p *os.ProcessState) string {
	if w, ok := p.Sys().(syscall.WaitStatus); ok && w.Signaled() {
		return "killed by " + unix.SignalName(w.Signal())
	}
	return "exit " + strconv.Itoa(p.ExitCode())
}

// treeLock is a held tree lock, see the package comment. The lock of a handler that was
// adopted is held by its processes alone, and lock is nil.
type treeLock struct {
	path string
	lock *lock.File
}

// attach makes cmd inherit the lock.
func (t *treeLock) attach(cmd *exec.Cmd) {
	fd := command.TreeFDBelow(command.DescriptorLimit())
	cmd.ExtraFiles = make([]*os.File, fd-3+1) // nil: closed in the child
	cmd.ExtraFiles[fd-3] = t.lock.File()
}

// release releases the lock, also for all who have inherited it: the
// next handler gets a new file.
func (t *treeLock) release() {
	os.Remove(t.path)
	release(t.lock)
}

// abandon leaves the lock to those who have inherited it.
func (t *treeLock) abandon() { t.lock.Close() }
