//go:build unix

package terminal

import (
	"context"
	"errors"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// UntilReaderGone returns a context that ends, with ErrReaderGone as its cause, when
// no process reads stdout any more: the other end of a pipe or of a socket is closed, or the
// terminal is gone. Who only waits would not learn it from a write. It costs a thread
// that sleeps in poll.
func (o *Output) UntilReaderGone(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	if f, ok := o.W.(*os.File); ok {
		go func() {
			// No event is asked for: what is left are an error and a hang-up.
			fds := []unix.PollFd{{Fd: int32(f.Fd())}}
			for {
				n, err := unix.Poll(fds, -1)
				if err == nil && n > 0 {
					cancel(ErrReaderGone)
				}
				if !errors.Is(err, unix.EINTR) && !errors.Is(err, unix.EAGAIN) {
					return
				}
			}
		}()
	}
	return ctx, func() { cancel(nil) }
}

// isReaderGone reports whether a write failed because no process reads.
func isReaderGone(err error) bool { return errors.Is(err, syscall.EPIPE) }
