//go:build !windows

package main

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"thread/compat"
	"thread/history"
	addresses "thread/internal/address"
	"thread/internal/historymirror"
	"thread/net/internal/pgtest"
	opener "thread/net/servers"
)

// rowsOf returns all rows of a mirror in SQLite as texts.
func rowsOf(t *testing.T, file string) (rows []string) {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+file+"?mode=ro")
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	for i := range historymirror.Tables {
		table := &historymirror.Tables[i]
		var names []string
		for _, c := range table.Columns() {
			names = append(names, "quote("+c.Name+")")
		}
		found, err := db.Query("SELECT '" + table.Name + " ' || " + strings.Join(names, "||' '||") + " FROM " + table.Name)
		if err != nil {
			t.Fatal(err)
		}
		for found.Next() {
			var row string
			if err := found.Scan(&row); err != nil {
				t.Fatal(err)
			}
			rows = append(rows, row)
		}
		if err := found.Err(); err != nil {
			t.Fatal(err)
		}
	}
	slices.Sort(rows)
	return rows
}

// sameAsNew fails unless the mirror has the rows of one that is made now.
func (h *host) sameAsNew(file string) {
	h.t.Helper()
	fresh := filepath.Join(h.t.TempDir(), "fresh.db")
	h.run("history", "mirror", "--to", fresh)
	want, got := rowsOf(h.t, fresh), rowsOf(h.t, file)
	if !slices.Equal(want, got) {
		h.t.Errorf("%s has %d rows, a new mirror %d:\n%s\nwant:\n%s", file, len(got), len(want), strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// position returns up to which history event the mirror is, and whether it is idle there.
func position(file string) (last int64, idle bool) {
	states, err := compat.MirrorStates(context.Background(), file)
	if err != nil || len(states) != 1 {
		return 0, false // it is being made
	}
	return states[0].LastEventID, states[0].Status == "idle" && !states[0].ErrorMessage.Valid
}

// atAddress opens the history of the fleet in this process.
func (h *host) atAddress() *history.History {
	h.t.Helper()
	h.t.Setenv("XDG_STATE_HOME", h.t.TempDir())
	addresses.SetDriver(opener.Servers{})
	h.t.Cleanup(func() { addresses.SetDriver(nil) })
	own, err := history.Open(context.Background(), h.url)
	if err != nil {
		h.t.Fatal(err)
	}
	h.t.Cleanup(func() { _ = own.Close() })
	return own
}

// TestMirrorsOfHosts: two hosts keep one file, and each a separate one, while others write a
// history that was empty, and after all connections were cut. Each file has every row.
func TestMirrorsOfHosts(t *testing.T) {
	h := newFleet(t)
	dir := t.TempDir()
	file := func(name string) string { return filepath.Join(dir, name) }
	var mirrors []*exec.Cmd
	for _, host := range []string{"a", "b"} {
		for _, to := range []string{"shared.db", host + ".db"} {
			cmd := at(file(host), h.command("history", "mirror", "--follow", "--to", file(to)))
			h.start(cmd)
			mirrors = append(mirrors, cmd)
		}
	}
	h.run("session", "start", "--id", "S")
	for i := range 20 {
		if i == 10 {
			h.cut()
		}
		h.run("message", "add", "--session", "S", "--role", "user", "--content", fmt.Sprint("message ", i))
	}
	head, err := h.atAddress().Head(t.Context())
	if err != nil || head < 21 {
		t.Fatalf("the history has %d events: %v", head, err)
	}
	files := []string{file("shared.db"), file("a.db"), file("b.db")}
	for _, f := range files {
		for deadline := time.Now().Add(patience); ; {
			last, idle := position(f)
			if last == head && idle {
				break
			}
			if time.Now().After(deadline) {
				t.Fatalf("%s is at event %d of %d", f, last, head)
			}
		}
	}
	for _, cmd := range mirrors {
		_ = cmd.Process.Signal(syscall.SIGINT)
		if err := cmd.Wait(); err != nil {
			t.Errorf("%q: %v", cmd.Args, err)
		}
	}
	for _, f := range files {
		h.sameAsNew(f)
	}
}

// TestMirrorKilled: a mirror that was killed continues on another host where it was, and begins
// again when the history was pruned beyond that.
func TestMirrorKilled(t *testing.T) {
	h := newFleet(t)
	const sessions, each = 12, 500
	own := h.atAddress()
	for s := range sessions {
		rows := []history.Row{&history.SessionRow{ID: fmt.Sprint("S", s)}}
		for i := range each {
			rows = append(rows, &history.MessageRow{ID: fmt.Sprint("m", s, "-", i), SessionID: fmt.Sprint("S", s), Role: "user", Content: []byte(`"hello"`)})
		}
		if stored, err := own.PutNew(t.Context(), rows); err != nil || stored != each+1 {
			t.Fatalf("%d rows: %v", stored, err)
		}
	}
	if stored, err := own.PutNew(t.Context(), []history.Row{&history.SessionRow{ID: "S0"}}); err != nil || stored != 0 {
		t.Fatalf("a row that is there: %d, %v", stored, err)
	}
	dir := t.TempDir()
	file := filepath.Join(dir, "copy.db")
	mirror := func(host string) *exec.Cmd {
		return at(filepath.Join(dir, host), h.command("history", "mirror", "--to", file))
	}
	first := mirror("a")
	h.start(first)
	for deadline := time.Now().Add(patience); ; {
		if last, _ := position(file); last > 0 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("nothing is mirrored")
		}
	}
	_ = first.Process.Kill()
	_ = first.Wait()
	before, _ := position(file)
	copied := func() int64 {
		t.Helper()
		out, err := mirror("b").Output()
		m := regexp.MustCompile(`^Mirrored (\d+) history events to `).FindSubmatch(out)
		if err != nil || m == nil {
			t.Fatalf("%v: %s", err, out)
		}
		n, _ := strconv.ParseInt(string(m[1]), 10, 64)
		return n
	}
	head, err := own.Head(t.Context())
	if err != nil || before == 0 || before == head {
		t.Fatalf("not killed in the middle: at event %d of %d, %v", before, head, err)
	}
	if n := copied(); n != head-before {
		t.Errorf("the other host has copied %d of %d history events", n, head-before)
	}
	h.sameAsNew(file)
	h.run("message", "add", "--session", "S1", "--role", "user", "--content", "later")
	if n := copied(); n != 1 {
		t.Errorf("one more message is %d history events", n)
	}
	h.run("message", "add", "--session", "S1", "--role", "user", "--content", "pruned")
	h.run("history", "prune", "--keep-last", "0", "--force")
	if n := copied(); n < sessions*each {
		t.Errorf("after a prune beyond the mirror it has copied %d history events", n)
	}
	h.sameAsNew(file)
}

// TestSameMirrors: history mirror and history import print, return and write at an address what they
// do in a directory.
func TestSameMirrors(t *testing.T) {
	t.Setenv("THREAD_DISPATCH", "none")
	t.Setenv("XDG_STATE_HOME", t.TempDir())
	base := pgtest.Schema(t)
	type place struct{ thread, other, files string }
	in := t.TempDir()
	places := []place{{filepath.Join(in, "inbox"), filepath.Join(in, "other"), t.TempDir()}, {base + "inbox", base + "other", t.TempDir()}}
	for _, p := range places {
		if err := os.WriteFile(filepath.Join(p.files, "out.txt"), []byte("out"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	random := regexp.MustCompile(`(workspace|message|run_step)_[0-9a-z]{20,}`)
	do := func(p place, line string) answer {
		r := strings.NewReplacer("@D", p.files, "@U", p.other)
		a := answerAt(t, p.thread, "", strings.Fields(r.Replace(line)))
		back := strings.NewReplacer(p.files, "@D", p.other, "@U", "%2Fhistory", "/history")
		a.out, a.errors = random.ReplaceAllString(back.Replace(a.out), "…"), random.ReplaceAllString(back.Replace(a.errors), "…")
		return a
	}
	for _, c := range []struct {
		code int
		line string
		want string // of what is printed
	}{
		{0, "init @T", ""},
		{0, "init @U", ""},
		{1, "history mirror --thread @T", "no workspace has a place for a mirror"},
		{0, "history mirror --thread @T --to @D/empty.db", "Mirrored 0 history events"},
		{0, "session start --thread @T --id S --subject user:7", ""},
		{0, "message add --thread @T --session S --role user --content hello", ""},
		{0, "run exec --thread @T --id R --session S -- true", ""},
		{0, "workspace set --thread @T --root-path @D", ""},
		{0, "history mirror --thread @T", "/.openharness/data/history.db"},
		{0, "history mirror --thread @T --json", `"history_events":0}`},
		{0, "history mirror --thread @T --state", "idle"},
		{0, "history audit mirror --thread @T", "  idle  "},
		{0, "history mirror --thread @T --to @D/copy.db", "Mirrored 9 history events to @D/copy.db"},
		{0, "history mirror --thread @T --to @D/copy.db --json", `"history_events":0}`},
		{0, "history mirror --thread @T --to @D/empty.db", "Mirrored 9 "},
		{2, "history mirror --thread @T --to=", "--to is empty"},
		{1, "history mirror --thread @T --to @D/out.txt", "not a mirror"},
		{2, "history mirror --thread @T --state --follow", "exclude each other"},
		{0, "workspace set --thread @T talk --kind chat", ""},
		{1, "history mirror --thread @T --to @D/copy.db --workspace talk", "kind chat"},
		{0, "workspace set --thread @T away --root-path @D/missing", ""},
		{1, "history mirror --thread @T", "is not a directory"},
		{1, "history mirror --thread @U --to @D/copy.db", "is of the history of"},
		{0, "history import --thread @U @D/copy.db", "Imported 4 rows; 0 were there already"},
		{0, "history import --thread @U --json @D/copy.db", `{"imported":0,"already_there":4,"left_out_count":0}`},
		{0, "message list --thread @U --session S", "hello"},
		{0, "run show --thread @U R --json", `"completed"`},
		{1, "history mirror --thread @U --to @D/copy.db", "is of the history of"},
		{0, "message add --thread @U --session S --role user --content own", ""},
		{0, "history import --thread @U @D/copy.db", "Imported 0 rows; 4 were there already"},
		{0, "message list --thread @U --session S", "own"},
		{1, "history import --thread @U @D/out.txt", "is not a SQLite file"},
		{2, "history import --thread @U --on-bad-row maybe @D/copy.db", "use fail or skip"},
		{1, "history import --thread @U @D/none.db", "is not a SQLite file"},
		{0, "mirror --thread @T --to @D/events.db", "Mirrored 0 events"},
		{0, "push --thread @T --source s --type t --content c", ""},
		{0, "mirror --thread @T --to @D/events.db --json", ""},
		{1, "mirror --thread @U --to @D/events.db", "of another thread"},
	} {
		want, got := do(places[0], c.line), do(places[1], c.line)
		if got != want || got.code != c.code || !strings.Contains(got.out+got.errors, c.want) {
			t.Errorf("thread %s at an address: %d %s%s\nin a directory: %d %s%s", c.line, got.code, got.out, got.errors, want.code, want.out, want.errors)
		}
	}
}

// samePages fails unless a mirror reads the same of two histories.
func samePages(t *testing.T, one, other string) {
	t.Helper()
	addresses.SetDriver(opener.Servers{})
	defer addresses.SetDriver(nil)
	ctx := t.Context()
	var of [2]*history.History
	for i, at := range []string{one, other} {
		h, err := history.Open(ctx, at, history.LeaveRuns())
		if err != nil {
			t.Fatal(err)
		}
		defer h.Close()
		of[i] = h
	}
	head, err := of[0].Head(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for after := range head + 2 {
		for _, events := range []int{0, 1, 3, 500} {
			want, err := of[0].Page(ctx, after, events, 1<<20)
			got, errOther := of[1].Page(ctx, after, events, 1<<20)
			if err != nil || errOther != nil || !reflect.DeepEqual(got, want) {
				t.Fatalf("%d after %d: %+v %v\nwant: %+v %v", events, after, got, errOther, want, err)
			}
			if next, err := of[1].Page(ctx, got.Last, 0, 0); err != nil || next.At != got.End {
				t.Fatalf("%d after %d end at %q, and the next ones begin at %q, %v", events, after, got.End, next.At, err)
			}
		}
	}
}
