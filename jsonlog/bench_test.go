package jsonlog

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"thread/event"
)

// BenchmarkAppend is what a push adds for events.jsonl: open, compare with the
// database, one line, close.
func BenchmarkAppend(b *testing.B) {
	dir := b.TempDir()
	var p Position
	e := event.Event{CreatedAt: "2026-03-18T10:30:00.123Z", Source: "self", Type: "message", Content: "hello"}
	missing := func(after int64, _ func(*event.Event) error) error {
		b.Fatal("events after ", after, " are missing")
		return nil
	}
	for b.Loop() {
		file, err := OpenEvents(dir)
		if err != nil {
			b.Fatal(err)
		}
		if p, err = file.Prepare(p, e.ID, time.Now(), missing); err != nil {
			b.Fatal(err)
		}
		e.ID++
		line := append(e.AppendJSON(nil), '\n')
		p.Add(e.ID, len(line))
		if err := errors.Join(file.AppendLine(line), file.Close()); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkLog(b *testing.B) {
	dir := b.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "run"), 0o700); err != nil {
		b.Fatal(err)
	}
	l := OpenLog(dir)
	for b.Loop() {
		if err := l.Info("push: source=%s type=%s id=%d", "self", "message", 7); err != nil {
			b.Fatal(err)
		}
	}
}
