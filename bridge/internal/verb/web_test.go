package verb

import (
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"thread/bridge/trigger"
	"thread/engine"
)

// listening is a trigger on a mock queue, and what answers about it.
func listening(t *testing.T, dir, name, address string) (*trigger.Trigger, *web, string, error) {
	t.Helper()
	th, err := engine.Init(dir)
	if err != nil {
		th, err = engine.Open(dir)
	}
	if err != nil {
		t.Fatal(err)
	}
	c := trigger.NewConfig()
	c.Name, c.Queue, c.Group, c.Adapter = name, "q", "g", "mock"
	tr, err := trigger.New(th, trigger.NewMock(), c, trigger.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(dir, "run"), 0o700); err != nil {
		t.Fatal(err)
	}
	var log strings.Builder
	w, about := new(web), aboutTrigger(tr, name != "b")
	w.own(dir, "trigger", name, about, slog.New(slog.NewTextHandler(&log, nil)))
	err = w.at(address, about)
	return tr, w, log.String(), err
}

func fetch(t *testing.T, path, what string) (int, string) {
	t.Helper()
	client := http.Client{Transport: &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) { return net.Dial("unix", path) }}}
	defer client.CloseIdleConnections()
	r, err := client.Get("http://trigger" + what)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	b, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	return r.StatusCode, string(b)
}

// A socket that a killed process left is replaced, one in use and any other file are
// not; neither a long directory nor a long name keeps status from its answer.
func TestListenUnix(t *testing.T) {
	dir := filepath.Join(t.TempDir(), strings.Repeat("d", 110))
	name := strings.Repeat("n", 100)
	path := filepath.Join(t.TempDir(), "s")
	stale, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	stale.SetUnlinkOnClose(false)
	stale.Close()
	tr, w, log, err := listening(t, dir, name, "unix:"+path)
	if err != nil || log != "" {
		t.Fatal(err, log)
	}
	if err := tr.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	if s, err := ask[trigger.Status](t.Context(), dir, "trigger", name); err != nil || s.Status != "healthy" || s.Name != name {
		t.Errorf("%+v %v", s, err)
	}
	if code, body := fetch(t, path, "/healthz"); code != http.StatusOK {
		t.Errorf("%d %s", code, body)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v %v", info, err)
	}
	if _, _, _, err := listening(t, filepath.Join(t.TempDir(), "t"), "b", "unix:"+path); err == nil || !strings.Contains(err.Error(), syscall.EADDRINUSE.Error()) {
		t.Errorf("a second one: %v", err)
	}
	if err := tr.Stop(); err != nil {
		t.Error(err)
	}
	w.close()
	if err := os.WriteFile(path, []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, _, _, err := listening(t, filepath.Join(t.TempDir(), "t"), "b", "unix:"+path); err == nil {
		t.Error("a file was replaced")
	}
	if b, err := os.ReadFile(path); err != nil || string(b) != "mine" {
		t.Errorf("%q %v", b, err)
	}
}

// without metrics there is no /metrics.
func TestNoMetrics(t *testing.T) {
	for name, want := range map[string]int{"a": http.StatusOK, "b": http.StatusNotFound} {
		path := filepath.Join(t.TempDir(), "s")
		_, w, _, err := listening(t, filepath.Join(t.TempDir(), "t"), name, "unix:"+path)
		if err != nil {
			t.Fatal(err)
		}
		if code, body := fetch(t, path, "/metrics"); code != want {
			t.Errorf("%s: %d %s", name, code, body)
		}
		if code, _ := fetch(t, path, "/status"); code != http.StatusOK {
			t.Error(code)
		}
		w.close()
	}
}

// The watchdog is fed only while every loop comes round.
func TestUntilAlive(t *testing.T) {
	beats, asked := []time.Time{time.Now().Add(-2 * stuckAfter), time.Now()}, 0
	untilAlive(t.Context(), time.Nanosecond, time.Now, func() time.Time {
		asked++
		return beats[min(asked-1, 1)]
	})
	if asked != 2 {
		t.Errorf("asked %d times", asked)
	}
	ctx, stop := context.WithCancel(t.Context())
	stop()
	untilAlive(ctx, time.Hour, func() time.Time { return beats[0] })
}
