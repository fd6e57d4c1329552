//go:build linux

package systemd

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"
)

// TestManager: states and watchdog messages arrive at the manager's socket.
func TestManager(t *testing.T) {
	for _, name := range []string{filepath.Join(t.TempDir(), "notify"), "@thread-test-" + strconv.Itoa(os.Getpid())} {
		manager, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: name, Net: "unixgram"})
		if err != nil {
			t.Fatal(err)
		}
		defer manager.Close()
		manager.SetReadDeadline(time.Now().Add(time.Minute))
		t.Setenv("NOTIFY_SOCKET", name)
		t.Setenv("WATCHDOG_USEC", "20000")
		t.Setenv("WATCHDOG_PID", strconv.Itoa(os.Getpid()))
		if err := Notify("READY=1"); err != nil {
			t.Fatal(err)
		}
		asked := make(chan bool, 1)
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		go FeedWatchdog(ctx, func() {
			select {
			case asked <- true:
			default:
			}
		})
		for _, want := range []string{"READY=1", "WATCHDOG=1", "WATCHDOG=1"} {
			buf := make([]byte, 100)
			n, err := manager.Read(buf)
			if err != nil || string(buf[:n]) != want {
				t.Errorf("%q %v, want %q", buf[:n], err, want)
			}
		}
		<-asked
	}
}

// TestManagerOfAnother: a watchdog meant for another process, or no manager.
func TestManagerOfAnother(t *testing.T) {
	t.Setenv("NOTIFY_SOCKET", "")
	t.Setenv("WATCHDOG_USEC", "20000")
	t.Setenv("WATCHDOG_PID", "1")
	if err := Notify("READY=1"); err != nil {
		t.Error(err)
	}
	FeedWatchdog(t.Context(), func() { t.Error("asked") })
}
