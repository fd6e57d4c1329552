//go:build unix

package serve

import (
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// send passes a message to the service manager's socket, whose name may be
// abstract (sd_notify(3)).
func send(socket, message string) error {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM, 0)
	if err != nil {
		return os.NewSyscallError("socket", err)
	}
	defer unix.Close(fd)
	unix.CloseOnExec(fd)
	if rest, abstract := strings.CutPrefix(socket, "@"); abstract {
		socket = "\x00" + rest
	}
	return os.NewSyscallError("sendto", unix.Sendto(fd, []byte(message), unix.MSG_DONTWAIT, &unix.SockaddrUnix{Name: socket}))
}
