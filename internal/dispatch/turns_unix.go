//go:build unix

package dispatch

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"

	"thread/lock"
)

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
