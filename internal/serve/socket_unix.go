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

	"thread/internal/socket"
)

// openPipe makes a named pipe and opens it so that neither side waits for the
// other to open it.
func openPipe(path string) (*os.File, error) {
	if err := unix.Mkfifo(path, 0o600); err != nil {
		return nil, &os.PathError{Op: "mkfifo", Path: path, Err: err}
	}
	return os.OpenFile(path, os.O_RDWR|unix.O_NONBLOCK, 0)
}

// openToWrite opens a named pipe that another process reads.
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

// openRegular opens a file that another process may have replaced by anything, and
// does not wait for the other side of a pipe.
func openRegular(path string) (*os.File, error) {
	return os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK|unix.O_NOFOLLOW, 0)
}

// maxDescriptors is how many descriptors this process may have open.
func maxDescriptors() int {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return 256 // what the least of systems gives
	}
	return int(min(uint64(limit.Cur), 1<<30)) //nolint:unconvert // FreeBSD has an int64
}

// dial connects to the control socket of the thread directory dir.
func dial(dir string) (net.Conn, error) {
	conn, err := socket.Dial(filepath.Join(dir, "run"), controlSocket)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ECONNREFUSED) {
		err = ErrNobody
	}
	return conn, err
}
