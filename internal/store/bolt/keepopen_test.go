package bolt_test

import (
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"

	"pgregory.net/rapid"

	"thread/engine"
	"thread/event"
	"thread/internal/store/bolt"
	"thread/lock"
)

// TestKeepOpenModel: handles that keep the database open and one that does not, whatever
// they do in turn and whatever becomes of the file between two calls, see what the last
// write has left. A longer run: go test -run KeepOpenModel -rapid.checks=1000.
func TestKeepOpenModel(t *testing.T) {
	base := t.TempDir()
	if f := flag.Lookup("rapid.checks"); f.Value.String() == f.DefValue { // each of its calls waits for the disk
		must(t, f.Value.Set("5"))
		defer f.Value.Set(f.DefValue)
	}
	rapid.Check(t, func(t *rapid.T) {
		dir, err := os.MkdirTemp(base, "")
		must(t, err)
		defer os.RemoveAll(dir)
		_, err = engine.Init(dir)
		must(t, err)
		file := filepath.Join(dir, bolt.DatabaseName)
		var handles []*engine.Thread
		for _, opts := range [][]engine.Option{{engine.WithKeepOpen()}, {engine.WithKeepOpen()}, nil} {
			th, err := engine.Open(dir, opts...)
			must(t, err)
			defer th.Close()
			handles = append(handles, th)
		}
		one := func() *engine.Thread { return handles[rapid.IntRange(0, len(handles)-1).Draw(t, "handle")] }
		type state struct {
			records map[string]string
			head    int64
		}
		is, saved := state{records: map[string]string{}}, state{}
		files := []string{file, filepath.Join(dir, bolt.JournalName)}
		var bytes [2][]byte // of the files when they were saved
		// put changes both, unless it is to fail.
		put := func(th *engine.Thread, size int, fail error) error {
			next := maps.Clone(is.records)
			head := is.head
			err := th.Update(ctx, func(tx *engine.Tx) error {
				r, err := tx.Records("mine")
				must(t, err)
				for range rapid.IntRange(1, 20).Draw(t, "n") {
					k := fmt.Sprint(rapid.IntRange(0, 60).Draw(t, "key"))
					if rapid.IntRange(0, 3).Draw(t, "delete") == 0 {
						delete(next, k)
						must(t, r.Delete([]byte(k)))
						continue
					}
					v := strings.Repeat(rapid.StringMatching("[a-z]").Draw(t, "value"), size)
					next[k] = v
					must(t, r.Put([]byte(k), []byte(v)))
				}
				e, err := tx.Push(event.Draft{Source: "s", Type: "t", Content: "c"})
				must(t, err)
				head = e.ID
				return fail
			})
			if err == nil {
				is = state{next, head}
			}
			return err
		}
		mine := errors.New("mine")
		t.Repeat(map[string]func(*rapid.T){
			"put":   func(t *rapid.T) { must(t, put(one(), rapid.SampledFrom([]int{0, 10, 900, 9000}).Draw(t, "size"), nil)) },
			"large": func(t *rapid.T) { must(t, put(one(), 300_000, nil)) }, // the file grows
			"fail": func(t *rapid.T) {
				if err := put(one(), 5000, mine); !errors.Is(err, mine) {
					t.Fatal(err)
				}
			},
			"panic": func(t *rapid.T) {
				th := one()
				do := rapid.SampledFrom([]func(func(tx *engine.Tx) error) error{
					func(fn func(tx *engine.Tx) error) error { return th.Update(ctx, fn) },
					func(fn func(tx *engine.Tx) error) error { return th.View(ctx, fn) },
				}).Draw(t, "in")
				defer func() {
					if recover() == nil {
						t.Fatal("no panic")
					}
				}()
				_ = do(func(*engine.Tx) error { panic("mine") })
			},
			"push": func(t *rapid.T) {
				e, err := one().Push(ctx, event.Draft{Source: "s", Type: "t", Content: "c"})
				must(t, err)
				is.head = e.ID
			},
			"compact":    func(t *rapid.T) { _, err := one().Compact(ctx); must(t, err) },
			"delete run": func(t *rapid.T) { must(t, os.RemoveAll(filepath.Join(dir, "run"))) },
			"save": func(t *rapid.T) {
				for i, name := range files {
					if bytes[i], err = os.ReadFile(name); errors.Is(err, os.ErrNotExist) {
						bytes[i] = nil
						continue
					}
					must(t, err)
				}
				saved = is
			},
			"restore": func(t *rapid.T) { // in place, as cp does
				for i, name := range files {
					if bytes[i] != nil {
						must(t, os.WriteFile(name, bytes[i], 0o600))
						is = saved
					}
				}
			},
			"replace": func(t *rapid.T) { // as mv does
				for i, name := range files {
					if bytes[i] != nil {
						must(t, os.WriteFile(name+".new", bytes[i], 0o600))
						must(t, os.Rename(name+".new", name))
						is = saved
					}
				}
			},
			"": func(t *rapid.T) {
				th := one()
				must(t, th.View(ctx, func(tx *engine.Tx) error {
					r, err := tx.Records("mine")
					must(t, err)
					got := map[string]string{}
					for rec, err := range r.Ascend(nil, nil) {
						must(t, err)
						got[string(rec.Key)] = string(rec.Value)
						if string(r.Get(rec.Key)) != string(rec.Value) {
							t.Fatalf("get of %q is another value", rec.Key)
						}
					}
					for rec, err := range r.Descend(nil, nil) {
						must(t, err)
						if is.records[string(rec.Key)] != string(rec.Value) {
							t.Fatalf("going down, %q is another value", rec.Key)
						}
					}
					if !maps.Equal(got, is.records) || tx.Head() != is.head {
						t.Fatalf("head %d with %d records, want %d with %d", tx.Head(), len(got), is.head, len(is.records))
					}
					return nil
				}))
			},
		})
	})
}

