package fsck

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.etcd.io/bbolt"
	"thread/engine"

	"thread/event"
	"thread/internal/store/bolt"
	"thread/internal/store/bolt/disk"
	"thread/jsonlog"
)

// rotatedThread makes a thread with two rotated files and an events.jsonl. It
// returns their names.
func rotatedThread(t *testing.T) (dir string, names []string) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "inbox")
	th, err := engine.Init(dir)
	if err != nil {
		t.Fatal(err)
	}
	for n := range 3 {
		ds := make([]event.Draft, jsonlog.MaxLines+1)
		for i := range ds[:len(ds)-n/2*9000] {
			ds[i] = event.Draft{Source: "s", Type: "t", Content: fmt.Sprint("number ", i)}
		}
		if _, err := th.PushBatch(ctx, ds[:len(ds)-n/2*9000]); err != nil {
			t.Fatal(err)
		}
	}
	paths, err := lineFileNames(dir)
	if err != nil || len(paths) != 3 {
		t.Fatal(paths, err)
	}
	for _, p := range paths {
		names = append(names, filepath.Base(p))
	}
	return dir, names
}

func checkOf(t *testing.T, dir string) *Report {
	t.Helper()
	th, err := engine.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	r, err := Check(ctx, th)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func faultsOf(r *Report) (all []string) {
	for _, f := range r.Faults {
		all = append(all, f.Place+": "+f.What)
	}
	return all
}

// edit changes the lines of a file.
func edit(change func(lines [][]byte) [][]byte) func(path string) error {
	return func(path string) error {
		b, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		lines := slices.Collect(bytes.Lines(b))
		return os.WriteFile(path, bytes.Join(change(lines), nil), bolt.FileMode)
	}
}

// TestLineFaults spoils one line file at a time. Check names the file, the line and
// the event, FixLog writes what is spoiled again and keeps what stood there, and
// the other files stay as they are.
func TestLineFaults(t *testing.T) {
	base, names := rotatedThread(t)
	whole := allLines(t, base)
	inserted := func(at int, line string) func(string) error {
		return edit(func(l [][]byte) [][]byte { return slices.Insert(l, at, []byte(line)) })
	}
	cases := []struct {
		name string
		file int
		do   func(path string) error
		want []string // %[1]s … are the names
	}{
		{"gone", 0, os.Remove, []string{"%[2]s line 1: events 1 to 10001 have no line before it"}},
		{"the second gone", 1, os.Remove, []string{"%[3]s line 1: events 10002 to 20002 have no line before it"}},
		{"emptied", 1, func(p string) error { return os.Truncate(p, 0) },
			[]string{"%[2]s: holds no line", "%[3]s line 1: events 10002 to 20002 have no line before it"}},
		{"cut at a line", 0, edit(func(l [][]byte) [][]byte { return l[:9000] }),
			[]string{"%[2]s line 1: events 9001 to 10001 have no line before it"}},
		{"cut within a line", 0, edit(func(l [][]byte) [][]byte { l[9000] = l[9000][:20]; return l[:9001] }),
			[]string{"%[1]s line 9001: is not the line of an event", "%[2]s line 1: events 9001 to 10001 have no line before it"}},
		{"without its first lines", 0, edit(func(l [][]byte) [][]byte { return l[3:] }),
			[]string{"%[1]s line 1: events 1 to 3 have no line before it"}},
		{"without a line in the middle", 2, edit(func(l [][]byte) [][]byte { return slices.Delete(l, 499, 500) }),
			[]string{"%[3]s line 500: event 20502 has no line before it"}},
		{"garbage first", 0, inserted(0, strings.Repeat("\x00", 5<<20)+"\n"), []string{"%[1]s line 1: is not the line of an event"}},
		{"garbage without a newline first", 2, inserted(0, strings.Repeat("x", 5<<20)),
			[]string{"%[3]s line 1: is not the line of an event", "%[3]s line 2: event 20003 has no line before it"}},
		{"one letter", 1, edit(func(l [][]byte) [][]byte { l[41][len(l[41])-5] ^= 1; return l }), []string{"%[2]s line 42: differs from event 10043"}},
		{"a damaged id", 2, edit(func(l [][]byte) [][]byte { l[0] = bytes.Replace(l[0], []byte("20003"), []byte("20903"), 1); return l }),
			[]string{"%[3]s line 1: differs from event 20003"}},
		{"a longer line", 1, edit(func(l [][]byte) [][]byte {
			l[1] = append(l[1][:len(l[1])-1], bytes.Repeat([]byte{0}, 5<<20)...)
			l[1] = append(l[1], '\n')
			return l
		}), []string{"%[2]s line 2: differs from event 10003"}},
		{"twice", 1, edit(func(l [][]byte) [][]byte { return slices.Insert(l, 2, l[1]) }), []string{"%[2]s line 3: is of event 10003, after event 10003"}},
		{"an event that never was", 1, inserted(9, `{"id":99999,"created_at":"x"}`+"\n"), []string{"%[2]s line 10: differs from event 10011", "%[2]s line 11: is of event 10011, after event 10011"}},
		{"a named pipe", 0, func(p string) error { return errors2(os.Remove(p), mkfifo(p)) },
			[]string{"%[1]s: is not a regular file", "%[2]s line 1: events 1 to 10001 have no line before it"}},
		{"a directory", 2, func(p string) error { return errors2(os.Remove(p), os.Mkdir(p, 0o700)) },
			[]string{"%[3]s: is not a regular file", "%[3]s: events 20003 to 21003 have no line"}},
		{"a link", 1, func(p string) error { return errors2(os.Rename(p, p+".elsewhere"), os.Symlink(p+".elsewhere", p)) },
			[]string{"%[2]s: is not a regular file", "%[3]s line 1: events 10002 to 20002 have no line before it"}},
	}
	for _, c := range cases {
		t.Run(strings.ReplaceAll(c.name, " ", "_"), func(t *testing.T) {
			t.Parallel()
			dir := filepath.Join(t.TempDir(), "inbox")
			if err := os.CopyFS(dir, os.DirFS(base)); err != nil {
				t.Fatal(err)
			}
			if err := c.do(filepath.Join(dir, names[c.file])); errors.Is(err, errors.ErrUnsupported) {
				t.Skip(err)
			} else if err != nil {
				t.Fatal(err)
			}
			spoiled := filesOf(t, dir)
			var want []string
			for _, w := range c.want {
				want = append(want, strings.Split(fmt.Sprintf(w+"\n%[1]s%[2]s%[3]s", names[0], names[1], names[2]), "\n")[0])
			}
			r := checkOf(t, dir)
			if got := faultsOf(r); !slices.Equal(got, want) {
				t.Fatalf("found %q, want %q", got, want)
			}
			for _, f := range r.Faults {
				if !strings.HasPrefix(f.Place, f.File) || f.Line > 0 && f.Place != fmt.Sprintf("%s line %d", f.File, f.Line) {
					t.Errorf("%+v", f)
				}
			}
			th, err := engine.Open(dir)
			if err != nil {
				t.Fatal(err)
			}
			fixed, err := FixLog(ctx, th)
			if err != nil || len(fixed) == 0 {
				t.Fatal(fixed, err)
			}
			if got := faultsOf(checkOf(t, dir)); len(got) != 0 {
				t.Fatalf("after FixLog: %q", got)
			}
			if got := allLines(t, dir); got != whole {
				t.Error("the lines are not those of the events")
			}
			after := filesOf(t, dir)
			for name, was := range spoiled {
				if is, there := after[name]; !there || is != was {
					if aside, there := after[name+".bad"]; !there || aside != was {
						t.Errorf("%s is neither as it was nor set aside", name)
					}
				}
			}
			if _, err := th.Push(ctx, event.Draft{Source: "s", Type: "t", Content: "next"}); err != nil {
				t.Fatal(err)
			}
			if r := checkOf(t, dir); len(r.Faults)+len(r.Notes) != 0 {
				t.Errorf("after the next push: %+v %+v", r.Faults, r.Notes)
			}
			if fixed, err := FixLog(ctx, th); err != nil || len(fixed) != 0 {
				t.Errorf("nothing is to be fixed: %v %v", fixed, err)
			}
		})
	}
}

func errors2(a, b error) error {
	if a != nil {
		return a
	}
	return b
}

// filesOf returns the contents of the regular files in dir whose name has "events"
// in it and which hold lines, and the kinds of what else has that name.
func filesOf(t *testing.T, dir string) map[string]string {
	t.Helper()
	files := map[string]string{}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if !strings.Contains(e.Name(), ".jsonl") {
			continue
		}
		if !e.Type().IsRegular() {
			files[e.Name()] = e.Type().String()
			continue
		}
		b, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		files[e.Name()] = string(b)
	}
	return files
}

