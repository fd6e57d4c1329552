package engine

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"thread/event"
)

// TestRotatedForBytes: events.jsonl is rotated when it holds more than 16 MiB, and each
// event has one line.
func TestRotatedForBytes(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "t")
	th, err := Init(dir)
	noError(t, err)
	defer th.Close()
	const events = 40
	for range events {
		_, err := th.Push(ctx, event.Draft{Source: "s", Type: "t", Content: strings.Repeat("x", 1<<20)})
		noError(t, err)
	}
	files, err := filepath.Glob(filepath.Join(dir, "events*.jsonl"))
	noError(t, err)
	lines := 0
	for _, name := range files {
		text, err := os.ReadFile(name)
		noError(t, err)
		if lines += bytes.Count(text, []byte("\n")); len(text) > 18<<20 {
			t.Errorf("%s has %d bytes", name, len(text))
		}
	}
	if len(files) != 3 || lines != events {
		t.Errorf("%d lines in %q", lines, files)
	}
	r, err := Check(ctx, th)
	noError(t, err)
	if len(r.Faults) > 0 {
		t.Errorf("%+v", r.Faults)
	}
}
