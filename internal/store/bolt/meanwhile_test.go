package bolt_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.etcd.io/bbolt"

	"thread/engine"
	"thread/event"
	"thread/internal/faults"
	"thread/internal/store"
	"thread/internal/store/bolt"
)

// atSync calls fn before each sync of a copy, with its number from 1, while op runs.
func atSync(fn func(n int) error, op func() error) error {
	n := 0
	defer bolt.SyncCopy(func(db *bbolt.DB) error {
		if n++; n > 100 {
			return errors.New("a copy without end")
		}
		return errors.Join(fn(n), db.Sync())
	})()
	return op()
}

// replaceDatabase puts a copy of the database in its place, as a program that restores does.
func replaceDatabase(dir string) error {
	path := filepath.Join(dir, bolt.DatabaseName)
	b, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	return errors.Join(os.WriteFile(path+".other", b, 0o600), os.Rename(path+".other", path))
}

// compacted makes a thread, and a function that compacts it.
func compacted(t *testing.T) (th *engine.Thread, compact func() error) {
	t.Helper()
	dir := filepath.Join(faults.Dir(t), "t")
	compactable(t, dir)
	th, err := engine.Open(dir)
	must(t, err)
	t.Cleanup(func() { th.Close() })
	return th, func() error { _, err := th.Compact(ctx); return err }
}

// intact requires that the events of compactable are there, and that many more, that nothing is
// left behind and that a check finds no fault.
func intact(t *testing.T, th *engine.Thread, more int) {
	t.Helper()
	if list := contents(t, th.Dir()); len(list) != 5+more {
		t.Errorf("%d events, want %d", len(list), 5+more)
	}
	if left := leftovers(t, th.Dir()); left != nil {
		t.Errorf("left are %q", left)
	}
	if got, err := held(th); err != nil || !strings.HasSuffix(got, "[]") {
		t.Errorf("%s, %v", got, err)
	}
}

// TestReplacedAgainAndAgain: a copy of a database that is replaced all the time is given up.
func TestReplacedAgainAndAgain(t *testing.T) {
	th, compact := compacted(t)
	replace := func(int) error { return replaceDatabase(th.Dir()) }
	if err := atSync(replace, compact); !errors.Is(err, store.ErrBusy) || !strings.Contains(err.Error(), "again and again") {
		t.Error(err)
	}
	err := atSync(replace, func() error { _, err := copyTo(ctx, th.Dir(), bolt.CopyOptions{}); return err })
	if !errors.Is(err, store.ErrBusy) || exists(copied(th.Dir())) {
		t.Error(err)
	}
	intact(t, th, 0)
	// Once is not a reason.
	if err := atSync(func(n int) error {
		if n > 1 {
			return nil
		}
		return replaceDatabase(th.Dir())
	}, compact); err != nil || sizeOf(th.Dir()) > 300_000 {
		t.Errorf("%d bytes, %v", sizeOf(th.Dir()), err)
	}
	intact(t, th, 0)
}

// TestCopyWithoutItsName: a copy whose name an older program has removed is made again.
func TestCopyWithoutItsName(t *testing.T) {
	th, compact := compacted(t)
	if err := atSync(func(n int) error {
		if n > 1 {
			return nil
		}
		return os.Remove(filepath.Join(th.Dir(), bolt.CompactName))
	}, compact); err != nil || sizeOf(th.Dir()) > 300_000 {
		t.Errorf("%d bytes, %v", sizeOf(th.Dir()), err)
	}
	intact(t, th, 0)
}

// TestMuchIsPushedMeanwhile: what is pushed and stored while a database is copied is in the
// copy, however much that is in each round.
func TestMuchIsPushedMeanwhile(t *testing.T) {
	th, compact := compacted(t)
	other, err := engine.Open(th.Dir())
	must(t, err)
	defer other.Close()
	rounds := 0
	put := func(tx *engine.Tx) error {
		r, err := tx.Records("mine")
		for i := range 12 {
			if err == nil {
				err = r.Put(fmt.Append(nil, "key ", i), []byte(strings.Repeat(fmt.Sprint(rounds), 1_000_000)))
			}
		}
		return err
	}
	must(t, atSync(func(n int) error {
		rounds = n
		if n > 3 {
			return nil
		}
		if n == 1 {
			if _, err := other.PushAll(ctx, drafts(300, "")); err != nil {
				return err
			}
		}
		return other.Update(ctx, put)
	}, compact))
	if rounds < 3 {
		t.Errorf("%d rounds", rounds)
	}
	intact(t, th, 300)
	must(t, th.View(ctx, func(tx *engine.Tx) error {
		r, err := tx.Records("mine")
		if err != nil {
			return err
		}
		for i := range 12 {
			if v := r.Get(fmt.Append(nil, "key ", i)); len(v) != 1_000_000 || v[0] < '2' {
				return fmt.Errorf("key %d has %d bytes", i, len(v))
			}
		}
		return nil
	}))
}

