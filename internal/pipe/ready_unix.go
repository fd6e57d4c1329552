//go:build unix

package pipe

import "syscall"

func readNow(fd uintptr, p []byte) (int, error) {
	for {
		n, err := syscall.Read(int(fd), p)
		switch err {
		case syscall.EINTR:
			continue
		case syscall.EAGAIN:
			return 0, errNothingReady
		}
		return n, err
	}
}
