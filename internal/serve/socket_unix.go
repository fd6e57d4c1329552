//go:build unix

package serve

import (
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"

	"thread/internal/dispatch"
)

// openPipe makes a named pipe and opens it so that neither side waits for the
// other to open it.
func openPipe(path string) (*os.File, error) {
	if err := unix.Mkfifo(path, 0o600); err != nil {
		return nil, &os.PathError{Op: "mkfifo", Path: path, Err: err}
	}
	return os.OpenFile(path, os.O_RDWR|unix.O_NONBLOCK, 0)
}

// openToWrite opens a named pipe that somebody reads.
func openToWrite(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_WRONLY|unix.O_NONBLOCK|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil, err
	}
	if info, err := f.Stat(); err != nil || info.Mode()&os.ModeNamedPipe == 0 {
		f.Close()
		return nil, &os.PathError{Op: "open", Path: path, Err: errors.New("not a named pipe")}
	}
	return f, nil
}

// openRegular opens a file that somebody else may have replaced by anything, and
// does not wait for the other side of a pipe.
func openRegular(path string) (*os.File, error) {
	return os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK|unix.O_NOFOLLOW, 0)
}

// listener is a listening socket with a path. It takes the path away when it is
// closed, unless that is another socket's by then.
type listener struct {
	net.Listener
	path string
	name os.FileInfo // of the path when the socket was bound
}

// listenUnix makes the socket name in dir, in place of what a killed process left
// there. It has the mode 0600 before anybody can connect.
func listenUnix(dir, name string) (*listener, error) {
	l := &listener{path: filepath.Join(dir, name)}
	if err := os.Remove(l.path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	address, done, err := dispatch.SocketAddress(dir, name)
	if err != nil {
		return nil, err
	}
	defer done()
	syscall.ForkLock.RLock()
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	if err == nil {
		unix.CloseOnExec(fd)
	}
	syscall.ForkLock.RUnlock()
	if err != nil {
		return nil, os.NewSyscallError("socket", err)
	}
	socket := os.NewFile(uintptr(fd), l.path)
	defer socket.Close() // net has its own
	if err := unix.Bind(fd, &unix.SockaddrUnix{Name: address}); err != nil {
		return nil, os.NewSyscallError("bind", err)
	}
	if err = os.Chmod(l.path, 0o600); err == nil {
		l.name, err = os.Lstat(l.path)
	}
	if err == nil {
		err = os.NewSyscallError("listen", unix.Listen(fd, unix.SOMAXCONN))
	}
	if err == nil {
		l.Listener, err = net.FileListener(socket)
	}
	if err != nil {
		os.Remove(l.path)
		return nil, err
	}
	return l, nil
}

// private reports whether no other account can put a file of its own in the place
// of one of this account in the directory: root can anyway.
func private(dir os.FileInfo) bool {
	sys, ok := dir.Sys().(*syscall.Stat_t)
	mode := dir.Mode()
	return ok && (sys.Uid == 0 || int(sys.Uid) == os.Geteuid()) && (mode.Perm()&0o022 == 0 || mode&os.ModeSticky != 0)
}

// isOwn reports whether the file belongs to this account.
func isOwn(file os.FileInfo) bool {
	sys, ok := file.Sys().(*syscall.Stat_t)
	return ok && int(sys.Uid) == os.Geteuid()
}

// maxDescriptors is how many descriptors this process may have open.
func maxDescriptors() int {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return 256 // what the least of systems gives
	}
	return int(min(uint64(limit.Cur), 1<<30)) //nolint:unconvert // FreeBSD has an int64
}

func (l *listener) Close() error {
	if now, err := os.Lstat(l.path); err == nil && os.SameFile(now, l.name) {
		os.Remove(l.path)
	}
	return l.Listener.Close()
}

// dial connects to the control socket of the thread directory dir.
func dial(dir string) (net.Conn, error) {
	address, done, err := dispatch.SocketAddress(filepath.Join(dir, "run"), controlSocket)
	if err != nil {
		return nil, err
	}
	defer done()
	// DialTimeout would link the whole of name resolution.
	conn, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: address, Net: "unix"})
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ECONNREFUSED) {
		err = ErrNobody
	}
	if err != nil {
		return nil, err
	}
	return conn, nil
}
