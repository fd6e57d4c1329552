// Package socket listens on unix sockets that other processes find by their path. It
// makes no promise to library users.
package socket

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"syscall"

	"thread/internal/dispatch"
)

// ErrPlace is wrapped by the errors of a path where no socket may be made.
var ErrPlace = errors.New("cannot listen")

// Listen makes a socket in place of a stale one of this account, and of nothing else,
// in a directory where no other account can replace it. It returns ErrPlace, or the
// bare error of the system: EADDRINUSE when another process listens there.
func Listen(path string) (*Listener, error) {
	if path == "" {
		return nil, fmt.Errorf("%w on unix: without a path", ErrPlace)
	}
	dir, err := os.Stat(filepath.Dir(path))
	if err == nil && !private(dir) {
		return nil, fmt.Errorf("%w on %s: another account can write its directory", ErrPlace, path)
	}
	info, err := os.Lstat(path)
	if err == nil && info.Mode().Type() != os.ModeSocket {
		return nil, fmt.Errorf("%w on %s: it is there and no socket", ErrPlace, path)
	}
	if err == nil && !isOwn(info) {
		return nil, fmt.Errorf("%w on %s: it is there and of another account", ErrPlace, path)
	}
	if err == nil {
		if conn, err := Dial(filepath.Dir(path), filepath.Base(path)); err == nil {
			conn.Close()
			return nil, syscall.EADDRINUSE
		}
	}
	l, err := Replace(filepath.Dir(path), filepath.Base(path))
	if errno := syscall.Errno(0); errors.As(err, &errno) {
		return nil, errno // without the words that repeat the address
	}
	return l, err
}

// Dial connects to the socket of that name in dir, whose path may be longer than an
// address holds.
func Dial(dir, name string) (net.Conn, error) {
	address, done, err := dispatch.SocketAddress(dir, name)
	if err != nil {
		return nil, err
	}
	defer done()
	// DialTimeout would link the whole of name resolution.
	return net.DialUnix("unix", nil, &net.UnixAddr{Name: address, Net: "unix"})
}
