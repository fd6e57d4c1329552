//go:build unix

package cli

import (
	"fmt"
	"os"
	"syscall"
)

// standard returns a copy of f, which is stdout or stderr and has the descriptor
// fd, under another descriptor. Go ends the process by SIGPIPE when a write to
// descriptor 1 or 2 finds no reader, and returns an error for every other one.
// An error is what we want: a reader that goes away is not a failure (
// T-10), least of all after a push. Asking for the signal (signal.Notify) does
// the same and starts a thread; ignoring it is inherited by handlers.
func standard(f *os.File, fd int) *os.File {
	copied, err := syscall.Dup(fd)
	if err != nil {
		return f
	}
	syscall.CloseOnExec(copied) // no child has been started yet
	return os.NewFile(uintptr(copied), f.Name())
}

// spareDescriptors returns EMFILE unless a file can still be opened. With the first
// one Go's runtime makes two descriptors for its poller, and ends the process with
// a stack trace when it cannot.
func spareDescriptors() error {
	for range 3 {
		fd, err := syscall.Dup(2)
		if err != nil {
			return fmt.Errorf("cannot open a file: %w", err)
		}
		defer syscall.Close(fd)
	}
	return nil
}

// isOwn reports whether the directory belongs to the user of this process.
func isOwn(dir string) bool {
	st, err := os.Stat(dir)
	if err != nil {
		return false
	}
	sys, ok := st.Sys().(*syscall.Stat_t)
	return ok && int(sys.Uid) == os.Geteuid()
}

// replaceBy makes this process the program at path: the terminal, signals and the
// exit code are its own.
func (a *App) replaceBy(path string, args []string) error {
	return &os.PathError{Op: "run", Path: path, Err: syscall.Exec(path, append([]string{path}, args...), os.Environ())}
}
