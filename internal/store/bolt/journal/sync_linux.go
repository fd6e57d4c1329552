package journal

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// syncData makes the data of f durable. The length of the file never changes.
func syncData(f *os.File) error {
	for {
		if err := unix.Fdatasync(int(f.Fd())); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}