// TestCopiedOver: a reader that keeps the database open sees that an older copy was put in its
// place, though both have the same size and meta pages, as after two compactions.
func TestCopiedOver(t *testing.T) {
	dir := t.TempDir()
	th, err := engine.OpenOrCreate(dir)
	must(t, err)
	kept, err := engine.Open(dir, engine.WithKeepOpen())
	must(t, err)
	defer kept.Close()
	push := func() {
		t.Helper()
		_, err := th.Push(ctx, event.Draft{Source: "s", Type: "t", Content: "c"})
		must(t, err)
	}
	compact := func() {
		t.Helper()
		_, err := th.Compact(ctx)
		must(t, err)
	}
	sees := func(want int64) {
		t.Helper()
		var head int64
		must(t, kept.View(ctx, func(tx *engine.Tx) error { head = tx.Head(); return nil }))
		if head != want {
			t.Errorf("head %d, want %d", head, want)
		}
	}
	push()
	compact()
	push() // the journal is in use
	copies := map[string][]byte{}
	for _, name := range []string{bolt.DatabaseName, bolt.JournalName} {
		b, err := os.ReadFile(filepath.Join(dir, name))
		must(t, err)
		copies[name] = b
	}
	compact()
	push()
	push()
	sees(4)
	for name, b := range copies {
		must(t, os.WriteFile(filepath.Join(dir, name), b, 0o600))
	}
	sees(2)
	push()
	sees(3)
}

func must(t interface {
	Helper()
	Fatal(...any)
}, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// opened returns how many descriptors of this process are on files of dir.
func opened(t *testing.T, dir string) (n int) {
	t.Helper()
	fds, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Skip("no /proc")
	}
	for _, fd := range fds {
		if to, _ := os.Readlink("/proc/self/fd/" + fd.Name()); strings.HasPrefix(to, dir) {
			n++
		}
	}
	return n
}

// use makes a handle that keeps its database open, and has it read and write.
func use(t *testing.T, dir string) *engine.Thread {
	t.Helper()
	th, err := engine.Open(dir, engine.WithKeepOpen())
	must(t, err)
	_, err = th.Push(ctx, event.Draft{Source: "s", Type: "t"})
	must(t, err)
	for range 2 { // the first one keeps the database, the second the gate
		must(t, th.View(ctx, func(*engine.Tx) error { return nil }))
	}
	return th
}

