//go:build unix

package history

import (
	"os"
	"strconv"
	"syscall"

	"thread/internal/cli"
)

// forwarded are the signals that a command gets as well.
func forwarded() []os.Signal {
	return []os.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGUSR1, syscall.SIGUSR2}
}

// passOn reports whether the command did not get the signal by itself: a terminal
// sends those of its keys to both.
func passOn(s os.Signal) bool {
	return s != syscall.SIGINT && s != syscall.SIGQUIT || !cli.IsTerminal(os.Stdin)
}

func terminate(p *os.Process) { _ = p.Signal(syscall.SIGTERM) } // it may have ended by now

// exitOf returns the exit code as a shell has it, and in words.
func exitOf(s *os.ProcessState) (int, string) {
	if w, ok := s.Sys().(syscall.WaitStatus); ok && w.Signaled() {
		return 128 + int(w.Signal()), "killed by signal: " + w.Signal().String()
	}
	return s.ExitCode(), "exit " + strconv.Itoa(s.ExitCode())
}
