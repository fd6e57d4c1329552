package terminal

import (
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// pipeBytes is how much a reader may be behind: with the 64 KiB that a pipe has, which one
// write fills, both wait for each other in turn.
const pipeBytes = 4 * flushBytes

// widenPipe makes w larger if it is a pipe, and the kernel allows it.
func widenPipe(w io.Writer) {
	f, ok := w.(*os.File)
	if !ok {
		return
	}
	c, err := f.SyscallConn()
	if err != nil {
		return
	}
	_ = c.Control(func(fd uintptr) { _, _ = unix.FcntlInt(fd, unix.F_SETPIPE_SZ, pipeBytes) })
}
