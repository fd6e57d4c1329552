package bolt_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"go.etcd.io/bbolt"
	"golang.org/x/sys/unix"

	"thread/engine"
	"thread/event"
	"thread/internal/store"
	"thread/internal/store/bolt"
	"thread/lock"
)

// TestOutcomeAfterTheWait: a push whose wait has ended learns what became of its drafts, which
// another process has taken; where it cannot, it says that this is unknown.
func TestOutcomeAfterTheWait(t *testing.T) {
	for name, tt := range map[string]struct {
		stored  bool
		state   byte
		damage  func(t *testing.T, o *meeting)
		want    error // nil: it is stored
		readers bool  // the database can be read after it
	}{
		"stored":                          {stored: true, state: bolt.StateDurable, readers: true},
		"stored, and the sync failed":     {stored: true, state: bolt.StateUnknown, want: store.ErrUnknownOutcome, readers: true},
		"stored, perhaps not synced":      {stored: true, want: store.ErrUnknownOutcome, readers: true},
		"not stored":                      {want: store.ErrBusy, readers: true},
		"stored, and the receipt gone":    {stored: true, state: bolt.StateDurable, damage: dropReceipts, want: store.ErrUnknownOutcome, readers: true},
		"stored, and the receipt damaged": {stored: true, state: bolt.StateDurable, damage: damageReceipts, want: store.ErrUnknownOutcome, readers: true},
		"the database gone": {stored: true, damage: func(t *testing.T, o *meeting) {
			must(t, os.Rename(dirOf(o.Thread).Path(bolt.DatabaseName), dirOf(o.Thread).Path("elsewhere")))
		}, want: store.ErrUnknownOutcome},
		"a file in place of what waits": {damage: func(t *testing.T, o *meeting) {
			dir := dirOf(o.Thread).Path(store.RunName, bolt.PendingName)
			must(t, os.RemoveAll(dir))
			must(t, os.WriteFile(dir, nil, 0o600))
		}, want: store.ErrUnknownOutcome, readers: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // they wait
			o := startMeeting(t)
			o.push([]engine.Option{engine.WithLockWait(2 * time.Second)}, draft("waits")) // taken before that
			o.takeAs(tt.stored, tt.state)
			if tt.damage != nil {
				tt.damage(t, o)
			}
			o.wg.Wait()
			o.gate.Close()
			if tt.want == nil && (len(o.fails) > 0 || len(o.ids) != 1) || tt.want != nil && (len(o.fails) != 1 || !errors.Is(o.fails[0], tt.want)) {
				t.Errorf("%v and %v, want %v", o.fails, o.ids, tt.want)
			}
			if !tt.readers {
				return
			}
			n := 0
			if tt.stored {
				n = 1
			}
			if list := contents(t, o.Dir()); len(list) != n {
				t.Errorf("stored are %q", list)
			}
		})
	}
}

func dropReceipts(t *testing.T, o *meeting) {
	changeReceipts(t, o, func(r *bbolt.Bucket, k, _ []byte) error { return r.Delete(k) })
}

func damageReceipts(t *testing.T, o *meeting) {
	changeReceipts(t, o, func(r *bbolt.Bucket, k, v []byte) error { return r.Put(k, v[:len(v)-1]) })
}

// changeReceipts changes the receipt that there is, without the gate, which is held.
func changeReceipts(t *testing.T, o *meeting, change func(r *bbolt.Bucket, k, v []byte) error) {
	t.Helper()
	must(t, dirOf(o.Thread).UpdateRawNow(ctx, func(b *bbolt.Tx) error {
		r := b.Bucket([]byte(store.Receipts))
		k, v := r.Cursor().First()
		return change(r, append([]byte{}, k...), append([]byte{}, v...))
	}))
}

