package backup

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"thread/engine"
	"thread/event"
	"thread/internal/store"
	"thread/internal/store/bolt"
)

// change writes of everything that a thread keeps, and drops some of it.
func change(t *testing.T, th *engine.Thread, r *rand.Rand, n int) {
	t.Helper()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	ds := make([]event.Draft, 1+r.IntN(1500))
	for i := range ds {
		ds[i] = event.Draft{Source: fmt.Sprint("s", r.IntN(400)), Type: fmt.Sprint("t", n), Content: strings.Repeat("x", r.IntN(300))}
		if r.IntN(50) == 0 {
			ds[i].Content = strings.Repeat("long ", r.IntN(9000))
		}
		if r.IntN(9) == 0 {
			ds[i].DedupeKey, ds[i].DedupeWindow = fmt.Sprint("key ", n, " ", i), time.Hour
		}
	}
	_, err := th.PushBatch(t.Context(), ds)
	must(err)
	c := fmt.Sprint("c", r.IntN(4))
	if err := th.Subscribe(t.Context(), engine.Subscription{Consumer: c, Handler: "true"}); err != nil {
		must(th.Unsubscribe(t.Context(), c))
		must(th.Subscribe(t.Context(), engine.Subscription{Consumer: c, Handler: fmt.Sprint("echo ", n)}))
	}
	feed := th.Feed(c, engine.Policy{Limit: 1, MaxAttempts: 2})
	var result *engine.Result
	for range 4 {
		_, err := feed.Next(t.Context(), result)
		must(err)
		result = &engine.Result{Verdict: engine.Rejected, ExitCode: 65}
	}
	must(th.Update(t.Context(), func(tx *engine.Tx) error {
		table, err := tx.Records("mine")
		for i := 0; i < 200 && err == nil; i++ {
			key := fmt.Appendf(nil, "%d", r.IntN(1000))
			if err = table.Put(key, fmt.Appendf(nil, "%d of %d", i, n)); err == nil && i%3 == 0 {
				err = table.Delete(fmt.Appendf(nil, "%d", r.IntN(1000)))
			}
		}
		return err
	}))
}

func snapshotOf(t *testing.T, dir string) store.Snapshot {
	t.Helper()
	th, err := engine.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer th.Close()
	s, err := store.TakeSnapshot(t.Context(), th.Store().(*bolt.Store))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestIncremental: a backup that continues the one before is what one that is made
// again is, whatever was done between them.
func TestIncremental(t *testing.T) {
	for seed := range uint64(3) {
		base := t.TempDir()
		dir, to := filepath.Join(base, "thread"), filepath.Join(base, "backups")
		th, err := engine.Init(dir)
		if err != nil {
			t.Fatal(err)
		}
		if f, err := os.Open(filepath.Join(dir, bolt.DatabaseName)); err != nil {
			t.Fatal(err)
		} else if id, err := Identity(f); err != nil || id == "" {
			t.Skipf("files cannot be told apart here: %v", err)
		} else {
			f.Close()
		}
		r := rand.New(rand.NewPCG(seed, 23))
		var last Done
		for n := range 8 {
			change(t, th, r, n)
			d, err := Create(t.Context(), dir, to, 3)
			if err != nil {
				t.Fatal(err)
			}
			if d.Copied != d.Events-last.Events || d.Digest != digest(t, dir) {
				t.Fatalf("%+v after %+v", d, last)
			}
			if is, want := snapshotOf(t, d.Dir), snapshotOf(t, dir); !reflect.DeepEqual(is, want) {
				t.Fatalf("seed %d, backup %d: %+v, want %+v", seed, n, is, want)
			}
			last = d
		}
	}
}

// TestMadeAnew: what the backup before has is not taken where it is perhaps no part of
// the thread, or damaged.
func TestMadeAnew(t *testing.T) {
	for name, spoil := range map[string]func(dir, last string) error{
		"compacted": func(dir, _ string) error {
			th, err := engine.Open(dir)
			if err == nil {
				_, err = th.Compact(t.Context())
			}
			return err
		},
		"the backup was pushed to": func(_, last string) error {
			th, err := engine.Open(last)
			if err == nil {
				_, err = th.Push(t.Context(), event.Draft{Source: "s", Type: "t", Content: "not of the thread"})
			}
			return err
		},
		"the backup is damaged": func(_, last string) error {
			path := filepath.Join(last, bolt.DatabaseName)
			b, err := os.ReadFile(path)
			for i := 4 * 4096; i < min(len(b), 40*4096); i += 100 {
				b[i] ^= 0x55
			}
			if err == nil {
				err = os.WriteFile(path, b, 0o600)
			}
			return err
		},
		"no note": func(_, last string) error { return os.Remove(filepath.Join(last, momentName)) },
		"an older state of the same file": func(dir, _ string) error {
			path := filepath.Join(dir, bolt.DatabaseName)
			other := filepath.Join(t.TempDir(), "other")
			th, err := engine.Init(other)
			if err == nil {
				_, err = th.Push(t.Context(), event.Draft{Source: "s", Type: "t", Content: "another thread"})
			}
			if err != nil {
				return err
			}
			b, err := os.ReadFile(filepath.Join(other, bolt.DatabaseName))
			if err == nil {
				err = errors.Join(os.WriteFile(path, b, 0o600), os.Remove(filepath.Join(dir, bolt.JournalName))) // as cp does
			}
			if b, err2 := os.ReadFile(filepath.Join(other, bolt.JournalName)); err2 == nil && err == nil {
				err = os.WriteFile(filepath.Join(dir, bolt.JournalName), b, 0o600)
			}
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			base := t.TempDir()
			dir, to := filepath.Join(base, "thread"), filepath.Join(base, "backups")
			th, err := engine.Init(dir)
			if err != nil {
				t.Fatal(err)
			}
			r := rand.New(rand.NewPCG(1, 23))
			for n := range 3 {
				change(t, th, r, n)
			}
			last, err := Create(t.Context(), dir, to, 0)
			if err == nil {
				err = spoil(dir, last.Dir)
			}
			if err != nil {
				t.Fatal(err)
			}
			d, err := Create(t.Context(), dir, to, 0)
			if err != nil || d.Copied != d.Events || d.Digest != digest(t, dir) {
				t.Errorf("%+v, %v, want digest %s", d, err, digest(t, dir))
			}
		})
	}
}

