package lock

import (
	"context"
	"path/filepath"
	"testing"
)

// BenchmarkLock opens, locks and closes a lock file that no process holds; with wait,
// under a context that could end.
func BenchmarkLock(b *testing.B) {
	path := filepath.Join(b.TempDir(), "x.lock")
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	for _, c := range []struct {
		name string
		take func() (*File, error)
	}{
		{"try", func() (*File, error) { return Try(path, Exclusive) }},
		{"wait", func() (*File, error) { return Open(ctx, path, Exclusive) }},
		{"shared", func() (*File, error) { return Try(path, Shared) }},
	} {
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				l, err := c.take()
				if err != nil {
					b.Fatal(err)
				}
				if err := l.Close(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkHandOver is a lock that goes from one waiter to the next.
func BenchmarkHandOver(b *testing.B) {
	path := filepath.Join(b.TempDir(), "x.lock")
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			l, err := Open(context.Background(), path, Exclusive)
			if err != nil {
				b.Error(err)
				return
			}
			if err := l.Close(); err != nil {
				b.Error(err)
				return
			}
		}
	})
}
