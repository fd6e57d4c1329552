//go:build unix

package dispatch

import (
	"os"
	"os/exec"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"

	"thread/lock"
)

// A symbolic link is not followed, and a named pipe is not waited for.
const (
	openNoFollow = syscall.O_NOFOLLOW
	openNoWait   = syscall.O_NONBLOCK
)

// shell runs handlers. It is found without a PATH, as a push from a timer or from
// env -i has none.
const shell = "/bin/sh"

// inheritsLocks says that a lock goes to a child with its descriptor.
const inheritsLocks = true

// detach makes cmd the leader of a session and a process group of its own: no
// terminal, and no signal that is meant for ours.
func detach(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} }

// sealDescriptors keeps what this process has inherited, beyond the three
// standard files, from going on to its children: a caller that waits for the end
// of its pipe must not wait for a handler.
func sealDescriptors() {
	dir, err := os.Open("/dev/fd")
	if err != nil {
		return // no such directory here: then the standard files are all we can promise
	}
	names, _ := dir.Readdirnames(-1)
	dir.Close()
	for _, name := range names {
		if fd, err := strconv.Atoi(name); err == nil && fd > 2 {
			unix.CloseOnExec(fd)
		}
	}
}

// startWith starts cmd, a supervisor, and hands the claim over to it. For as long
// as this process has the locks too, the supervisor's death does not free them,
// and its guard would find them held by somebody who does not look again. So the
// end of the supervisor's stdin tells it that they are its own, see inherit.
func startWith(cmd *exec.Cmd, c *claim) error {
	reader, writer, err := os.Pipe()
	if err != nil {
		return err
	}
	defer writer.Close()
	defer reader.Close()
	cmd.Stdin = reader
	cmd.ExtraFiles = []*os.File{c.lock.File(), c.slot.File()}
	if err := start(cmd); err != nil {
		return err
	}
	passing("handing")
	// Closed, not unlocked: the lock is the child's now.
	c.lock.Close()
	c.slot.Close()
	return nil
}

// inherited returns the i-th file of startWith in the child.
func inherited(i int) *os.File { return os.NewFile(uintptr(3+i), "inherited lock") }

// unlock releases a lock for every process that has the descriptor.
func unlock(f *os.File) {
	for syscall.Flock(int(f.Fd()), syscall.LOCK_UN) == syscall.EINTR {
	}
}

func readNow(fd uintptr, p []byte) (int, error) {
	for {
		n, err := syscall.Read(int(fd), p)
		switch err {
		case syscall.EINTR:
			continue
		case syscall.EAGAIN:
			return 0, errNothingReady
		}
		return n, err
	}
}

func terminateGroup(cmd *exec.Cmd) { syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) }
func killGroup(cmd *exec.Cmd)      { syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }

func exitText(p *os.ProcessState) string {
	if w, ok := p.Sys().(syscall.WaitStatus); ok && w.Signaled() {
		return "killed by " + unix.SignalName(w.Signal())
	}
	return "exit " + strconv.Itoa(p.ExitCode())
}

// treeFD is the number under which a handler has the tree lock: none that a
// shell script or a shell uses by itself.
const treeFD = 99

// tree is a held tree lock, see the package comment.
type tree struct {
	path string
	lock *lock.File
}

// attach makes cmd inherit the lock.
func (t *tree) attach(cmd *exec.Cmd) {
	cmd.ExtraFiles = make([]*os.File, treeFD-3+1) // nil: closed in the child
	cmd.ExtraFiles[treeFD-3] = t.lock.File()
}

// leave gives the lock back, also in the name of all who have inherited it. The
// next handler gets a new file, so that evict does not find those.
func (t *tree) leave() {
	os.Remove(t.path)
	release(t.lock)
}

// abandon leaves the lock to those who have inherited it.
func (t *tree) abandon() { t.lock.Close() }
