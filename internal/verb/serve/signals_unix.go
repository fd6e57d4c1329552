//go:build unix

package serve

import (
	"os"
	"os/signal"
	"syscall"
)

// notifySteering asks for the signals that tell thread serve something other
// than to end.
func notifySteering(c chan os.Signal) { signal.Notify(c, syscall.SIGHUP, syscall.SIGUSR1) }

// notifyResize tells when the terminal has another size.
func notifyResize(c chan os.Signal) { signal.Notify(c, syscall.SIGWINCH) }

func isReset(s os.Signal) bool { return s == syscall.SIGUSR1 }
