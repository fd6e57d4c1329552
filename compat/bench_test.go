//go:build (linux && (386 || amd64 || arm || arm64 || loong64 || ppc64le || riscv64 || s390x)) || (darwin && (amd64 || arm64)) || (freebsd && (amd64 || arm64)) || (netbsd && amd64) || (openbsd && (amd64 || arm64))

package compat

import (
	"context"
	"fmt"
	"testing"
)

// BenchmarkRoundTrip exports a thread to a SQLite directory and imports that.
func BenchmarkRoundTrip(b *testing.B) {
	const events = 20_000
	ctx := context.Background()
	th := newThread(b, events)
	dir := b.TempDir()
	exported := 0
	perEvent := func(b *testing.B) {
		b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*events), "ns/event")
	}
	b.Run("export", func(b *testing.B) {
		for b.Loop() {
			exported++
			if _, err := Export(ctx, th, fmt.Sprint(dir, "/export", exported), nil); err != nil {
				b.Fatal(err)
			}
		}
		perEvent(b)
	})
	imported := 0
	b.Run("import", func(b *testing.B) {
		for b.Loop() {
			imported++
			if _, err := Import(ctx, fmt.Sprint(dir, "/export1"), ImportOptions{To: fmt.Sprint(dir, "/import", imported)}); err != nil {
				b.Fatal(err)
			}
		}
		perEvent(b)
	})
}

// BenchmarkMirror brings a copy up to date that one event is missing in.
func BenchmarkMirror(b *testing.B) {
	th := newThread(b, 1000)
	path := b.TempDir() + "/mirror.db"
	syncOnce(b, th, path)
	for b.Loop() {
		b.StopTimer()
		push(b, th, 1)
		b.StartTimer()
		if n, rebuilt := syncOnce(b, th, path); n != 1 || rebuilt != "" {
			b.Fatal(n, rebuilt)
		}
	}
}