// BenchmarkPushBeside measures how long a push waits at the most, alone with its folds and
// next to what rewrites or copies the thread again and again.
func BenchmarkPushBeside(b *testing.B) {
	for name, beside := range map[string]func(ctx context.Context, th *engine.Thread, to string) error{
		"folds": func(ctx context.Context, _ *engine.Thread, _ string) error { <-ctx.Done(); return nil },
		"compact": func(ctx context.Context, th *engine.Thread, _ string) error {
			_, err := th.Compact(ctx)
			return err
		},
		"prune": func(ctx context.Context, th *engine.Thread, _ string) error {
			keep := int64(besideEvents)
			_, err := th.Prune(ctx, engine.Retention{KeepLast: &keep})
			return err
		},
		"backup": func(ctx context.Context, th *engine.Thread, to string) error {
			_, err := Create(ctx, th.Dir(), to, 2)
			return err
		},
	} {
		b.Run(name, func(b *testing.B) { pushBeside(b, beside) })
	}
}

const besideEvents = 100_000

func pushBeside(b *testing.B, beside func(ctx context.Context, th *engine.Thread, to string) error) {
	th, err := engine.Init(filepath.Join(b.TempDir(), "thread"))
	if err != nil {
		b.Fatal(err)
	}
	defer th.Close()
	d := event.Draft{Source: "s", Type: "t", Content: strings.Repeat("x", 200)}
	if _, err := th.PushBatch(b.Context(), slices.Repeat([]event.Draft{d}, besideEvents)); err != nil {
		b.Fatal(err)
	}
	to := b.TempDir()
	ctx, cancel := context.WithCancel(b.Context())
	rounds, ended := 0, make(chan error, 1)
	go func() {
		var err error
		for ; ctx.Err() == nil && err == nil; rounds++ {
			err = beside(ctx, th, to)
		}
		if ctx.Err() != nil {
			err = nil
		}
		ended <- err
	}()
	var took []time.Duration
	for b.Loop() {
		start := time.Now()
		if _, err := th.Push(b.Context(), d); err != nil {
			b.Fatal(err)
		}
		took = append(took, time.Since(start))
	}
	cancel()
	if err := <-ended; err != nil {
		b.Fatal(err)
	}
	slices.Sort(took)
	ms := func(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
	b.ReportMetric(ms(took[len(took)*999/1000]), "p99.9-ms")
	b.ReportMetric(ms(took[len(took)-1]), "max-ms")
	b.ReportMetric(float64(rounds), "rounds")
}
