package serve

import (
	"context"
	"os"
	"strconv"
	"time"
)

// Manager is the service manager that has started this process, as systemd
// does. The zero value is none.
type Manager struct {
	socket string
	dog    time.Duration // how often it wants to hear of us; 0: not at all
}

// FindManager reads the environment (sd_notify(3), sd_watchdog_enabled(3)) and
// takes its variables out of it: handlers are not the service.
func FindManager() Manager {
	m := Manager{socket: os.Getenv("NOTIFY_SOCKET")}
	us, err := strconv.ParseInt(os.Getenv("WATCHDOG_USEC"), 10, 64)
	pid := os.Getenv("WATCHDOG_PID")
	if err == nil && us > 0 && (pid == "" || pid == strconv.Itoa(os.Getpid())) {
		m.dog = time.Duration(us) * time.Microsecond
	}
	for _, name := range []string{"NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"} {
		_ = os.Unsetenv(name)
	}
	return m
}

// Tell passes on a state, such as "READY=1", "RELOADING=1" or "STOPPING=1".
func (m Manager) Tell(state string) error {
	if m.socket == "" {
		return nil
	}
	return send(m.socket, state)
}

// Feed keeps the manager's watchdog quiet until ctx ends, for as long as alive
// answers: it is called before each message, and one that hangs ends them.
func (m Manager) Feed(ctx context.Context, alive func()) {
	if m.socket == "" || m.dog == 0 {
		return
	}
	tick := time.NewTicker(m.dog / 2)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			alive()
			_ = m.Tell("WATCHDOG=1") // it is told again soon
		}
	}
}
