// Package systemd speaks to the service manager that has started this process.
package systemd

import (
	"context"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
)

// Notify tells the service manager that has started this process, as systemd does,
// of a state, such as daemon.SdNotifyReady. It does nothing where there is none.
// Handlers do not inherit the variables that say where it is (package dispatch).
func Notify(state string) error {
	_, err := daemon.SdNotify(false, state)
	return err
}

// FeedWatchdog keeps the service manager's watchdog quiet until ctx ends, for as
// long as alive answers: it is called before each message, and one that hangs ends
// them. It returns at once where there is no watchdog.
func FeedWatchdog(ctx context.Context, alive func()) {
	every, err := daemon.SdWatchdogEnabled(false)
	if err != nil || every == 0 {
		return
	}
	tick := time.NewTicker(every / 2)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			alive()
			_ = Notify(daemon.SdNotifyWatchdog) // it is told again soon
		}
	}
}
