//go:build unix

package dispatch

import (
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

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
