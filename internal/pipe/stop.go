package pipe

import (
	"errors"
	"io"
	"os"
	"time"
)

// Stop ends the waiting of a reader that UntilStopped has returned for the pipe.
func Stop(f *os.File) { _ = f.SetReadDeadline(time.Unix(1, 0)) }

// UntilStopped reads a pipe. After Stop it reads what has been printed by then, and no
// more than a pipe holds, and does not wait for the end of the pipe, which a process
// that was left behind may have open for ever.
func UntilStopped(f *os.File) io.Reader { return &untilStopped{f: f} }

type untilStopped struct {
	f    *os.File
	rest *io.LimitedReader // not nil: Stop was called
}

func (u *untilStopped) Read(p []byte) (int, error) {
	if u.rest == nil {
		n, err := u.f.Read(p)
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			return n, err
		}
		_ = u.f.SetReadDeadline(time.Time{})
		u.rest = &io.LimitedReader{R: ready{u.f}, N: most}
	}
	return u.rest.Read(p)
}