func allLines(t *testing.T, dir string) (all string) {
	t.Helper()
	paths, err := lineFileNames(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range paths {
		b, err := os.ReadFile(p)
		if err != nil && !os.IsNotExist(err) {
			t.Fatal(err)
		}
		all += string(b)
	}
	return all
}

// TestLinesThatAreNoFault: what is known to be missing, and what heals.
func TestLinesThatAreNoFault(t *testing.T) {
	push := func(t *testing.T, th *engine.Thread) {
		t.Helper()
		if _, err := th.Push(ctx, event.Draft{Source: "s", Type: "t", Content: "one more"}); err != nil {
			t.Fatal(err)
		}
	}
	sound := func(t *testing.T, dir string, notes int, lines int64) {
		t.Helper()
		r := checkOf(t, dir)
		if len(r.Faults) > 0 || len(r.Notes) != notes || r.Lines != lines {
			t.Errorf("%+v %+v, %d lines, want %d", r.Faults, r.Notes, r.Lines, lines)
		}
	}
	t.Run("pruned", func(t *testing.T) {
		dir, names := rotatedThread(t)
		th, err := engine.Open(dir)
		if err != nil {
			t.Fatal(err)
		}
		keep := int64(5000)
		if _, err := th.Prune(ctx, engine.Retention{KeepLast: &keep}); err != nil {
			t.Fatal(err)
		}
		sound(t, dir, 0, 5000) // the lines of the others are still there
		if err := os.Remove(filepath.Join(dir, names[0])); err != nil {
			t.Fatal(err)
		}
		sound(t, dir, 0, 5000) // and may go
		if err := os.Remove(filepath.Join(dir, names[1])); err != nil {
			t.Fatal(err)
		}
		if got := faultsOf(checkOf(t, dir)); len(got) != 1 || !strings.HasSuffix(got[0], "line 1: events 16004 to 20002 have no line before it") {
			t.Error(got)
		}
		none := int64(0)
		if _, err := th.Prune(ctx, engine.Retention{KeepLast: &none}); err != nil {
			t.Fatal(err)
		}
		sound(t, dir, 0, 0)
	})
	t.Run("restored", func(t *testing.T) {
		for _, was := range []string{"", "what another tool wrote\n{\"id\":1,\"created_at\":\"then\"}\n", "no newline", "{\"id\":99999999,\"created_at\":\"then\"}\n"} {
			dir := filepath.Join(t.TempDir(), "restored")
			if err := os.Mkdir(dir, 0o700); err != nil {
				t.Fatal(err)
			}
			if was != "" {
				if err := os.WriteFile(filepath.Join(dir, "events.jsonl"), []byte(was), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			r := start(t, dir)
			for i := range int64(10100) {
				if err := r.Event(&event.Event{ID: 2*i + 1, CreatedAt: "then", Source: "s", Type: "t"}); err != nil {
					t.Fatal(err)
				}
			}
			if err := errors2(r.Finish(0, 0), r.Publish()); err != nil {
				t.Fatal(err)
			}
			r.Close()
			lines := int64(10000)
			if was != "" {
				lines = 0
			}
			sound(t, dir, 0, lines)
			th, err := engine.Open(dir)
			if err != nil {
				t.Fatal(err)
			}
			for range 3 { // the second one rotates where there are lines
				push(t, th)
			}
			sound(t, dir, 0, lines+3)
			if was == "" {
				paths, _ := lineFileNames(dir)
				if err := edit(func(l [][]byte) [][]byte { return l[1:] })(paths[0]); err != nil {
					t.Fatal(err)
				}
				if got := faultsOf(checkOf(t, dir)); len(got) != 1 || !strings.HasSuffix(got[0], "line 1: event 201 has no line before it") {
					t.Error(got)
				}
			}
		}
	})
	t.Run("there before", func(t *testing.T) {
		dir := filepath.Join(t.TempDir(), "inbox")
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "events.jsonl"), []byte("{\"id\":1,\"created_at\":\"mine\"}\nmine"), 0o600); err != nil {
			t.Fatal(err)
		}
		th, err := engine.Init(dir)
		if err != nil {
			t.Fatal(err)
		}
		sound(t, dir, 0, 0)
		push(t, th)
		push(t, th)
		sound(t, dir, 0, 2)
		if err := os.Remove(filepath.Join(dir, "events.jsonl")); err != nil {
			t.Fatal(err)
		}
		sound(t, dir, 1, 0)
		push(t, th)
		sound(t, dir, 0, 3)
	})
	t.Run("short", func(t *testing.T) {
		dir, names := rotatedThread(t)
		path := filepath.Join(dir, names[2])
		th, err := engine.Open(dir)
		if err != nil {
			t.Fatal(err)
		}
		for lines, cut := range map[int64]func(path string) error{
			20002 + 999:  edit(func(l [][]byte) [][]byte { return l[:999] }),
			20002 + 1000: edit(func(l [][]byte) [][]byte { l[1000] = l[1000][:70]; return l[:1001] }),
			20002:        os.Remove,
		} {
			if err := cut(path); err != nil {
				t.Fatal(err)
			}
			sound(t, dir, 1, lines)
			push(t, th)
			sound(t, dir, 0, checkOf(t, dir).Events)
		}
	})
	t.Run("of an older version", func(t *testing.T) {
		dir, names := rotatedThread(t)
		th, err := engine.Open(dir)
		if err != nil {
			t.Fatal(err)
		}
		if err := bolt.UpdateRaw(ctx, storeOf(th), func(b *bbolt.Tx) error { return b.Bucket(disk.BucketMeta).Delete(disk.KeyLines) }); err != nil {
			t.Fatal(err)
		}
		sound(t, dir, 0, 21003)
		if err := os.Remove(filepath.Join(dir, names[0])); err != nil {
			t.Fatal(err)
		}
		sound(t, dir, 1, 11002)
		if fixed, err := FixLog(ctx, th); err != nil || len(fixed) != 1 {
			t.Fatal(fixed, err)
		}
		sound(t, dir, 0, 21003)
	})
}

// TestFixLogBesidePushes writes events.jsonl again again and again, and spoils it in
// between, while others push, rotate and prune. No line is lost or doubled.
func TestFixLogBesidePushes(t *testing.T) {
	dir, _ := rotatedThread(t)
	th, err := engine.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	stop := make(chan struct{})
	go func() {
		for n := 0; ; n++ {
			select {
			case <-stop:
				done <- nil
				return
			default:
			}
			if _, err := th.PushBatch(ctx, make400()); err != nil {
				done <- err
				return
			}
			if n%20 == 19 {
				keep := int64(15000)
				if _, err := th.Prune(ctx, engine.Retention{KeepLast: &keep}); err != nil {
					done <- err
					return
				}
			}
		}
	}()
	for n := range 12 {
		paths, err := lineFileNames(dir)
		if err != nil {
			t.Fatal(err)
		}
		// The newest rotated file, which only this program writes.
		if err := edit(func(l [][]byte) [][]byte { l[n*7][len(l[n*7])-5] ^= 1; return l })(paths[len(paths)-2]); err != nil {
			t.Fatal(err)
		}
		if r := checkOf(t, dir); len(r.Faults) != 1 && !pruned(r) {
			t.Fatalf("round %d: %.2000q", n, faultsOf(r)[:min(5, len(r.Faults))])
		}
		if _, err := FixLog(ctx, th); err != nil {
			t.Error(err)
		}
		if n%3 == 0 {
			if err := os.Remove(filepath.Join(dir, "events.jsonl")); err != nil && !os.IsNotExist(err) {
				t.Fatal(err)
			}
			if _, err := FixLog(ctx, th); err != nil {
				t.Error(err)
			}
		}
		if r := checkOf(t, dir); len(r.Faults) != 0 {
			t.Fatalf("round %d, after FixLog: %.2000q", n, faultsOf(r)[:min(5, len(r.Faults))])
		}
	}
	close(stop)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if r := checkOf(t, dir); len(r.Faults)+len(r.Notes) != 0 {
		t.Errorf("%q %+v", faultsOf(r), r.Notes)
	}
}

// pruned reports whether the line that was spoiled may be of an event that is not
// there any more.
func pruned(r *Report) bool { return len(r.Faults) == 0 }

func make400() []event.Draft {
	ds := make([]event.Draft, 400)
	for i := range ds {
		ds[i] = event.Draft{Source: "s", Type: "t", Content: fmt.Sprint("push ", i)}
	}
	return ds
}
