//go:build (linux && (386 || amd64 || arm || arm64 || loong64 || ppc64le || riscv64 || s390x)) || (darwin && (amd64 || arm64)) || (freebsd && (amd64 || arm64)) || (netbsd && amd64) || (openbsd && (amd64 || arm64))

package compat

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"go.etcd.io/bbolt"
	"pgregory.net/rapid"

	"thread/engine"
	"thread/event"
)

func mustDigest(t rapid.TB, dir string) [32]byte {
	t.Helper()
	th, err := engine.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	sum, err := th.Digest(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	return sum
}

// TestRoundTripOurs: ours → SQLite → ours changes nothing, and what SQLite has no
// place for comes back too.
func TestRoundTripOurs(t *testing.T) {
	quickly(t, 40)
	root := t.TempDir()
	n := 0
	rapid.Check(t, func(rt *rapid.T) {
		n++
		base := filepath.Join(root, fmt.Sprint(n))
		defer os.RemoveAll(base)
		ctx := context.Background()
		th, err := engine.Init(base + "/a")
		if err != nil {
			rt.Fatal(err)
		}
		word := rapid.StringN(1, 20, 60).Filter(utf8.ValidString)
		var drafts []event.Draft
		for range rapid.IntRange(0, 40).Draw(rt, "events") {
			d := event.Draft{Source: word.Draw(rt, "source"), Type: word.Draw(rt, "type"), Content: rapid.String().Filter(utf8.ValidString).Draw(rt, "content")}
			if rapid.Bool().Draw(rt, "has subtype") {
				d.Subtype = event.Text(rapid.SampledFrom([]string{"", "x", "\x00"}).Draw(rt, "subtype"))
			}
			drafts = append(drafts, d)
		}
		if _, err := th.PushBatch(ctx, drafts); err != nil {
			rt.Fatal(err)
		}
		for i := range rapid.IntRange(0, 5).Draw(rt, "consumers") {
			s := engine.Subscription{Consumer: fmt.Sprint(word.Draw(rt, "consumer"), i), Handler: word.Draw(rt, "handler"),
				Timeout: time.Duration(rapid.IntRange(0, 2).Draw(rt, "timeout")) * time.Second, AckOnSuccess: rapid.Bool().Draw(rt, "ack")}
			if err := th.Subscribe(ctx, s); err != nil {
				rt.Fatal(err)
			}
			if rapid.Bool().Draw(rt, "pops") {
				if _, err := th.Pop(ctx, s.Consumer, engine.PopQuery{LastAcked: rapid.Int64Range(0, 60).Draw(rt, "acked"), Limit: 1}); err != nil {
					rt.Fatal(err)
				}
			}
			if rapid.IntRange(0, 3).Draw(rt, "leaves") == 0 {
				if err := th.Unsubscribe(ctx, s.Consumer); err != nil {
					rt.Fatal(err)
				}
			}
		}
		if _, err := th.PushBatch(ctx, drafts); err != nil { // acks ahead of their time are now of the past
			rt.Fatal(err)
		}
		key := []byte(word.Draw(rt, "key"))
		// Tables within tables, as an earlier program could have them.
		db, err := bbolt.Open(base+"/a/events.db", 0o600, nil)
		if err != nil {
			rt.Fatal(err)
		}
		err = errors.Join(db.Update(func(tx *bbolt.Tx) error {
			b, err := tx.CreateBucketIfNotExists([]byte("outbox"))
			if err != nil {
				return err
			}
			inner, err := b.CreateBucketIfNotExists([]byte("a/b%"))
			if err != nil {
				return err
			}
			return errors.Join(b.SetSequence(7), inner.Put(key, []byte{}), inner.Put([]byte{0xff}, []byte("v")))
		}), db.Close())
		if err != nil {
			rt.Fatal(err)
		}
		if _, err := Export(ctx, th, base+"/b", nil); err != nil {
			rt.Fatal(err)
		}
		r, err := Import(ctx, base+"/b", ImportOptions{To: base + "/c"})
		if err != nil {
			rt.Fatal(err, r.Faults)
		}
		if mustDigest(rt, base+"/a") != mustDigest(rt, base+"/c") {
			rt.Fatal("the digest changed")
		}
		again, err := engine.Open(base + "/c")
		if err != nil {
			rt.Fatal(err)
		}
		if a, c := extrasOf(rt, th), extrasOf(rt, again); a != c {
			rt.Fatalf("buckets %s became %s", a, c)
		}
	})
}

// extrasOf describes the buckets of other packages.
func extrasOf(t rapid.TB, th *engine.Thread) string {
	s, err := snapshot(context.Background(), th)
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	for _, x := range s.Extras {
		if x.Bucket[0] != keptBucket {
			fmt.Fprintf(&b, "%q %q %q %d\n", x.Bucket, x.Key, x.Value, x.Sequence)
		}
	}
	return b.String()
}

// TestDigestTellsApart: the digest of the round trips is one that changes.
func TestDigestTellsApart(t *testing.T) {
	ctx := context.Background()
	th, err := engine.Init(t.TempDir() + "/a")
	if err != nil {
		t.Fatal(err)
	}
	seen := map[[32]byte]string{}
	look := func(after string) {
		t.Helper()
		sum, err := th.Digest(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if was, ok := seen[sum]; ok {
			t.Errorf("the same after %s and %s", was, after)
		}
		seen[sum] = after
	}
	look("init")
	steps := []struct {
		name string
		do   func() error
	}{
		{"push", func() error { _, err := th.Push(ctx, event.Draft{Source: "s", Type: "t"}); return err }},
		{"subscribe", func() error { return th.Subscribe(ctx, engine.Subscription{Consumer: "c", Handler: "h"}) }},
		{"pop", func() error { _, err := th.Pop(ctx, "c", engine.PopQuery{Limit: 1}); return err }},
		{"ack", func() error { return th.Ack(ctx, "c", 1) }},
		{"unsubscribe", func() error { return th.Unsubscribe(ctx, "c") }},
		{"options", func() error {
			return th.Subscribe(ctx, engine.Subscription{Consumer: "c", Handler: "h", AckOnSuccess: true})
		}},
	}
	for _, s := range steps {
		if err := s.do(); err != nil {
			t.Fatal(s.name, err)
		}
		look(s.name)
	}
}

// exported returns a thread with some events and a subscription, and its export.
func exported(t testing.TB) (*engine.Thread, string) {
	t.Helper()
	dir := t.TempDir()
	ctx := context.Background()
	th, err := engine.Init(dir + "/ours")
	if err != nil {
		t.Fatal(err)
	}
	for i := range 10 {
		d := event.Draft{Source: "external:telegram:x", Type: "message", Content: fmt.Sprint(i)}
		if i%3 == 0 {
			d = event.Draft{Source: "self", Type: "record", Subtype: event.Text("toolcall"), Content: fmt.Sprint(i)}
		}
		if _, err := th.Push(ctx, d); err != nil {
			t.Fatal(err)
		}
	}
	if err := th.Subscribe(ctx, engine.Subscription{Consumer: "inbox", Handler: "agent run"}); err != nil {
		t.Fatal(err)
	}
	if _, err := th.Pop(ctx, "inbox", engine.PopQuery{LastAcked: 4, Limit: 1}); err != nil {
		t.Fatal(err)
	}
	if _, err := Export(ctx, th, dir+"/sqlite", nil); err != nil {
		t.Fatal(err)
	}
	return th, dir + "/sqlite"
}

func TestExportLayout(t *testing.T) {
	th, dir := exported(t)
	if got := names(t, dir); got != "events.db events.jsonl logs run" {
		t.Errorf("the directory has %s", got)
	}
	lines, _ := os.ReadFile(dir + "/events.jsonl")
	ours, _ := os.ReadFile(th.Dir() + "/events.jsonl")
	if len(lines) == 0 || !bytes.Equal(lines, ours) {
		t.Errorf("events.jsonl:\n%s", lines)
	}
	db, err := sql.Open("sqlite", "file:"+dir+"/events.db")
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	for query, want := range map[string]string{
		`PRAGMA journal_mode`:             "wal",
		`PRAGMA integrity_check`:          "ok",
		`SELECT seq FROM sqlite_sequence`: "10",
		`SELECT count(*) FROM sqlite_schema WHERE name IN ('idx_events_source', 'idx_events_type')`: "2",
		`SELECT count(*) FROM sqlite_schema WHERE name = 'thread_extra'`:                            "0",
	} {
		var got string
		if err := db.QueryRow(query).Scan(&got); err != nil || got != want {
			t.Errorf("%s: %s, %v", query, got, err)
		}
	}
	if _, err := Export(context.Background(), th, dir, nil); !errors.Is(err, ErrNotEmpty) {
		t.Errorf("into a directory that is not empty: %v", err)
	}
	if _, err := Export(context.Background(), th, dir+"/events.db", nil); !errors.Is(err, engine.ErrNotDir) {
		t.Errorf("into a file: %v", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	_, err = Export(ctx, th, dir+"/../cut", func(int64, int64) { cancel() })
	if !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
	if got := names(t, dir+"/.."); got != "ours sqlite" {
		t.Errorf("a cancelled export left %s", got)
	}
}

// TestTypeScriptSQL runs the statements of the TypeScript tool on an export with
// the sqlite3 shell, as the TypeScript tool does.
func TestTypeScriptSQL(t *testing.T) {
	shell, err := exec.LookPath("sqlite3")
	if err != nil {
		t.Skip("no sqlite3 shell")
	}
	_, dir := exported(t)
	for _, c := range []struct{ sql, want string }{
		{`SELECT id, content FROM events WHERE id > 0 AND (source LIKE 'external:%' AND type = 'message') ORDER BY id ASC LIMIT 2`, "2|1\n3|2\n"},
		{`INSERT INTO events (source, type, subtype, content) VALUES ('self', 'record', NULL, 'new') RETURNING id`, "11\n"},
		{`SELECT length(created_at) FROM events WHERE id = 11`, "24\n"},
		{`SELECT consumer_id, handler_cmd, filter FROM subscriptions`, "inbox|agent run|\n"},
		{`SELECT last_acked_id FROM consumer_progress WHERE consumer_id = 'inbox'`, "4\n"},
		{`INSERT INTO consumer_progress (consumer_id, last_acked_id, updated_at) VALUES ('inbox', 6, 'now') ON CONFLICT(consumer_id) DO UPDATE SET last_acked_id = excluded.last_acked_id, updated_at = excluded.updated_at`, ""},
		{`SELECT 1 FROM events WHERE id > 6 AND (type = 'message') LIMIT 1`, "1\n"},
		{`SELECT 1 FROM events WHERE id > 11 LIMIT 1`, ""},
		{`INSERT INTO subscriptions VALUES ('b', 'true', 'type = ''message''')`, ""},
		{`DELETE FROM subscriptions WHERE consumer_id = 'inbox'`, ""},
		{`SELECT count(*) FROM events`, "11\n"},
	} {
		out, err := exec.Command(shell, "-batch", dir+"/events.db", c.sql).CombinedOutput()
		if err != nil || string(out) != c.want {
			t.Errorf("%s: %q, %v", c.sql, out, err)
		}
	}
	th, r := importTo(t, dir, t.TempDir()+"/back")
	info, err := th.Info(context.Background())
	if err != nil || r.Head != 11 || len(info.Subscriptions) != 1 || info.Subscriptions[0].Consumer != "b" {
		t.Errorf("back: %+v, %v", info, err)
	}
}

// TestExportWhilePushing: the export is the thread at one moment, and the pushes
// continue.
func TestExportWhilePushing(t *testing.T) {
	ctx := context.Background()
	dir := t.TempDir()
	th, err := engine.Init(dir + "/a")
	if err != nil {
		t.Fatal(err)
	}
	d := event.Draft{Source: "s", Type: "t", Content: strings.Repeat("x", 300)}
	if _, err := th.PushBatch(ctx, repeat(d, 20000)); err != nil {
		t.Fatal(err)
	}
	pushed := int64(20000)
	events, err := Export(ctx, th, dir+"/b", func(done, total int64) {
		if e, err := th.Push(ctx, d); err != nil {
			t.Error(err)
		} else {
			pushed = e.ID
		}
	})
	if err != nil || events != 20000 || pushed <= 20000 {
		t.Errorf("%d events exported, %d pushed: %v", events, pushed, err)
	}
	_, r := importTo(t, dir+"/b", dir+"/c")
	if r.Head != 20000 || r.LastID != 20000 {
		t.Errorf("%+v", r)
	}
	if lines, _ := os.ReadFile(dir + "/b/events.jsonl"); bytes.Count(lines, []byte("\n")) != 10000 || !bytes.HasPrefix(lines, []byte(`{"id":10001,`)) {
		t.Errorf("events.jsonl has %d lines", bytes.Count(lines, []byte("\n")))
	}
}

func repeat(d event.Draft, n int) []event.Draft {
	ds := make([]event.Draft, n)
	for i := range ds {
		ds[i] = d
	}
	return ds
}

func TestWriteEvents(t *testing.T) {
	ctx := context.Background()
	th, err := engine.Init(t.TempDir() + "/a")
	if err != nil {
		t.Fatal(err)
	}
	contents := []string{"", "plain", "a,b", "\"q\"", "two\nlines", "日本 \r"}
	for _, c := range contents {
		if _, err := th.Push(ctx, event.Draft{Source: "s", Type: "t", Subtype: event.Text(c), Content: c}); err != nil {
			t.Fatal(err)
		}
	}
	var b bytes.Buffer
	if n, err := WriteEvents(ctx, th, &b, CSV, nil); n != int64(len(contents)) || err != nil {
		t.Fatal(n, err)
	}
	if !strings.Contains(b.String(), `1,`) || !strings.Contains(b.String(), `,s,t,"",""`+"\r\n") {
		t.Errorf("CSV:\n%s", b.String())
	}
	rows, err := csv.NewReader(&b).ReadAll()
	if err != nil || len(rows) != len(contents)+1 {
		t.Fatal(rows, err)
	}
	for i, c := range contents {
		// encoding/csv reads CR LF inside quotes as LF; there is none here.
		if rows[i+1][5] != c || rows[i+1][4] != c {
			t.Errorf("row %q, wanted %q", rows[i+1], c)
		}
	}
	b.Reset()
	if _, err := WriteEvents(ctx, th, &b, JSONL, nil); err != nil {
		t.Fatal(err)
	}
	for i, line := range bytes.Split(bytes.TrimSpace(b.Bytes()), []byte("\n")) {
		var e struct{ Content string }
		if err := json.Unmarshal(line, &e); err != nil || e.Content != contents[i] {
			t.Errorf("%s: %v", line, err)
		}
	}
	if _, err := WriteEvents(ctx, th, &b, "xml", nil); err == nil {
		t.Error("format xml was accepted")
	}
}