// TestOutcomeOfAGroup: while one push of a group is called off, the others wait for what
// became of their drafts as long as they may.
func TestOutcomeOfAGroup(t *testing.T) {
	o := startMeeting(t)
	locked, err := dirOf(o.Thread).OpenExclusiveNow(ctx)
	must(t, err)
	th, err := engine.Open(o.Dir(), engine.WithLockWait(time.Minute))
	must(t, err)
	defer th.Close()
	called, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	ended := make(chan error, 2)
	push := func(c context.Context) {
		_, err := th.Push(c, draft("waits"))
		ended <- err
	}
	go push(called)
	eventually(t, "a pending write", func() bool { return len(o.names(bolt.PendingNew)) == 1 })
	// It is taken by a process that holds the database then.
	name := o.names(bolt.PendingNew)[0]
	must(t, os.Rename(name, name[:len(name)-len(bolt.PendingNew)]+bolt.PendingTaken))
	f, err := os.OpenFile(name[:len(name)-len(bolt.PendingNew)]+bolt.PendingTaken, os.O_WRONLY, 0)
	must(t, err)
	_, err = f.WriteAt([]byte{'t'}, 0)
	must(t, errors.Join(err, f.Close()))
	go push(ctx)
	eventually(t, "the second one waits", func() bool { return dirOf(th).WaitingWrites() > 0 })
	cancel(errMine)
	must(t, locked.Close())
	o.gate.Close()
	var errs []error
	for range 2 {
		errs = append(errs, <-ended)
	}
	if (errs[0] == nil) == (errs[1] == nil) || !errors.Is(errors.Join(errs...), errMine) && !errors.Is(errors.Join(errs...), store.ErrUnknownOutcome) {
		t.Errorf("%v", errs)
	}
	if list := contents(t, o.Dir()); len(list) != 1 {
		t.Errorf("stored are %q", list)
	}
}

// TestPipeAmongPendingWrites: what is not a file is not read, and not waited for.
func TestPipeAmongPendingWrites(t *testing.T) {
	o := startMeeting(t)
	o.push(nil, draft("good"))
	path := dirOf(o.Thread).Path(store.RunName, bolt.PendingName, fmt.Sprintf("%032x.new", 7))
	must(t, unix.Mkfifo(path, 0o600))
	f, err := os.OpenFile(path, os.O_RDWR|syscall.O_NONBLOCK, 0)
	must(t, err)
	must(t, lock.TryFile(f, lock.Exclusive))
	o.gate.Close()
	o.wg.Wait()
	must(t, errors.Join(os.Remove(path), f.Close()))
	o.finish(0)
}

// TestNoWorkingDirectory: a relative path means nothing in a directory that is gone.
func TestNoWorkingDirectory(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "gone")
	must(t, os.Mkdir(dir, 0o700))
	t.Chdir(dir)
	must(t, os.Remove(dir))
	_, err := bolt.New("t", bolt.Options{})
	_, oerr := bolt.Open("t", bolt.Options{})
	_, ierr := bolt.Init("t", bolt.Options{})
	_, rerr := bolt.StartRestore("t", false)
	for _, err := range []error{err, oerr, ierr, rerr} {
		if !errors.Is(err, os.ErrNotExist) {
			t.Error(err)
		}
	}
}

// TestLastID: no id is given behind the greatest one, by no kind of push.
func TestLastID(t *testing.T) {
	th := initThread(t)
	must(t, write(th, func(tx *bolt.Tx) error {
		tx.DiskState().LastID = 1<<63 - 3
		return tx.Insert(&event.Event{ID: 1<<63 - 2, CreatedAt: "2026-03-18T10:30:00.123Z", Source: "s", Type: "t"})
	}))
	s, err := openStore(th.Dir(), bolt.Options{MaxGroup: 4})
	must(t, err)
	defer s.Close()
	if _, err := s.PushAll(ctx, drafts(9, "")); !errors.Is(err, store.ErrIDsExhausted) {
		t.Errorf("a long batch: %v", err)
	}
	if e, err := th.Push(ctx, draft("last")); err != nil || e.ID != 1<<63-1 {
		t.Errorf("event %d, %v", e.ID, err)
	}
	for range 2 {
		if _, err := th.Push(ctx, draft("behind it")); !errors.Is(err, store.ErrIDsExhausted) {
			t.Errorf("a push: %v", err)
		}
	}
	must(t, view(th, func(tx *bolt.Tx) error {
		n := 0
		err := tx.EventsAfter(1<<63-1, func(*event.Event) error { n++; return nil })
		if ok, herr := tx.Has(0); ok || herr != nil || n > 0 {
			t.Errorf("%d events behind the last id, event 0 is there: %v, %v", n, ok, herr)
		}
		return err
	}))
}