// TestKeepOpenLocksNothing: between calls nothing is locked, and after Close, or when
// no caller has the handle any more, nothing is open.
func TestKeepOpenLocksNothing(t *testing.T) {
	dir := t.TempDir()
	if _, err := engine.Init(dir); err != nil {
		t.Fatal(err)
	}
	th := use(t, dir)
	if n := opened(t, dir); n != 5 { // for a reader, with the gate, and for a writer, each with the journal
		t.Errorf("%d files are open", n)
	}
	for _, name := range []string{bolt.DatabaseName, "run/.gate"} {
		l, err := lock.Try(filepath.Join(dir, name), lock.Exclusive)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		l.Close()
	}
	must(t, th.Close())
	if n := opened(t, dir); n != 0 {
		t.Errorf("%d files are open after Close", n)
	}
	if err := th.View(ctx, func(*engine.Tx) error { return nil }); !errors.Is(err, engine.ErrClosed) {
		t.Error(err)
	}

	use(t, dir) // and let go
	for range 1000 {
		runtime.GC() // cleanups run on a separate goroutine
		if opened(t, dir) == 0 {
			return
		}
	}
	t.Errorf("%d files of a handle that nobody has are open", opened(t, dir))
}

// TestKeepOpenTogether: goroutines on one handle and on others read and write at once;
// every one sees whole transactions, and none is lost.
func TestKeepOpenTogether(t *testing.T) {
	dir := t.TempDir()
	_, err := engine.Init(dir)
	must(t, err)
	kept, err := engine.Open(dir, engine.WithKeepOpen())
	must(t, err)
	defer kept.Close()
	plain, err := engine.Open(dir)
	must(t, err)
	const rounds = 40
	var all sync.WaitGroup
	for g := range 8 {
		th := kept
		if g%4 == 3 {
			th = plain
		}
		all.Go(func() {
			for range rounds {
				err := th.Update(ctx, func(tx *engine.Tx) error {
					r, err := tx.Records("mine")
					if err != nil {
						return err
					}
					var n, m int
					fmt.Sscan(string(r.Get([]byte("a"))), &n)
					fmt.Sscan(string(r.Get([]byte("b"))), &m)
					if n != m {
						return fmt.Errorf("%d and %d", n, m)
					}
					return errors.Join(r.Put([]byte("a"), fmt.Append(nil, n+1)), r.Put([]byte("b"), fmt.Append(nil, n+1)))
				})
				if err == nil {
					err = th.View(ctx, func(tx *engine.Tx) error {
						r, err := tx.Records("mine")
						if a, b := string(r.Get([]byte("a"))), string(r.Get([]byte("b"))); err == nil && a != b {
							err = fmt.Errorf("a reader sees %s and %s", a, b)
						}
						return err
					})
				}
				if err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
	must(t, plain.View(ctx, func(tx *engine.Tx) error {
		r, err := tx.Records("mine")
		if n := string(r.Get([]byte("a"))); err == nil && n != fmt.Sprint(8*rounds) {
			t.Errorf("%s transactions of %d", n, 8*rounds)
		}
		return err
	}))
}

// TestKeepOpenWriterGetsIn: readers that follow one another without a gap cannot keep a
// writer out.
func TestKeepOpenWriterGetsIn(t *testing.T) {
	dir := t.TempDir()
	_, err := engine.Init(dir)
	must(t, err)
	kept, err := engine.Open(dir, engine.WithKeepOpen())
	must(t, err)
	defer kept.Close()
	done := make(chan struct{})
	var readers sync.WaitGroup
	for range 4 { // each holds the lock until another one has it
		readers.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
				}
				if err := kept.View(ctx, func(*engine.Tx) error { runtime.Gosched(); return nil }); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	writer, err := engine.Open(dir)
	must(t, err)
	for range 20 {
		if _, err := writer.Push(ctx, event.Draft{Source: "s", Type: "t"}); err != nil {
			t.Error(err)
		}
	}
	close(done)
	readers.Wait()
}
