package pipe

import (
	"errors"
	"io"
	"os"
)

var errNothingReady = errors.New("nothing to read")

// ready reads what a pipe holds at the moment and does not wait for more.
type ready struct{ f *os.File }

func (r ready) Read(p []byte) (n int, err error) {
	conn, err := r.f.SyscallConn()
	if err != nil {
		return 0, err
	}
	if cerr := conn.Read(func(fd uintptr) bool {
		n, err = readNow(fd, p)
		return true
	}); cerr != nil {
		return 0, cerr
	}
	if err == nil && n <= 0 {
		err = io.EOF
	}
	return max(n, 0), err
}
