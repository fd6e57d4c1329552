//go:build (linux && (386 || amd64 || arm || arm64 || loong64 || ppc64le || riscv64 || s390x)) || (darwin && (amd64 || arm64)) || (freebsd && (amd64 || arm64)) || (netbsd && amd64) || (openbsd && (amd64 || arm64))

package compat

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"thread/engine"
	"thread/event"
	"thread/internal/target"
)

func newThread(t testing.TB, events int) *engine.Thread {
	t.Helper()
	th, err := engine.Init(t.TempDir() + "/ours")
	if err != nil {
		t.Fatal(err)
	}
	push(t, th, events)
	return th
}

func push(t testing.TB, th *engine.Thread, n int) {
	t.Helper()
	if _, err := th.PushBatch(context.Background(), repeat(event.Draft{Source: "s", Type: "t", Content: strings.Repeat("x", 100)}, n)); err != nil {
		t.Fatal(err)
	}
}

// sync opens the mirror, syncs once and closes it.
func syncOnce(t testing.TB, th *engine.Thread, path string) (n int64, rebuilt string) {
	t.Helper()
	ctx := context.Background()
	m, err := OpenMirror(ctx, th, path)
	if err != nil {
		t.Fatal(err)
	}
	n, err = m.Sync(ctx, nil)
	if err := errors.Join(err, m.Close()); err != nil {
		t.Fatal(err)
	}
	return n, m.Rebuilt
}

// checkMirror compares the rows of a mirror with the rows of a fresh export.
func checkMirror(t testing.TB, th *engine.Thread, path string) {
	t.Helper()
	dir := t.TempDir()
	if _, err := Export(context.Background(), th, dir+"/export", nil); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(dir+"/mirror", 0o700); err != nil {
		t.Fatal(err)
	}
	for _, suffix := range []string{"", "-wal"} {
		if err := copyFile(dir+"/mirror/events.db"+suffix, path+suffix); err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Fatal(err)
		}
	}
	db, err := sql.Open("sqlite", "file:"+dir+"/mirror/events.db")
	if err != nil {
		t.Fatal(err)
	}
	var last, newest int64
	var at, status string
	var message sql.NullString
	err = db.QueryRow(`SELECT last_event_id, (SELECT max(id) FROM events), last_synced_at, status, error_message FROM mirror_state`).Scan(&last, &newest, &at, &status, &message)
	if err != nil || last != newest || len(at) != 24 || status != "ok" || message.Valid {
		t.Errorf("mirror_state: %d of %d, %s, %s, %v, %v", last, newest, at, status, message, err)
	}
	mustExec(t, db, `DROP TABLE mirror_state`)
	db.Close()
	sameContent(t, dir+"/export", dir+"/mirror")
}

func TestMirror(t *testing.T) {
	ctx := context.Background()
	th := newThread(t, 2500)
	path := t.TempDir() + "/m.db"
	if n, _ := syncOnce(t, th, path); n != 2500 {
		t.Errorf("first sync copied %d", n)
	}
	checkMirror(t, th, path)
	if n, rebuilt := syncOnce(t, th, path); n != 0 || rebuilt != "" {
		t.Errorf("second sync copied %d, rebuilt: %s", n, rebuilt)
	}
	push(t, th, 3)
	for _, c := range []string{"a", "b"} {
		if err := th.Subscribe(ctx, engine.Subscription{Consumer: c, Handler: "h", AckOnSuccess: c == "b"}); err != nil {
			t.Fatal(err)
		}
		if _, err := th.Pop(ctx, c, engine.PopQuery{LastAcked: 2, Limit: 1}); err != nil {
			t.Fatal(err)
		}
	}
	if n, _ := syncOnce(t, th, path); n != 3 {
		t.Errorf("third sync copied %d", n)
	}
	checkMirror(t, th, path)
	if err := th.Unsubscribe(ctx, "a"); err != nil {
		t.Fatal(err)
	}
	syncOnce(t, th, path)
	checkMirror(t, th, path)
}

