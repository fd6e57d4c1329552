package cli

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

// Interruptible returns a context that ends with Ctrl-C, SIGTERM, or the end of the
// terminal, so that a long job can put away what it began. With nohup, the last one
// stays ignored.
func Interruptible(ctx context.Context) (context.Context, context.CancelFunc) {
	signals := []os.Signal{os.Interrupt, syscall.SIGTERM, syscall.SIGHUP}
	if signal.Ignored(syscall.SIGHUP) {
		signals = signals[:2]
	}
	return signal.NotifyContext(ctx, signals...)
}
