//go:build !nosqlite && ((linux && (386 || amd64 || arm || arm64 || loong64 || ppc64le || riscv64 || s390x)) || (darwin && (amd64 || arm64)) || (freebsd && (amd64 || arm64)) || (netbsd && amd64) || (openbsd && (amd64 || arm64)) || (windows && (386 || amd64 || arm64)))

package compat

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"thread/engine"
	"thread/event"
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

// checkMirror compares the rows of a mirror with those of a fresh export.
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
		if _, err := th.Pop(ctx, c, 2, 1); err != nil {
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
		"no header":    overwrite(0, 4096),
		"pages":        overwrite(8192, 40000),
		"cut":          func(path string) { os.Truncate(path, 30000) },
		"text":         func(path string) { os.WriteFile(path, []byte(strings.Repeat("not a database\n", 100)), 0o600) },
		"lost events":  run(`DELETE FROM events WHERE id > 100`),
		"other thread": run(`UPDATE events SET content = 'y' WHERE id = 500`),
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
		})
	}
}

// TestMirrorRefusesOthers: a SQLite file that is no mirror stays as it is.
func TestMirrorRefusesOthers(t *testing.T) {
	th := newThread(t, 5)
	path := t.TempDir() + "/precious.db"
	db, err := sql.Open("sqlite", "file:"+path)
	if err != nil {
		t.Fatal(err)
	}
	mustExec(t, db, `CREATE TABLE precious (x)`)
	db.Close()
	before, _ := os.ReadFile(path)
	if _, err := OpenMirror(context.Background(), th, path); !errors.Is(err, errForeign) {
		t.Errorf("%v", err)
	}
	if after, _ := os.ReadFile(path); string(after) != string(before) {
		t.Error("the file changed")
	}
}

// TestFollow: every push reaches the mirror without another call.
func TestFollow(t *testing.T) {
	th := newThread(t, 10)
	path := th.Dir() + "/m.db" // in the thread's directory: its own writes must not wake it
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