// TestMirrorInterrupted: a sync that ends after any of its transactions is taken
// up by the next one.
func TestMirrorInterrupted(t *testing.T) {
	th := newThread(t, 3500)
	path := t.TempDir() + "/m.db"
	for i := int64(1); i <= 4; i++ {
		ctx, cancel := context.WithCancel(context.Background())
		m, err := OpenMirror(ctx, th, path)
		if err != nil {
			t.Fatal(err)
		}
		n, err := m.Sync(ctx, func(int64, int64) { cancel() })
		if !errors.Is(err, context.Canceled) || n != min(1000, 3500-1000*(i-1)) {
			t.Errorf("sync %d copied %d, %v", i, n, err)
		}
		if err := m.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if n, rebuilt := syncOnce(t, th, path); n != 0 || rebuilt != "" {
		t.Errorf("%d events were left, rebuilt: %s", n, rebuilt)
	}
	checkMirror(t, th, path)
}

func TestMirrorRebuilds(t *testing.T) {
	overwrite := func(at int64, n int) func(string) {
		return func(path string) {
			f, err := os.OpenFile(path, os.O_RDWR, 0)
			if err != nil {
				t.Fatal(err)
			}
			f.WriteAt([]byte(strings.Repeat("\xa5", n)), at)
			f.Close()
		}
	}
	run := func(query string) func(string) {
		return func(path string) {
			db, err := sql.Open("sqlite", "file:"+path)
			if err != nil {
				t.Fatal(err)
			}
			mustExec(t, db, query)
			db.Close()
		}
	}
	for name, damage := range map[string]func(string){
		"missing":      func(path string) { os.Remove(path) },
		"pages":        overwrite(8192, 40000),
		"cut":          func(path string) { os.Truncate(path, 30000) },
		"lost events":  run(`DELETE FROM events WHERE id > 100`),
		"header alone": func(path string) { os.WriteFile(path, []byte(sqliteHeader+strings.Repeat("\xa5", 5000)), 0o600) },
		"no state":     run(`DELETE FROM mirror_state`),
	} {
		t.Run(name, func(t *testing.T) {
			th := newThread(t, 500)
			path := t.TempDir() + "/m.db"
			syncOnce(t, th, path)
			damage(path)
			n, rebuilt := syncOnce(t, th, path)
			if n != 500 || rebuilt == "" != (name == "missing") {
				t.Errorf("copied %d, rebuilt: %q", n, rebuilt)
			}
			checkMirror(t, th, path)
			if rebuilt == "" {
				return
			}
			// Another time, the one set aside before stays.
			first, err := os.ReadFile(path + ".damaged")
			if err != nil {
				t.Fatal(err)
			}
			push(t, th, 1)
			syncOnce(t, th, path)
			run(`DELETE FROM events WHERE id > 3`)(path)
			second, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			syncOnce(t, th, path)
			if again, _ := os.ReadFile(path + ".damaged"); string(again) != string(first) {
				t.Error("the copy that was set aside first was overwritten")
			}
			if aside, err := os.ReadFile(path + ".damaged-2"); err != nil || string(aside) != string(second) {
				t.Errorf("the second one: %d bytes, want %d: %v", len(aside), len(second), err)
			}
			// A third time, it takes the place of the second one.
			push(t, th, 1)
			syncOnce(t, th, path)
			run(`DELETE FROM events WHERE id > 4`)(path)
			third, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			syncOnce(t, th, path)
			if aside, err := os.ReadFile(path + ".damaged-2"); err != nil || string(aside) != string(third) {
				t.Errorf("the third one: %d bytes, want %d: %v", len(aside), len(third), err)
			}
			if names, err := filepath.Glob(path + ".damaged-[3-9]*"); err != nil || len(names) > 0 {
				t.Errorf("%q are left, %v", names, err)
			}
		})
	}
}

// tree returns what is in a directory: names, kinds and contents.
func tree(t testing.TB, dir string) string {
	t.Helper()
	var b strings.Builder
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		text := ""
		if d.Type().IsRegular() {
			data, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			text = string(data)
		}
		fmt.Fprintf(&b, "%s %v %q\n", path, d.Type(), text)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// TestMirrorRefusesOthers: what is not a mirror of the thread stays as it is, and
// nothing is put next to it.
func TestMirrorRefusesOthers(t *testing.T) {
	ctx := context.Background()
	th := newThread(t, 5)
	other, err := engine.Init(t.TempDir() + "/other")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := other.Push(ctx, event.Draft{Source: "other", Type: "t"}); err != nil {
		t.Fatal(err)
	}
	file := func(path, text string) {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for name, make := range map[string]func(path string){
		"sqlite": func(path string) {
			db, err := sql.Open("sqlite", "file:"+path)
			if err != nil {
				t.Fatal(err)
			}
			mustExec(t, db, `CREATE TABLE precious (x)`)
			db.Close()
		},
		"text":        func(path string) { file(path, "notes\n") },
		"empty":       func(path string) { file(path, "") },
		"no header":   func(path string) { syncOnce(t, th, path); overwriteFile(t, path, 0, 4096) },
		"directory":   func(path string) { os.Mkdir(path, 0o700) },
		"dangling":    func(path string) { os.Symlink("nothing", path) },
		"link":        func(path string) { file(path+".txt", "notes"); os.Symlink(path+".txt", path) },
		"stray wal":   func(path string) { file(path+"-wal", "notes") },
		"link as wal": func(path string) { syncOnce(t, th, path); os.Symlink(path+".txt", path+"-wal") },
		"other thread, ahead": func(path string) {
			more := newThread(t, 9)
			syncOnce(t, more, path)
		},
		"other thread":        func(path string) { syncOnce(t, other, path) },
		"other, empty thread": func(path string) { syncOnce(t, newThread(t, 0), path) },
		"other thread, pruned": func(path string) {
			more := newThread(t, 3)
			syncOnce(t, more, path)
			db, err := sql.Open("sqlite", "file:"+path)
			if err != nil {
				t.Fatal(err)
			}
			mustExec(t, db, `UPDATE mirror_state SET thread = 'another'`)
			db.Close()
			keep := int64(1)
			if _, err := th.Prune(ctx, engine.Retention{KeepLast: &keep, Force: true}); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			path := dir + "/precious.db"
			make(path)
			before := tree(t, dir)
			if _, err := OpenMirror(ctx, th, path); !errors.Is(err, ErrNotMirror) {
				t.Errorf("%v", err)
			}
			if after := tree(t, dir); after != before {
				t.Errorf("before:\n%.2000s\nafter:\n%.2000s", before, after)
			}
		})
	}
}

func overwriteFile(t testing.TB, path string, at int64, n int) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err == nil {
		_, err = f.WriteAt([]byte(strings.Repeat("\xa5", n)), at)
		err = errors.Join(err, f.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
}

// TestMirrorRefusesThreads: no file of any thread is in danger, live ones of this
// program or of the TypeScript tool.
func TestMirrorRefusesThreads(t *testing.T) {
	th := newThread(t, 5)
	dir := t.TempDir()
	db := createSQLite(t, dir+"/theirs")
	db.Close()
	overwriteFile(t, dir+"/theirs/events.db", 3000, 3000) // damaged, and none of ours to set aside
	if err := os.Symlink(th.Dir(), dir+"/link"); err != nil {
		t.Skip(err)
	}
	for _, thread := range []string{th.Dir(), dir + "/theirs"} {
		before := tree(t, thread)
		for _, name := range []string{"events.db", "events.jsonl", "new.db", "run/x", "logs/thread.log", "deep/er.db"} {
			if _, err := OpenMirror(context.Background(), th, thread+"/"+name); !errors.Is(err, target.ErrInThread) {
				t.Errorf("%s: %v", name, err)
			}
		}
		if after := tree(t, thread); after != before {
			t.Errorf("%s has changed", thread)
		}
	}
	if _, err := OpenMirror(context.Background(), th, dir+"/link/m.db"); !errors.Is(err, target.ErrInThread) {
		t.Errorf("by way of a link: %v", err)
	}
	push(t, th, 1)
}

// TestMirrorPruned: what is pruned from the thread stays in the mirror.
func TestMirrorPruned(t *testing.T) {
	th := newThread(t, 5)
	path := t.TempDir() + "/m.db"
	syncOnce(t, th, path)
	push(t, th, 5)
	keep := int64(2)
	if _, err := th.Prune(context.Background(), engine.Retention{KeepLast: &keep, Force: true}); err != nil {
		t.Fatal(err)
	}
	if n, rebuilt := syncOnce(t, th, path); n != 2 || rebuilt != "" {
		t.Errorf("copied %d, rebuilt: %q", n, rebuilt)
	}
	if n, rebuilt := syncOnce(t, th, path); n != 0 || rebuilt != "" {
		t.Errorf("then copied %d, rebuilt: %q", n, rebuilt)
	}
}

// TestMirrorsAtOnce: several processes may copy into one file, which has each event
// once and is whole after it.
func TestMirrorsAtOnce(t *testing.T) {
	th := newThread(t, 4000)
	path := t.TempDir() + "/m.db"
	var all sync.WaitGroup
	var total atomic.Int64
	for range 4 {
		all.Go(func() {
			m, err := OpenMirror(t.Context(), th, path)
			if err != nil {
				t.Error(err)
				return
			}
			defer m.Close()
			n, err := m.Sync(t.Context(), nil)
			if err != nil || m.Rebuilt != "" {
				t.Errorf("%v, rebuilt: %s", err, m.Rebuilt)
			}
			total.Add(n)
		})
	}
	all.Wait()
	if total.Load() != 4000 {
		t.Errorf("copied %d events", total.Load())
	}
	checkMirror(t, th, path)
	if got := names(t, filepath.Dir(path)); got != "m.db" {
		t.Errorf("there are %s", got)
	}
}

// TestMirrorOlder: a mirror of before the column thread is taken.
func TestMirrorOlder(t *testing.T) {
	th := newThread(t, 5)
	path := t.TempDir() + "/m.db"
	syncOnce(t, th, path)
	db, err := sql.Open("sqlite", "file:"+path)
	if err != nil {
		t.Fatal(err)
	}
	mustExec(t, db, `ALTER TABLE mirror_state DROP COLUMN thread`)
	db.Close()
	push(t, th, 1)
	if n, rebuilt := syncOnce(t, th, path); n != 1 || rebuilt != "" {
		t.Errorf("copied %d, rebuilt: %q", n, rebuilt)
	}
	checkMirror(t, th, path)
}

// TestFollow: every push reaches the mirror without another call.
func TestFollow(t *testing.T) {
	th := newThread(t, 10)
	path := t.TempDir() + "/m.db"
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	m, err := OpenMirror(ctx, th, path)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	rounds := make(chan int64)
	ended := make(chan error, 1)
	go func() {
		ended <- m.Follow(ctx, func(n int64, err error) error {
			rounds <- n
			return err
		})
	}()
	if n := <-rounds; n != 10 {
		t.Errorf("first round copied %d", n)
	}
	for i := range 3 {
		push(t, th, 1+i)
		for n := 0; n < 1+i; {
			n += int(<-rounds)
		}
	}
	cancel()
	for {
		select {
		case <-rounds:
			continue
		case err := <-ended:
			if err != nil {
				t.Error(err)
			}
		}
		break
	}
	if err := m.Close(); err != nil {
		t.Fatal(err)
	}
	checkMirror(t, th, path)
}

// TestMirrorSaysFailed: what keeps the thread from being read stands in
// mirror_state, and goes away with the next round.
func TestMirrorSaysFailed(t *testing.T) {
	ctx := context.Background()
	th := newThread(t, 5)
	path := t.TempDir() + "/m.db"
	m, err := OpenMirror(ctx, th, path)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	away := th.Dir() + "/away"
	if err := os.Rename(th.Dir()+"/events.db", away); err != nil {
		t.Fatal(err)
	}
	if _, err := m.Sync(ctx, nil); !errors.Is(err, engine.ErrNotThread) {
		t.Errorf("sync without a thread: %v", err)
	}
	var status string
	var message sql.NullString
	state := func() string {
		if err := m.conn.QueryRowContext(ctx, `SELECT status, error_message FROM mirror_state`).Scan(&status, &message); err != nil {
			t.Fatal(err)
		}
		return fmt.Sprint(status, message.Valid)
	}
	if got := state(); got != "failedtrue" {
		t.Errorf("state %s", got)
	}
	if err := os.Rename(away, th.Dir()+"/events.db"); err != nil {
		t.Fatal(err)
	}
	if _, err := m.Sync(ctx, nil); err != nil {
		t.Fatal(err)
	}
	if got := state(); got != "okfalse" {
		t.Errorf("state %s", got)
	}
}
