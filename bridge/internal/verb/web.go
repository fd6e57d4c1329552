package verb

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"thread/bridge/trigger"
)

// web answers about a running trigger: at a socket in the thread for the other
// verbs, and where --listen says.
type web struct {
	server    *http.Server
	listeners []net.Listener
}

func socketPath(dir, name string) string { return filepath.Join(dir, "run", "trigger-"+name+".sock") }

func listen(dir, name, address string, tr *trigger.Trigger) (*web, error) {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /status", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(tr.Health(r.Context())) // who asked may be gone
	})
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, r *http.Request) {
		s := tr.Health(r.Context())
		w.Header().Set("Content-Type", "application/json")
		if s.Status != "healthy" {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
		_ = json.NewEncoder(w).Encode(s)
	})
	mux.HandleFunc("GET /metrics", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
		_, _ = tr.Metrics().WriteTo(w)
	})
	s := &web{server: &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}}
	path := socketPath(dir, name)
	_ = os.Remove(path) // the lock says that nobody uses it
	err := s.add("unix", path)
	if err == nil && address != "" {
		if unix, ok := strings.CutPrefix(address, "unix:"); ok {
			err = s.add("unix", unix)
		} else {
			err = s.add("tcp", address)
		}
	}
	if err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

func (s *web) add(network, address string) error {
	l, err := net.Listen(network, address)
	if err != nil {
		return err
	}
	if network == "unix" {
		if err := os.Chmod(address, 0o600); err != nil {
			return err
		}
	}
	s.listeners = append(s.listeners, l)
	go func() { _ = s.server.Serve(l) }() // until it is closed
	return nil
}

func (s *web) close() { s.server.Close() }

// errNotRunning says that nobody answers at the socket of a trigger.
var errNotRunning = errors.New("not running")

// ask asks the process that runs a trigger.
func ask(ctx context.Context, dir, name string) (s trigger.Status, err error) {
	client := http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", socketPath(dir, name))
		}}}
	defer client.CloseIdleConnections()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://trigger/status", nil)
	if err != nil {
		return s, err
	}
	resp, err := client.Do(req)
	if err != nil {
		return s, fmt.Errorf("%w: %w", errNotRunning, err)
	}
	defer resp.Body.Close()
	return s, json.NewDecoder(io.LimitReader(resp.Body, 1<<20)).Decode(&s)
}
