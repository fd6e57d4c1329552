package fsck

import (
	"context"
	"path/filepath"
	"testing"

	"thread/engine"
	"thread/event"
	"thread/internal/progress"
)

// TestProgress: a long job says how far it is, up to all of it, never back or beyond.
func TestProgress(t *testing.T) {
	const n = 300
	dir := filepath.Join(t.TempDir(), "t")
	if _, err := engine.Init(dir); err != nil {
		t.Fatal(err)
	}
	th, err := engine.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer th.Close()
	for range n {
		if _, err := th.Push(ctx, event.Draft{Source: "s", Type: "t", Content: "c"}); err != nil {
			t.Fatal(err)
		}
	}
	keep := int64(n / 2)
	for _, job := range []struct {
		name  string
		run   func(ctx context.Context) error
		parts map[string]int64 // and what is done of each in the end
	}{
		{"check", func(ctx context.Context) error { _, err := Check(ctx, th); return err },
			map[string]int64{"checking events": n, "comparing lines": n, "hashing events": n}},
		{"repair", func(ctx context.Context) error { _, err := Repair(ctx, dir, dir+".new"); return err },
			map[string]int64{"reading events": n - 1, "saving events": n - 1}},
		{"compact", func(ctx context.Context) error { _, err := th.Compact(ctx); return err }, map[string]int64{"copying events": n}},
		{"prune", func(ctx context.Context) error {
			_, err := th.Prune(ctx, engine.Retention{KeepLast: &keep})
			return err
		}, map[string]int64{"copying events": keep}},
		{"compact after prune", func(ctx context.Context) error { _, err := th.Compact(ctx); return err }, map[string]int64{"copying events": keep}},
	} {
		seen := map[string]int64{}
		err := job.run(progress.With(ctx, func(what string, done, total int64) {
			if done < seen[what] || total > 0 && done > total {
				t.Errorf("%s: %s %d of %d after %d", job.name, what, done, total, seen[what])
			}
			seen[what] = done
		}))
		if err != nil {
			t.Fatal(job.name, err)
		}
		for what, want := range job.parts {
			if seen[what] != want {
				t.Errorf("%s: %s ended at %d, want %d", job.name, what, seen[what], want)
			}
		}
	}
}
