package lane

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
)

var background = context.Background()

// bubble runs f as a subtest with a fake clock. The bubble fails if f leaves a
// goroutine behind.
func bubble(t *testing.T, name string, f func(*testing.T)) {
	t.Helper()
	t.Run(name, func(t *testing.T) { synctest.Test(t, f) })
}

// gate is a task that runs until it is opened.
type gate chan struct{}

func (g gate) run(context.Context) error { <-g; return nil }
func (g gate) open()                     { close(g) }

func nothing(context.Context) error { return nil }

// submit fails the test when the task is refused.
func submit(t *testing.T, q *Queue, p Path, run func(context.Context) error, opts ...Option) *Task {
	t.Helper()
	task, err := q.Submit(background, p, run, opts...)
	if err != nil {
		t.Fatalf("Submit: %v", err)
	}
	return task
}

func equal[T comparable](t *testing.T, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Errorf("%s: got %v, want %v", what, got, want)
	}
}

func wantErr(t *testing.T, what string, got, want error) {
	t.Helper()
	if !errors.Is(got, want) {
		t.Errorf("%s: got error %v, want %v", what, got, want)
	}
}

func isDone(task *Task) bool {
	select {
	case <-task.Done():
		return true
	default:
		return false
	}
}

// journal collects what tasks and callbacks report.
type journal[T any] struct {
	mu  sync.Mutex
	all []T
}

func (j *journal[T]) add(x T) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.all = append(j.all, x)
}

func (j *journal[T]) get() []T {
	j.mu.Lock()
	defer j.mu.Unlock()
	return slices.Clone(j.all)
}

// logBook is a logger's output, to be read while others write.
type logBook struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *logBook) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *logBook) logger() *slog.Logger {
	return slog.New(slog.NewTextHandler(b, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

// lines returns the lines that contain all of the words.
func (b *logBook) lines(words ...string) (found []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
next:
	for line := range strings.Lines(b.buf.String()) {
		for _, w := range words {
			if !strings.Contains(line, w) {
				continue next
			}
		}
		found = append(found, line)
	}
	return found
}
