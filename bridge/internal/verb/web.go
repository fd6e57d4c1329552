package verb

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"time"

	"thread/bridge/trigger"
	"thread/internal/socket"
)

// service is what answers about a process.
type service struct {
	status  func(context.Context) (body any, healthy bool)
	metrics func(io.Writer) error // nil: there is no /metrics
}

func (s service) handler() http.Handler {
	mux := http.NewServeMux()
	answer := func(healthz bool) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			body, healthy := s.status(r.Context())
			w.Header().Set("Content-Type", "application/json")
			if healthz && !healthy {
				w.WriteHeader(http.StatusServiceUnavailable)
			}
			_ = json.NewEncoder(w).Encode(body) // who asked may be gone
		}
	}
	mux.HandleFunc("GET /status", answer(false))
	mux.HandleFunc("GET /healthz", answer(true))
	if s.metrics != nil {
		mux.HandleFunc("GET /metrics", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
			_ = s.metrics(w)
		})
	}
	return mux
}

// aboutTrigger answers about a trigger.
func aboutTrigger(tr *trigger.Trigger, metrics bool) service {
	s := service{status: func(ctx context.Context) (any, bool) {
		s := tr.Health(ctx)
		return s, s.Status == healthy
	}}
	if metrics {
		s.metrics = func(w io.Writer) error {
			_, err := tr.Metrics().WriteTo(w)
			return err
		}
	}
	return s
}

const healthy = "healthy"

// aboutPublisher answers about one publisher.
func aboutPublisher(p *trigger.Publisher) service {
	return service{status: func(ctx context.Context) (any, bool) {
		s := p.Health(ctx)
		return s, s.Status == healthy
	}}
}

// aboutPublishers answers about all publishers of a process.
func aboutPublishers(list []*trigger.Publisher) service {
	return service{
		status: func(ctx context.Context) (any, bool) {
			all := struct {
				Status     string                  `json:"status"`
				Publishers []trigger.PublishStatus `json:"publishers"`
			}{Status: healthy}
			for _, p := range list {
				s := p.Health(ctx)
				if all.Publishers = append(all.Publishers, s); s.Status != healthy {
					all.Status = s.Status
				}
			}
			return all, all.Status == healthy
		},
		metrics: func(w io.Writer) error { return trigger.WritePublishMetrics(w, list) },
	}
}

// web is where a process answers: at a socket in the thread for the other verbs, and
// where --listen says.
type web struct{ servers []*http.Server }

// maxSocketName bounds the part of a socket's name that is the trigger's: an address
// holds 107 bytes, some of them for the directory.
const maxSocketName = 40

// socketOf returns the directory and name of the socket of a trigger or publisher.
func socketOf(dir, kind, name string) (run, socket string) {
	if len(name) > maxSocketName {
		sum := sha256.Sum256([]byte(name))
		name = hex.EncodeToString(sum[:maxSocketName/2])
	}
	return filepath.Join(dir, "run"), kind + "-" + name + ".sock"
}

// own answers at the socket of a trigger or publisher. One that cannot be made is a
// warning: messages are stored without it.
func (w *web) own(dir, kind, name string, s service, log *slog.Logger) {
	l, err := socket.Replace(socketOf(dir, kind, name)) // the lock says that no other process uses it
	if err != nil {
		log.Warn("status and health cannot be asked for", "error", err)
		return
	}
	w.serve(l, s)
}

// at answers at an address, "" for none.
func (w *web) at(address string, s service) error {
	if address == "" {
		return nil
	}
	l, err := listenAt(address)
	if err == nil {
		w.serve(l, s)
	}
	return err
}

func listenAt(address string) (net.Listener, error) {
	path, ok := strings.CutPrefix(address, "unix:")
	if !ok {
		return net.Listen("tcp", address)
	}
	l, err := socket.Listen(path)
	switch {
	case errors.Is(err, socket.ErrPlace):
		return nil, err
	case err != nil:
		return nil, fmt.Errorf("cannot listen on %s: %w", address, err)
	}
	return l, nil
}

func (w *web) serve(l net.Listener, s service) {
	server := &http.Server{Handler: s.handler(), ReadHeaderTimeout: 10 * time.Second}
	w.servers = append(w.servers, server)
	go func() { _ = server.Serve(l) }() // until it is closed
}

func (w *web) close() {
	for _, s := range w.servers {
		s.Close()
	}
}

// stuckAfter is how old a beat may be until the process counts as hanging: its steps are
// tried again within 30 s.
const stuckAfter = time.Minute

// untilAlive returns when all beats are recent, or when ctx ends: the watchdog of the
// service manager is not fed meanwhile.
func untilAlive(ctx context.Context, every time.Duration, beats ...func() time.Time) {
	for _, beat := range beats {
		for time.Since(beat()) > stuckAfter {
			select {
			case <-ctx.Done():
				return
			case <-time.After(every):
			}
		}
	}
}

// errNotRunning says that nothing answers at the socket of a trigger.
var errNotRunning = errors.New("not running")

// ask asks the process that runs a trigger or publisher.
func ask[S trigger.Status | trigger.PublishStatus](ctx context.Context, dir, kind, name string) (s S, err error) {
	client := http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{
		DialContext: func(context.Context, string, string) (net.Conn, error) {
			return socket.Dial(socketOf(dir, kind, name))
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