// TestLargeContentsAreCopied: a copy of more than goes into one transaction.
func TestLargeContentsAreCopied(t *testing.T) {
	th, compact := compacted(t)
	want := strings.Repeat("large ", 200_000)
	for i := range 9 {
		_, err := th.Push(ctx, draft(fmt.Sprint("new ", i, want)))
		must(t, err)
	}
	must(t, compact())
	intact(t, th, 9)
	es, err := th.Peek(ctx, engine.Query{After: 5, Limit: 9})
	must(t, err)
	for i, e := range es {
		if e.Content != fmt.Sprint("new ", i, want) {
			t.Errorf("event %d has %d bytes", e.ID, len(e.Content))
		}
	}
}

// TestLinkedCopy: a file that lies where a copy is made and has another name is not written
// to. Where it comes back all the time, the copy is given up.
func TestLinkedCopy(t *testing.T) {
	th, compact := compacted(t)
	path, mine := filepath.Join(th.Dir(), bolt.CompactName), filepath.Join(th.Dir(), "mine")
	must(t, os.WriteFile(mine, []byte("mine"), 0o600))
	must(t, os.Link(mine, path))
	var failed error
	always := faults.Fault{Before: func(c faults.Call, _ int) {
		if c.Name == "openat" && strings.HasSuffix(c.Path, bolt.CompactName) {
			_ = os.Link(mine, path)
		}
	}}
	always.Run(t, th.Dir(), func() { failed = compact() })
	if !errors.Is(failed, store.ErrBusy) {
		t.Error(failed)
	}
	if !exists(path) {
		must(t, os.Link(mine, path))
	}
	must(t, compact())
	if text, err := os.ReadFile(mine); string(text) != "mine" {
		t.Errorf("%.20q, %v", text, err)
	}
	must(t, os.Remove(mine))
	intact(t, th, 0)
}

// TestStepsOfALateSeries is TestSteps for a series all whose events are dropped, until one is
// pushed while the others are copied.
func TestStepsOfALateSeries(t *testing.T) {
	dir := filepath.Join(faults.Dir(t), "t")
	th, err := engine.Init(dir)
	must(t, err)
	for i := range 20 {
		_, err := th.Push(ctx, event.Draft{Source: fmt.Sprint("source ", i), Type: "t", Content: "c"})
		must(t, err)
	}
	must(t, th.Close())
	failEachStep(t, dir, map[string]deed{"prune": {
		do: func(th *engine.Thread) (string, error) {
			keep := int64(3)
			err := atSync(func(n int) error {
				if n > 1 {
					return nil
				}
				other, err := engine.Open(th.Dir())
				if err != nil {
					return err
				}
				defer other.Close()
				for i := range 5 {
					if _, err := other.Push(ctx, event.Draft{Source: fmt.Sprint("source ", i), Type: "t", Content: "late"}); err != nil {
						return err
					}
				}
				return nil
			}, func() error { _, err := th.Prune(ctx, engine.Retention{KeepLast: &keep}); return err })
			if err != nil {
				return "", err
			}
			es, err := th.Peek(ctx, engine.Query{Filter: "source IN ('source 0', 'source 4')"})
			if err != nil || len(es) < 2 {
				return "", errors.Join(err, fmt.Errorf("%d events", len(es)))
			}
			return "", nil
		},
		then: func(th *engine.Thread) (string, error) {
			es, err := th.Peek(ctx, engine.Query{Limit: 1})
			return fmt.Sprint("pruned: ", es[0].ID > 1), err
		},
		within: "(*copying).lateSeries",
	}})
}

