//go:build unix

package cli

import (
	"context"
	"os/signal"
	"syscall"
	"testing"
	"time"
)

// TestInterruptible: a long job hears of each signal that would end it, and of
// none that is ignored, as SIGHUP is under nohup.
func TestInterruptible(t *testing.T) {
	for _, s := range []syscall.Signal{syscall.SIGHUP, syscall.SIGINT, syscall.SIGTERM} {
		if signal.Ignored(s) { // these tests run under nohup themselves
			continue
		}
		ctx, stop := Interruptible(context.Background())
		if err := syscall.Kill(syscall.Getpid(), s); err != nil {
			t.Fatal(err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(time.Minute):
			t.Errorf("%v is not heard of", s)
		}
		stop()
	}
	signal.Ignore(syscall.SIGHUP)
	defer signal.Reset(syscall.SIGHUP)
	_, stop := Interruptible(context.Background())
	defer stop()
	if !signal.Ignored(syscall.SIGHUP) {
		t.Error("SIGHUP is not ignored any more")
	}
}
