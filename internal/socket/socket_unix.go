//go:build unix

package socket

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

// Listener is a listening socket with a path. It removes the path when it is closed,
// unless the path names another socket by then.
type Listener struct {
	net.Listener
	path string
	name os.FileInfo // of the path when the socket was bound
}

// Replace makes the socket name in dir, in place of the file that a killed process
// left there. The caller holds the lock of that name. The socket has the mode 0600
// before a client can connect.
func Replace(dir, name string) (*Listener, error) {
	l := &Listener{path: filepath.Join(dir, name)}
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

// Close ends the listening.
func (l *Listener) Close() error {
	if now, err := os.Lstat(l.path); err == nil && os.SameFile(now, l.name) {
		os.Remove(l.path)
	}
	return l.Listener.Close()
}

// private reports whether no other account can put a file in the place
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
