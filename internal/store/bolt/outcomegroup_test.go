package bolt_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"thread/event"
	"thread/internal/faults"
	"thread/internal/store"
	"thread/internal/store/bolt"
	"thread/lock"
)

// TestOutcomeForThoseWhoMayWait: where the first push of a group is called off when another
// process has taken their drafts, they wait as long as the others of the group may.
func TestOutcomeForThoseWhoMayWait(t *testing.T) {
	dir := filepath.Join(faults.Dir(t), "t")
	fiveEvents(t, dir)
	s, err := openStore(dir, bolt.Options{MaxGroup: 4, LockTimeout: time.Minute})
	must(t, err)
	defer s.Close()
	gate, err := lock.Try(s.Path(store.RunName, ".gate"), lock.Exclusive)
	must(t, err)
	type result struct {
		p   store.Pushed
		err error
	}
	push := func(c context.Context, n int) chan result {
		ended := make(chan result, 1)
		go func() {
			p, err := s.Push(c, slices.Repeat([]event.Draft{draft("new")}, n))
			ended <- result{p, err}
		}()
		return ended
	}
	ahead, cancelAhead := context.WithCancelCause(ctx)
	first := push(ahead, 4) // which keeps the others in the queue
	eventually(t, "its pending write", func() bool { return len(pendingOf(t, s)) == 1 })
	called, cancel := context.WithCancelCause(ctx)
	second := push(called, 1)
	eventually(t, "the second one waits", func() bool { return s.WaitingWrites() == 1 })
	third := push(ctx, 1)
	eventually(t, "the third one waits", func() bool { return s.WaitingWrites() == 2 })
	was := pendingOf(t, s)[0]
	cancelAhead(errMine)
	if r := <-first; !errors.Is(r.err, errMine) {
		t.Errorf("the push ahead: %v", r.err)
	}
	eventually(t, "the pending write of both", func() bool { names := pendingOf(t, s); return len(names) == 1 && names[0] != was })
	locked, err := s.OpenExclusiveNow(ctx)
	must(t, err)
	// A process that has the database takes it.
	name := pendingOf(t, s)[0]
	taken := strings.TrimSuffix(name, bolt.PendingNew) + bolt.PendingTaken
	must(t, os.Rename(name, taken))
	f, err := os.OpenFile(taken, os.O_WRONLY, 0)
	must(t, err)
	_, err = f.WriteAt([]byte{'t'}, 0)
	must(t, errors.Join(err, f.Close()))
	cancel(errMine)
	past := time.Now()
	eventually(t, "the time that a push alone has", func() bool { return time.Since(past) > 600*time.Millisecond || len(third) > 0 })
	must(t, errors.Join(locked.Close(), gate.Close())) // and has stored nothing
	if r := <-second; !errors.Is(r.err, errMine) {
		t.Errorf("the push that was called off: %v", r.err)
	}
	if r := <-third; r.err != nil || len(r.p.Events) != 1 || r.p.Events[0].ID != 6 {
		t.Errorf("the other one: %+v", r)
	}
	must(t, s.Close())
	// The kernel's wait of a call that was called off ends with the lock.
	eventually(t, "all files closed", func() bool { return faults.Open(t, dir) == nil })
	if list := contents(t, dir); len(list) != 6 {
		t.Errorf("%q", list)
	}
}

// pendingOf returns the pending writes that can be taken.
func pendingOf(t *testing.T, s *bolt.Store) []string {
	t.Helper()
	names, err := filepath.Glob(s.Path(store.RunName, bolt.PendingName, "*"+bolt.PendingNew))
	must(t, err)
	return names
}
