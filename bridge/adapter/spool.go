package adapter

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/fsnotify/fsnotify"

	"thread/bridge/trigger"
	"thread/internal/durable"
)

func init() {
	source := func(s *Settings) (trigger.Source, error) {
		if dir := s.Text("dir"); dir != "" {
			return &spool{dir: dir}, nil
		}
		return trigger.NewMock(), nil
	}
	Register(Spec{Type: "mock", Summary: "messages in memory or in a directory, for trying things out", Caps: trigger.MockCaps, Source: source,
		Keys: []Key{{Name: "dir", Help: "Messages are files in this directory, so that other processes can send them; acknowledged ones are removed."}}})
}

// spool is a mock queue in a directory: a file a message, in the order of their
// names. It outlives the process, as a broker does.
type spool struct {
	dir string

	mu   sync.Mutex
	w    *fsnotify.Watcher
	held map[string]bool // files that were given out
}

// spooled is the content of a file.
type spooled struct {
	ID      string            `json:"id"`
	Key     string            `json:"key,omitempty"`
	Body    []byte            `json:"body"`
	Headers map[string]string `json:"headers,omitempty"`
	Reason  *trigger.Reason   `json:"reason,omitempty"` // in the dead letter queue
}

// Spool puts a message into the directory. The file appears whole, and is durable then.
func Spool(dir string, m *trigger.Message, r *trigger.Reason) error {
	b, err := json.Marshal(spooled{m.ID, m.Key, m.Body, m.Headers, r})
	if err != nil {
		return err
	}
	if err := durable.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	f, err := os.CreateTemp(dir, ".new-*")
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	if err = errors.Join(err, f.Sync(), f.Close()); err == nil {
		var renamed bool
		renamed, err = durable.Rename(f.Name(), filepath.Join(dir, fmt.Sprintf("%020d-%s.json", time.Now().UnixNano(), filepath.Base(f.Name())[5:])), os.Rename)
		if renamed && errors.Is(err, os.ErrNotExist) {
			return nil // a consumer was quicker: it has acknowledged the message
		}
	}
	if err != nil {
		_ = os.Remove(f.Name())
	}
	return err
}

// Connect implements trigger.Source.
func (s *spool) Connect(context.Context, trigger.State) error {
	if err := os.MkdirAll(s.dir, 0o700); err != nil {
		return err
	}
	w, err := fsnotify.NewWatcher()
	if err != nil {
		return err
	}
	if err = w.Add(s.dir); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.w, s.held = w, map[string]bool{}
	return nil
}

// Consume implements trigger.Source.
func (s *spool) Consume(ctx context.Context, most int) ([]trigger.Message, error) {
	s.mu.Lock()
	w := s.w
	s.mu.Unlock()
	if w == nil {
		return nil, errors.New("not connected")
	}
	for {
		ms, err := s.take(most)
		if len(ms) > 0 || err != nil {
			return ms, err
		}
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case _, ok := <-w.Events:
			if !ok {
				return nil, errors.New("closed")
			}
		case _, ok := <-w.Errors:
			if !ok {
				return nil, errors.New("closed")
			}
		}
	}
}

func (s *spool) take(most int) (ms []trigger.Message, err error) {
	entries, err := os.ReadDir(s.dir) // sorted
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range entries {
		name := e.Name()
		if s.held[name] || !strings.HasSuffix(name, ".json") || len(ms) >= most {
			continue
		}
		b, err := os.ReadFile(filepath.Join(s.dir, name))
		if errors.Is(err, os.ErrNotExist) {
			continue // another consumer was quicker
		}
		if err != nil {
			return nil, err
		}
		m := trigger.Message{ID: name, Handle: name}
		var f spooled
		if err := json.Unmarshal(b, &f); err != nil {
			m.Bad, m.Body = "not a file of the mock queue: "+err.Error(), b
		} else {
			m.ID, m.Key, m.Body, m.Headers = f.ID, f.Key, f.Body, f.Headers
		}
		if m.ID == "" {
			m.ID = name
		}
		s.held[name] = true
		ms = append(ms, m)
	}
	return ms, nil
}

// Ack implements trigger.Source.
func (s *spool) Ack(_ context.Context, ms []trigger.Message) (err error) {
	for i := range ms {
		if name, ok := ms[i].Handle.(string); ok {
			if e := os.Remove(filepath.Join(s.dir, name)); e != nil && !errors.Is(e, os.ErrNotExist) {
				err = e
				continue
			}
			s.mu.Lock()
			delete(s.held, name)
			s.mu.Unlock()
		}
	}
	return err
}

// Nack implements trigger.Source.
func (s *spool) Nack(ctx context.Context, m trigger.Message, requeue bool) error {
	if !requeue {
		return s.Ack(ctx, []trigger.Message{m})
	}
	// A copy, behind the others: its file tells Consume.
	if err := Spool(s.dir, &m, nil); err != nil {
		return err
	}
	return s.Ack(ctx, []trigger.Message{m})
}

// SendToDLQ implements trigger.Source: the directory dlq within.
func (s *spool) SendToDLQ(_ context.Context, m trigger.Message, r trigger.Reason) error {
	m.Headers = DLQHeaders(&m, &r)
	return Spool(filepath.Join(s.dir, "dlq"), &m, &r)
}

// Health implements trigger.Source.
func (s *spool) Health(context.Context) trigger.Health {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.w == nil {
		return trigger.Health{Detail: "not connected"}
	}
	return trigger.Health{OK: true}
}

// Lag implements trigger.Source.
func (s *spool) Lag(context.Context) (int64, error) {
	entries, err := os.ReadDir(s.dir)
	entries = slices.DeleteFunc(entries, func(e os.DirEntry) bool { return !strings.HasSuffix(e.Name(), ".json") })
	return int64(len(entries)), err
}

// Capabilities implements trigger.Source.
func (s *spool) Capabilities() trigger.Caps { return trigger.MockCaps }

// Close implements trigger.Source.
func (s *spool) Close() error {
	s.mu.Lock()
	w := s.w
	s.w = nil
	s.mu.Unlock()
	if w == nil {
		return nil
	}
	return w.Close()
}
