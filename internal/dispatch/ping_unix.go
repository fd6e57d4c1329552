//go:build unix

package dispatch

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"

	"golang.org/x/sys/unix"

	"thread/event"
)

// maxSocketPath is the longest path that a socket's address holds, with the zero
// byte at its end: 104 on the BSDs, 108 on Linux.
const maxSocketPath = 103

var errLongPath = errors.New("the directory's path is too long for a socket")

// SocketAddress returns an address for the socket of that name in dir, which is
// usable until done is called. A path too long for an address is reached through
// a descriptor where the system can.
func SocketAddress(dir, name string) (address string, done func(), err error) {
	path := filepath.Join(dir, name)
	if len(path) <= maxSocketPath {
		return path, func() {}, nil
	}
	if runtime.GOOS != "linux" {
		return "", nil, fmt.Errorf("%w: %s", errLongPath, dir)
	}
	d, err := os.Open(dir)
	if err != nil {
		return "", nil, err
	}
	return fmt.Sprintf("/proc/self/fd/%d/%s", d.Fd(), name), func() { d.Close() }, nil
}

// ping reports whether a server has been told. A full socket is not
// waited for: no process knows whether its owner still reads.
func (r *dispatcher) ping(kind byte, author string) bool {
	return r.sendTo(wakeSocket, kind, author)
}

func (r *dispatcher) sendTo(socket string, kind byte, author string) bool {
	if info, err := os.Lstat(filepath.Join(r.run, socket)); err != nil || info.Mode()&os.ModeSocket == 0 {
		return false
	}
	address, done, err := SocketAddress(r.run, socket)
	if err != nil {
		return false
	}
	defer done()
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM, 0)
	if err != nil {
		return false
	}
	defer unix.Close(fd)
	unix.CloseOnExec(fd)
	return unix.Sendto(fd, append([]byte{kind}, author...), unix.MSG_DONTWAIT, &unix.SockaddrUnix{Name: address}) == nil
}

// Pings is the receiving end of a thread's pings.
type Pings struct {
	path string
	file *os.File
	name os.FileInfo // of the path when the socket was bound
}

// listen makes the socket, in place of one that is left of another process. The
// caller holds the lock by which it is the only one.
func (r *dispatcher) listen() (*Pings, error) { return r.listenAt(wakeSocket) }

func (r *dispatcher) listenAt(socket string) (*Pings, error) {
	p := &Pings{path: filepath.Join(r.run, socket)}
	if err := os.Remove(p.path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	address, done, err := SocketAddress(r.run, socket)
	if err != nil {
		return nil, err
	}
	defer done()
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM, 0)
	if err != nil {
		return nil, err
	}
	unix.CloseOnExec(fd)
	if err := unix.Bind(fd, &unix.SockaddrUnix{Name: address}); err != nil {
		unix.Close(fd)
		return nil, os.NewSyscallError("bind "+p.path, err)
	}
	err = errors.Join(r.open(p.path), unix.SetNonblock(fd, true))
	if err == nil {
		p.name, err = os.Lstat(p.path)
	}
	if err != nil {
		unix.Close(fd)
		return nil, err
	}
	p.file = os.NewFile(uintptr(fd), p.path) // with the runtime's poller, as it does not block
	return p, nil
}

// open lets those send to the socket who may push.
func (r *dispatcher) open(socket string) error {
	mode := os.FileMode(0o600)
	if info, err := os.Stat(filepath.Join(r.t.Dir(), "events.db")); err == nil {
		mode |= info.Mode() & 0o066
		if of, ok := statOf(info); ok {
			_ = os.Lchown(socket, -1, int(of.gid)) // else its group cannot
		}
	}
	return os.Chmod(socket, mode)
}

// Next waits for a ping. The buffer exists only when one is there: a process
// waits for the notices of many threads.
func (p *Pings) Next() (got Ping, err error) {
	conn, err := p.file.SyscallConn()
	if err != nil {
		return got, err
	}
	if cerr := conn.Read(func(fd uintptr) bool {
		got, err = receive(int(fd))
		return !errors.Is(err, unix.EAGAIN)
	}); cerr != nil {
		return got, cerr
	}
	return got, err
}

func receive(fd int) (Ping, error) {
	buf := make([]byte, 1+event.MaxNameBytes)
	for {
		n, _, err := unix.Recvfrom(fd, buf, 0)
		if err == unix.EINTR {
			continue
		}
		return parsePing(buf[:max(n, 0)]), err
	}
}

// Reachable reports whether the socket can still be found: run/ may be deleted at
// any time, and the whole directory replaced by another one.
func (p *Pings) Reachable() bool {
	now, err := os.Lstat(p.path)
	return err == nil && os.SameFile(now, p.name)
}

// Close takes the socket away, so that the next push finds no process, and makes
// Next return an error.
func (p *Pings) Close() error {
	if p.Reachable() {
		os.Remove(p.path)
	}
	return p.file.Close()
}
