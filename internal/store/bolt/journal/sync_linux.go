package journal

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// sync makes the data of f durable. The length of the file never changes.
func syncData(f *os.File) (err error) {
	conn, err := f.SyscallConn()
	if err != nil {
		return err
	}
	if cerr := conn.Control(func(fd uintptr) {
		for err = unix.EINTR; errors.Is(err, unix.EINTR); {
			err = unix.Fdatasync(int(fd))
		}
	}); cerr != nil {
		return cerr
	}
	return err
}
