//go:build linux

package serve

import (
	"os"
	"strconv"
	"testing"

	"thread/engine"
)

// TestHandlerIsNotTheService: a handler cannot speak to the service manager in our
// name.
func TestHandlerIsNotTheService(t *testing.T) {
	t.Setenv("NOTIFY_SOCKET", "/run/notify")
	t.Setenv("WATCHDOG_USEC", "20000")
	t.Setenv("WATCHDOG_PID", strconv.Itoa(os.Getpid()))
	b := newBench(t)
	at := b.fifo("at")
	b.subscribe(engine.Subscription{Consumer: "c", Handler: `echo "${NOTIFY_SOCKET-unset} ${WATCHDOG_USEC-unset} ${WATCHDOG_PID-unset} $THREAD_CONSUMER" > "$D/at"; ` + drain})
	b.serve(Options{})
	b.push("s")
	if got := b.line(at); got != "unset unset unset c" {
		t.Errorf("the handler has %s", got)
	}
	b.idle()
}
