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

	"thread/dispatch"
)

// openPipe makes a named pipe and opens it so that neither side waits for the
// other to open it.
func openPipe(path string) (*os.File, error) {
	if err := unix.Mkfifo(path, 0o600); err != nil {
		return nil, &os.PathError{Op: "mkfifo", Path: path, Err: err}
	}
	return os.OpenFile(path, os.O_RDWR|unix.O_NONBLOCK, 0)
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

// listenUnix makes the socket name in dir, of mode 0600, in place of what a
// killed process left there.
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
	socket, err := net.ListenUnix("unix", &net.UnixAddr{Name: address, Net: "unix"})
	if err != nil {
		return nil, err
	}
	socket.SetUnlinkOnClose(false)
	l.Listener = socket
	if err = os.Chmod(l.path, 0o600); err == nil {
		l.name, err = os.Lstat(l.path)
	}
	if err != nil {
		socket.Close()
		return nil, err
	}
	return l, nil
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
