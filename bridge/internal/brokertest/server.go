package brokertest

import (
	"bytes"
	"net"
	"os"
	"os/exec"
	"testing"
	"time"
)

// Server is a server of a test's own, which may be killed.
type Server struct {
	Address string // where it listens
	Command func() *exec.Cmd
	Ready   func() error // nil once it answers; nil: listening is enough

	cmd *exec.Cmd
	log bytes.Buffer
}

// Start starts it and waits until it answers. It is killed when the test ends.
func (s *Server) Start(t *testing.T) {
	t.Helper()
	s.log.Reset()
	s.cmd = s.Command()
	lead(s.cmd) // what it starts is killed with it
	s.cmd.Stdout, s.cmd.Stderr = &s.log, &s.log
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	cmd := s.cmd
	go func() { _ = cmd.Wait(); close(ended) }() // it is killed
	t.Cleanup(s.Kill)
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for end := time.After(5 * time.Minute); ; { // RabbitMQ on a busy host
		err := s.ready()
		if err == nil {
			return
		}
		select {
		case <-tick.C:
		case <-ended:
			t.Fatalf("the server ended: %s", &s.log)
		case <-end:
			t.Fatalf("the server does not start: %v", err)
		}
	}
}

func (s *Server) ready() error {
	c, err := net.DialTimeout("tcp", s.Address, time.Second)
	if err != nil {
		return err
	}
	c.Close()
	if s.Ready == nil {
		return nil
	}
	return s.Ready()
}

// Kill kills it, once.
func (s *Server) Kill() {
	if s.cmd != nil {
		killGroup(s.cmd.Process)
		s.cmd = nil
	}
}

// Program ends the test when there is no such program, as Needed does.
func Program(t *testing.T, path string) {
	t.Helper()
	if _, err := exec.LookPath(path); err == nil {
		return
	} else if os.Getenv("THREAD_BRIDGE_BROKERS") != "" {
		t.Fatal(err)
	}
	t.Skipf("%s is not installed", path)
}
