//go:build unix

package history

import (
	"os"
	"syscall"

	"thread/internal/terminal"
)

// forwarded are the signals that a command gets as well.
func forwarded() []os.Signal {
	return []os.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGUSR1, syscall.SIGUSR2}
}

// passOn reports whether the command did not get the signal by itself: a terminal
// sends the signals of its keys to both.
func passOn(s os.Signal) bool {
	return s != syscall.SIGINT && s != syscall.SIGQUIT || !terminal.IsTerminal(os.Stdin)
}

// brokenPipe is the signal of a write that is not read any more. Caught, it is the error of
// that write, and what is started gets it as ever.
func brokenPipe() []os.Signal { return []os.Signal{syscall.SIGPIPE} }
