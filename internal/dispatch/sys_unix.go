//go:build unix

package dispatch

import (
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
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
	for _, fd := range openDescriptors() {
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
	for _, fd := range openDescriptors() {
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
func openDescriptors() (list []int) {
	entries, _ := os.ReadDir("/dev/fd")
	for _, e := range entries {
		if fd, err := strconv.Atoi(e.Name()); err == nil && fd > 2 {
			list = append(list, fd)
		}
	}
	return list
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

// link is a supervisor's end of the socket to its standby, over which files can go.
type link struct{ fd int }

func newLink() (l *link, theirs *os.File, err error) {
	syscall.ForkLock.RLock()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	if err == nil {
		unix.CloseOnExec(fds[0])
		unix.CloseOnExec(fds[1])
	}
	syscall.ForkLock.RUnlock()
	if err != nil {
		return nil, nil, os.NewSyscallError("socketpair", err)
	}
	return &link{fds[0]}, os.NewFile(uintptr(fds[1]), "standby"), nil
}

func (l *link) close() { unix.Close(l.fd) }

// send sends text and a zero byte, and a file if there is one.
func (l *link) send(text string, f *os.File) error {
	p := append([]byte(text), 0)
	if f == nil {
		return l.write(p, nil)
	}
	conn, err := f.SyscallConn()
	if err != nil {
		return err
	}
	if cerr := conn.Control(func(fd uintptr) { err = l.write(p, unix.UnixRights(int(fd))) }); cerr != nil {
		return cerr
	}
	return err
}

func (l *link) sendByte(b byte) error { return l.write([]byte{b}, nil) }

func (l *link) write(p, rights []byte) error {
	for len(p) > 0 {
		n, err := unix.SendmsgN(l.fd, p, rights, nil, 0)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return err
		}
		p, rights = p[n:], nil // the file went with the first byte
	}
	return nil
}

// readLink reads from the standby's end, which is its standard input. The end of a
// supervisor of an earlier version is a pipe.
func readLink(p []byte) (n int, files []*os.File, err error) {
	rights := make([]byte, unix.CmsgSpace(16*4))
	for {
		var got int
		n, got, _, _, err = unix.Recvmsg(0, p, rights, 0)
		if err == unix.ENOTSOCK {
			got = 0
			n, err = unix.Read(0, p)
		}
		if err == unix.EINTR {
			continue
		}
		if err == unix.ECONNRESET { // it was killed with words of ours unread: its end
			return 0, nil, nil
		}
		if err != nil || got == 0 {
			return n, nil, err
		}
		messages, _ := unix.ParseSocketControlMessage(rights[:got])
		for i := range messages {
			fds, _ := unix.ParseUnixRights(&messages[i])
			for _, fd := range fds {
				unix.CloseOnExec(fd)
				files = append(files, os.NewFile(uintptr(fd), "output"))
			}
		}
		return n, files, nil
	}
}

// dialControl connects to the control socket in dir, without package net, which what a push
// starts must not link.
func dialControl(dir string) (io.ReadWriteCloser, error) {
	address, done, err := SocketAddress(dir, ControlSocket)
	if err != nil {
		return nil, err
	}
	defer done()
	syscall.ForkLock.RLock() // commands are started meanwhile
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	if err == nil {
		unix.CloseOnExec(fd)
	}
	syscall.ForkLock.RUnlock()
	if err != nil {
		return nil, os.NewSyscallError("socket", err)
	}
	if err := unix.Connect(fd, &unix.SockaddrUnix{Name: address}); err != nil {
		unix.Close(fd)
		return nil, os.NewSyscallError("connect", err)
	}
	if err := unix.SetNonblock(fd, true); err != nil {
		unix.Close(fd)
		return nil, os.NewSyscallError("fcntl", err)
	}
	return os.NewFile(uintptr(fd), address), nil // with the runtime's poller
}

// deliveryFiles are the two files of a slot. The pipe is kept open, so that neither
// side waits for the other to open it.
type deliveryFiles struct {
	state string
	pipe  *os.File
	path  string
}

func newDeliveryFiles(dir string) (*deliveryFiles, error) {
	f := &deliveryFiles{state: filepath.Join(dir, "state"), path: filepath.Join(dir, "messages")}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	if err := os.RemoveAll(f.path); err != nil {
		return nil, err
	}
	err := unix.Mkfifo(f.path, 0o600)
	if err != nil {
		return nil, &os.PathError{Op: "mkfifo", Path: f.path, Err: err}
	}
	f.pipe, err = os.OpenFile(f.path, os.O_RDWR|unix.O_NONBLOCK|unix.O_NOFOLLOW, 0)
	return f, err
}

// usable reports whether the pipe is still the one that its path names.
func (f *deliveryFiles) usable() bool {
	same, err := lock.Names(f.path, f.pipe)
	return same && err == nil
}

// reset takes away what the process before has said, and not read.
func (f *deliveryFiles) reset() {
	if info, err := os.Lstat(f.state); err != nil || info.Size() > 0 || !info.Mode().IsRegular() {
		_ = os.RemoveAll(f.state)
		_ = os.WriteFile(f.state, nil, 0o600)
	}
	raw, err := f.pipe.SyscallConn()
	if err != nil {
		return
	}
	_ = raw.Control(func(fd uintptr) {
		buf := make([]byte, 4096)
		for n := 1; n > 0; {
			if n, err = unix.Read(int(fd), buf); errors.Is(err, unix.EINTR) {
				n = 1
			}
		}
	})
}

func (f *deliveryFiles) close() { f.pipe.Close() }