// lookedAt is a context that ends when it is looked at for the at-th time.
type lookedAt struct {
	context.Context
	n, at  atomic.Int64
	cancel context.CancelCauseFunc
}

func (c *lookedAt) Err() error {
	if c.n.Add(1) == c.at.Load() {
		c.cancel(errMine)
	}
	return c.Context.Err()
}

// TestCalledOffAtEachLook: a call that is called off at any look returns why, and has stored
// nothing; or it has done everything.
func TestCalledOffAtEachLook(t *testing.T) {
	prepared := filepath.Join(faults.Dir(t), "t")
	everything(t, prepared)
	names := []string{"push", "batch", "compact", "prune", "copy", "snapshot", "start of lines", "view", "lock for reading", "lines"}
	for _, name := range names {
		for _, kept := range []bool{false, true} {
			dir := filepath.Join(faults.Dir(t), "t")
			for at, more := int64(1), true; more && !t.Failed(); at++ {
				if testing.Short() && at > 3 {
					break
				}
				must(t, os.RemoveAll(dir))
				must(t, os.CopyFS(dir, os.DirFS(prepared)))
				s, err := openStore(dir, bolt.Options{MaxGroup: 4, KeepOpen: kept})
				must(t, err)
				inner, cancel := context.WithCancelCause(ctx)
				c := &lookedAt{Context: inner, cancel: cancel}
				c.at.Store(at)
				err = calls[name](c, s)
				more = c.n.Load() >= at
				if err != nil && !errors.Is(err, errMine) || !more && err != nil {
					t.Errorf("%s called off at look %d: %v", name, at, err)
				}
				cancel(nil)
				must(t, s.Close())
				if open, left := faults.Open(t, dir), leftovers(t, dir); open != nil || left != nil {
					t.Errorf("%s called off at look %d: open are %q, left %q", name, at, open, left)
				}
				if n := len(contents(t, dir)); err != nil && n != 1503 {
					t.Errorf("%s called off at look %d: %d events, and the error %v", name, at, n, err)
				}
			}
		}
	}
}

// TestCalledOffAsLeader: a call whose context ends in the moment in which its turn comes
// takes the turn, so that those behind it are not left.
func TestCalledOffAsLeader(t *testing.T) {
	th := initThread(t)
	s := dirOf(th)
	over, cancel := context.WithCancelCause(ctx)
	cancel(errMine)
	for range 64 { // of two reasons to wake up, the runtime takes either
		c := &unseen{Context: over}
		if err := s.Update(c, func(store.Session) error { return nil }); err != nil && !errors.Is(err, errMine) {
			t.Fatal(err)
		}
	}
	if _, err := th.Push(ctx, draft("after it")); err != nil {
		t.Error(err)
	}
}

// unseen is a context that has ended, which its first look does not see.
type unseen struct {
	context.Context
	looked bool
}

func (c *unseen) Err() error {
	if !c.looked {
		c.looked = true
		return nil
	}
	return c.Context.Err()
}

// TestGroupsOfPushes: what waits goes into groups of at most the drafts of one transaction,
// in the order in which it came.
func TestGroupsOfPushes(t *testing.T) {
	dir := filepath.Join(faults.Dir(t), "t")
	fiveEvents(t, dir)
	s, err := openStore(dir, bolt.Options{MaxGroup: 4, LockTimeout: time.Minute})
	must(t, err)
	defer s.Close()
	locked, err := s.OpenExclusive(ctx)
	must(t, err)
	ids := make(chan []int64)
	const pushes = 5
	for range pushes {
		go func() {
			p, err := s.Push(ctx, slices.Repeat([]event.Draft{draft("new")}, 3))
			list := []int64{}
			for i := range p.Events {
				list = append(list, p.Events[i].ID)
			}
			if err != nil {
				list = nil
			}
			ids <- list
		}()
	}
	eventually(t, "all wait", func() bool { return s.WaitingWrites() >= pushes-1 })
	must(t, locked.Close())
	var all []int64
	for range pushes {
		list := <-ids
		if len(list) != 3 || list[1] != list[0]+1 || list[2] != list[0]+2 {
			t.Errorf("the ids of a push are %v", list)
		}
		all = append(all, list...)
	}
	if slices.Sort(all); len(all) != 3*pushes || all[0] != 6 || all[len(all)-1] != 5+3*pushes {
		t.Errorf("%v", all)
	}
}
