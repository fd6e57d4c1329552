//go:build (linux && (386 || amd64 || arm || arm64 || loong64 || ppc64le || riscv64 || s390x)) || (darwin && (amd64 || arm64)) || (freebsd && (amd64 || arm64)) || (netbsd && amd64) || (openbsd && (amd64 || arm64))

package compat

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"testing"

	"pgregory.net/rapid"

	"thread/internal/historymirror"
	"thread/internal/historymirror/mirrortest"
)

// TestHistoryMirrorEqualsTruth is H-08: after any interleaving of writes with the mirror,
// and after any end of it, wherever that came, the next sync makes it equal the history.
// Ends are those between two transactions and in the middle of one, as a process that
// was killed leaves the files; also, the mirror is removed, damaged, set back, kept
// open by two at once, and the log is pruned beyond it. More with -rapid.checks 1000.
func TestHistoryMirrorEqualsTruth(t *testing.T) {
	ctx := context.Background()
	base := t.TempDir()
	quickly(t, 3) // each takes a good hundred synced commits
	rapid.Check(t, func(t *rapid.T) {
		dir, err := os.MkdirTemp(base, "")
		must(t, err)
		defer os.RemoveAll(dir)
		h := newHistory(t, dir+"/inbox")
		path := dir + "/history.db"
		generation := 0
		open := func(t *rapid.T) *HistoryMirror {
			m, err := OpenHistoryMirror(ctx, h, path, HistoryMirrorOptions{})
			must(t, err)
			m.m.Page = rapid.IntRange(1, 6).Draw(t, "page")
			return m
		}
		// killed continues with what is on the disk of an open mirror.
		killed := func(t *rapid.T) {
			generation++
			to := fmt.Sprintf("%s/history%d.db", dir, generation)
			for _, suffix := range []string{"", "-wal"} {
				if err := copyFile(to+suffix, path+suffix); err != nil && !errors.Is(err, os.ErrNotExist) {
					t.Fatal(err)
				}
			}
			path = to
		}
		actions, has := mirrortest.Writes(h)
		maps.Copy(actions, mirrortest.Two(func(t *rapid.T) (mirrortest.Mirror, *historymirror.Mirror) { m := open(t); return m, m.m }))
		maps.Copy(actions, map[string]func(*rapid.T){
			"sync": func(t *rapid.T) {
				m := open(t)
				_, err := m.Sync(ctx)
				must(t, errors.Join(err, m.Close()))
			},
			"killed between two transactions": func(t *rapid.T) {
				m := open(t)
				for range rapid.IntRange(0, 3).Draw(t, "pages") {
					must(t, mirrortest.OnePage(m.m, m.m.Write))
				}
				killed(t)
				must(t, m.Close())
			},
			"killed in a transaction": func(t *rapid.T) {
				m := open(t)
				must(t, m.exec(ctx, "BEGIN IMMEDIATE"))
				must(t, mirrortest.OnePage(m.m, func(ctx context.Context, b *historymirror.Batch) error {
					statements, err := m.m.Statements(b)
					must(t, err)
					for _, s := range statements[:rapid.IntRange(0, len(statements)).Draw(t, "statements")] {
						must(t, m.exec(ctx, s.SQL, s.Args...))
					}
					return nil
				}))
				killed(t)
				must(t, errors.Join(m.exec(ctx, "ROLLBACK"), m.Close()))
			},
			"removed": func(t *rapid.T) {
				if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
					t.Fatal(err)
				}
			},
			"damaged": func(t *rapid.T) {
				if b, err := os.ReadFile(path); err == nil && len(b) > 0 {
					b = b[:rapid.IntRange(0, len(b)-1).Draw(t, "bytes")]
					must(t, os.WriteFile(path, b, 0o600))
				}
			},
			"set back": func(t *rapid.T) {
				if _, err := os.Stat(path); err == nil {
					m := open(t)
					must(t, m.exec(ctx, "UPDATE mirror_state SET last_event_id = max(0, last_event_id - ?)", rapid.IntRange(0, 20).Draw(t, "by")))
					must(t, m.Close())
				}
			},
		})
		t.Repeat(actions)
		m := open(t)
		_, err = m.Sync(ctx)
		must(t, errors.Join(err, m.Close()))
		sameAsTruth(t, h, path, func(id string) bool { return has(t, id) })
	})
}
