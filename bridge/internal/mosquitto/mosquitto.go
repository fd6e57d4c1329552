// Package mosquitto starts and restarts a Mosquitto of a test's own.
package mosquitto

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// Server is one Mosquitto. It keeps its address and what it has stored when it is
// started again.
type Server struct {
	Addr string // host:port
	Dir  string
	cmd  *exec.Cmd
	gone chan struct{}
}

// Needed skips a test, or fails it where THREAD_BRIDGE_BROKERS says that brokers must
// be there.
func Needed(t testing.TB, err error) {
	t.Helper()
	if os.Getenv("THREAD_BRIDGE_BROKERS") != "" {
		t.Fatalf("Mosquitto must be there: %v", err)
	}
	t.Skipf("Mosquitto is not there: %v", err)
}

// New starts a server with these lines in its configuration, after those that say
// where it listens and stores. It ends with the test.
func New(t testing.TB, lines ...string) *Server {
	t.Helper()
	dir := t.TempDir()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &Server{Addr: l.Addr().String(), Dir: dir}
	l.Close()
	_, port, _ := net.SplitHostPort(s.Addr)
	me, err := user.Current()
	if err != nil {
		t.Fatal(err)
	}
	conf := append([]string{"user " + me.Username, "listener " + port + " 127.0.0.1", "persistence_location " + dir + "/", "log_dest stderr", "log_type all"}, lines...)
	if err := os.WriteFile(filepath.Join(dir, "mosquitto.conf"), []byte(strings.Join(conf, "\n")+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s.Start(t)
	t.Cleanup(func() { s.Stop(syscall.SIGKILL) })
	return s
}

// Start starts the server again and returns once it listens.
func (s *Server) Start(t testing.TB) {
	t.Helper()
	path, err := exec.LookPath("mosquitto")
	if err != nil {
		if path, err = exec.LookPath("/usr/sbin/mosquitto"); err != nil {
			Needed(t, err)
		}
	}
	s.cmd, s.gone = exec.Command(path, "-c", filepath.Join(s.Dir, "mosquitto.conf")), make(chan struct{})
	out, err := s.cmd.StderrPipe()
	if err == nil {
		err = s.cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	ready, said := make(chan struct{}), new(strings.Builder)
	go func() {
		defer close(s.gone)
		is := false
		for lines := bufio.NewScanner(out); lines.Scan(); {
			if is {
				continue
			}
			fmt.Fprintln(said, lines.Text())
			if strings.Contains(lines.Text(), " running") {
				is = true
				close(ready)
			}
		}
		_ = s.cmd.Wait() // it is killed
	}()
	select {
	case <-ready:
	case <-s.gone:
		t.Fatalf("mosquitto does not start: %s", said)
	case <-time.After(30 * time.Second):
		t.Fatal("mosquitto does not start")
	}
}

// Stop ends the server; with SIGTERM it stores the sessions.
func (s *Server) Stop(sig syscall.Signal) {
	_ = s.cmd.Process.Signal(sig) // it may have ended
	<-s.gone
}
