package bolt_test

import (
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"thread/engine"
	"thread/event"
	"thread/internal/fsck"
	"thread/internal/store"
	"thread/internal/store/bolt"
	"thread/lock"
)

// eventually waits until ok returns true.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for start := time.Now(); !ok(); runtime.Gosched() {
		if time.Since(start) > time.Minute {
			t.Fatalf("%s: never", what)
		}
	}
}

// meeting is a thread whose gate is held, and pushes that wait for it.
type meeting struct {
	*engine.Thread
	t     *testing.T
	gate  *lock.File
	wg    sync.WaitGroup
	mu    sync.Mutex
	ids   map[int64]string // content by id, of the pushes that succeeded
	fails []error
}

func startMeeting(t *testing.T, opts ...engine.Option) *meeting {
	th, err := engine.Init(filepath.Join(t.TempDir(), "in box"), opts...)
	if err != nil {
		t.Fatal(err)
	}
	o := &meeting{Thread: th, t: t, ids: map[int64]string{}}
	if o.gate, err = lock.Try(dirOf(th).Path(store.RunName, ".gate"), lock.Exclusive); err != nil {
		t.Fatal(err)
	}
	return o
}

func (o *meeting) names(ending string) []string {
	names, err := filepath.Glob(dirOf(o.Thread).Path(store.RunName, bolt.PendingName, "*"+ending))
	if err != nil {
		o.t.Fatal(err)
	}
	return names
}

// push starts a push of drafts on a separate handle and waits until it has
// left its pending write, or has ended. Without an option, it does not give up however
// busy the host is.
func (o *meeting) push(opts []engine.Option, drafts ...event.Draft) {
	o.t.Helper()
	th, err := engine.Open(o.Dir(), append([]engine.Option{engine.WithLockWait(time.Minute)}, opts...)...)
	if err != nil {
		o.t.Fatal(err)
	}
	n := len(o.names(bolt.PendingNew))
	ended := make(chan struct{})
	o.wg.Go(func() {
		defer close(ended)
		es, err := th.PushBatch(ctx, drafts)
		o.mu.Lock()
		defer o.mu.Unlock()
		if err != nil {
			o.fails = append(o.fails, err)
			return
		}
		for i, e := range es {
			if o.ids[e.ID] != "" && drafts[i].DedupeKey == "" {
				o.t.Errorf("id %d for %q and %q", e.ID, o.ids[e.ID], e.Content)
			}
			o.ids[e.ID] = e.Content
		}
	})
	eventually(o.t, "a pending write", func() bool {
		select {
		case <-ended:
			return true
		default:
			return len(o.names(bolt.PendingNew)) > n
		}
	})
}

// finish requires that what the pushes were told is what is there, that no pending
// write or receipt is left after the next push, and that the check finds no fault.
func (o *meeting) finish(fails int) {
	o.t.Helper()
	o.wg.Wait()
	if len(o.fails) != fails {
		o.t.Errorf("failed: %v", o.fails)
	}
	es, err := o.Peek(ctx, engine.Query{})
	if err != nil {
		o.t.Fatal(err)
	}
	if len(es) != len(o.ids) {
		o.t.Errorf("%d events, %d were acknowledged", len(es), len(o.ids))
	}
	for _, e := range es {
		if o.ids[e.ID] != e.Content {
			o.t.Errorf("event %d is %q, acknowledged as %q", e.ID, e.Content, o.ids[e.ID])
		}
	}
	if _, err := o.Push(ctx, event.Draft{Source: "s", Type: "t", Content: "last"}); err != nil {
		o.t.Error(err)
	}
	if left := o.names("*"); len(left) > 0 {
		o.t.Errorf("left: %q", left)
	}
	err = view(o.Thread, func(tx *bolt.Tx) error {
		if b := tx.Bolt().Bucket([]byte(store.Receipts)); b != nil {
			if k, _ := b.Cursor().First(); k != nil {
				return fmt.Errorf("receipt %x is left", k)
			}
		}
		return nil
	})
	if err != nil {
		o.t.Error(err)
	}
	if report, err := fsck.Check(ctx, o.Thread); err != nil || len(report.Faults) > 0 {
		o.t.Errorf("check: %v, %v", report, err)
	}
}

// transaction returns the number of the last one.
func (o *meeting) transaction() int {
	id, err := dirOf(o.Thread).LastTransaction(ctx) // the gate is held
	if err != nil {
		o.t.Fatal(err)
	}
	return id
}

func draft(content string) event.Draft {
	return event.Draft{Source: "s", Type: "t", Content: content}
}

// TestPendingWritesShareATransaction: all who wait at the gate are stored by the first
// who passes it.
func TestPendingWritesShareATransaction(t *testing.T) {
	o := startMeeting(t)
	before := o.transaction()
	for i := range 12 {
		ds := []event.Draft{draft(fmt.Sprint(i, " one")), draft(fmt.Sprint(i, " two"))}
		ds[0].Subtype = event.Text("sub")
		o.push(nil, ds...)
	}
	o.gate.Close()
	o.wg.Wait()
	if n := o.transaction() - before; n != 1 {
		t.Errorf("%d transactions", n)
	}
	o.finish(0)
}

// TestPendingWritesWithKeys: a dedupe key counts among pending writes as it does elsewhere, and
// every push learns the event that has its key.
func TestPendingWritesWithKeys(t *testing.T) {
	o := startMeeting(t)
	for i := range 6 {
		d := draft("the same")
		d.DedupeKey = "key"
		o.push(nil, draft(fmt.Sprint("own ", i)), d)
	}
	o.gate.Close()
	o.finish(0)
	if len(o.ids) != 7 {
		t.Errorf("events %v", o.ids)
	}
}

// TestPendingWriteWithdrawn: a push that may not wait any more stores nothing, if no process
// has taken it.
func TestPendingWriteWithdrawn(t *testing.T) {
	o := startMeeting(t)
	o.push([]engine.Option{engine.WithLockWait(50 * time.Millisecond)}, draft("impatient"))
	o.wg.Wait()
	o.push(nil, draft("patient"))
	o.gate.Close()
	o.finish(1)
	if !errors.Is(o.fails[0], engine.ErrBusy) {
		t.Error(o.fails[0])
	}
}

// takeAs plays a process that has the database: it takes the pending writes and, if it
// keeps them, is gone before it notes so, unless state says what it noted.
func (o *meeting) takeAs(keep bool, state byte) {
	o.t.Helper()
	errGone := errors.New("gone")
	err := dirOf(o.Thread).TakePending(ctx, state, event.FormatTime(time.Now()), func() error {
		if !keep {
			return errGone
		}
		return nil
	})
	if keep && err != nil || !keep && err != errGone {
		o.t.Fatal(err)
	}
}

// TestCommitterIsKilled: who took the pending writes is killed before or after its commit, or
// was told of an error. Nothing is lost or doubled.
func TestCommitterIsKilled(t *testing.T) {
	for _, store := range []bool{false, true} {
		for _, state := range []byte{0, bolt.StateDurable, bolt.StateUnknown} {
			if !store && state != 0 {
				continue
			}
			t.Run(fmt.Sprintf("stored %v state %d", store, state), func(t *testing.T) {
				o := startMeeting(t)
				for i := range 3 {
					o.push(nil, draft(fmt.Sprint(i)))
				}
				o.takeAs(store, state)
				o.push(nil, draft("later"))
				o.gate.Close()
				if state != bolt.StateUnknown {
					o.finish(0)
					return
				}
				o.wg.Wait()
				if len(o.fails) != 3 || !errors.Is(o.fails[0], engine.ErrUnknownOutcome) {
					t.Errorf("got %v", o.fails)
				}
			})
		}
	}
}

// TestRunIsDeletedUnderPendingWrites: run/ may go at any time.
func TestRunIsDeletedUnderPendingWrites(t *testing.T) {
	for _, what := range []string{"free", "stored", "stored, receipt dropped"} {
		t.Run(what, func(t *testing.T) {
			o := startMeeting(t)
			o.push(nil, draft("waiting"))
			if what != "free" {
				o.takeAs(true, 0)
			}
			err := os.RemoveAll(dirOf(o.Thread).Path(store.RunName))
			for n := 0; errors.Is(err, syscall.ENOTEMPTY) && n < 1000; n++ { // the writer makes files there meanwhile
				err = os.RemoveAll(dirOf(o.Thread).Path(store.RunName))
			}
			if err != nil {
				t.Fatal(err)
			}
			if what == "stored, receipt dropped" {
				if _, err := o.Push(ctx, draft("other")); err != nil {
					t.Fatal(err)
				}
				o.gate.Close()
				o.wg.Wait()
				if len(o.fails) != 1 || !errors.Is(o.fails[0], engine.ErrUnknownOutcome) || !strings.Contains(o.fails[0].Error(), "run/ was deleted") {
					t.Errorf("got %v, %v", o.fails, o.ids)
				}
				return
			}
			o.gate.Close()
			o.finish(0)
		})
	}
}

// TestTakenWriteCannotBeOpened: for want of descriptors or of the right to, no process
// knows whether its owner still waits, so its receipt stays.
func TestTakenWriteCannotBeOpened(t *testing.T) {
	o := startMeeting(t)
	o.gate.Close()
	token := []byte("0123456789abcdef")
	// A directory cannot be opened for writing, by root neither.
	if err := os.MkdirAll(dirOf(o.Thread).Path(store.RunName, bolt.PendingName, hex.EncodeToString(token)+bolt.PendingTaken), 0o700); err != nil {
		t.Fatal(err)
	}
	err := bolt.Write(ctx, dirOf(o.Thread), func(tx *bolt.Tx, s store.Session) error {
		return tx.StorePending(s, token, []event.Draft{draft("x")}, event.FormatTime(time.Now()))
	})
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if _, err := o.Push(ctx, draft("other")); err != nil {
			t.Fatal(err)
		}
	}
	err = view(o.Thread, func(tx *bolt.Tx) error {
		ok, err := tx.Receipt(token, []event.Draft{draft("x")})
		if !ok && err == nil {
			err = errors.New("the receipt is gone")
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

// TestStrangePendingWrites: whatever else lies in run/.offers is not taken, and does not
// keep anybody from pushing.
func TestStrangePendingWrites(t *testing.T) {
	o := startMeeting(t)
	o.push(nil, draft("good"))
	dir := dirOf(o.Thread).Path(store.RunName, bolt.PendingName)
	good := o.names(bolt.PendingNew)[0]
	content, err := os.ReadFile(good)
	if err != nil {
		t.Fatal(err)
	}
	var held []*os.File
	name := func(i int) string { return filepath.Join(dir, fmt.Sprintf("%032x.new", i)) }
	for i, text := range []string{
		"", "f", "f\x00", string(content[:len(content)-3]), "f" + strings.Repeat("\xff", 40),
		"f\x00\x00\x01t\x00\x00\x00\x00",             // no source
		"f\x00\x01\xff\x01t\x00\x00\x00\x00",         // not UTF-8
		strings.Repeat("f\x00\x01s\x01t", 100000),    // too long
		"f\x00\x01s\x01t\x00\xff\xff\xff\xff\x0fabc", // a field of 4 GB
	} {
		if err := os.WriteFile(name(i), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		f, err := os.Open(name(i))
		if err != nil {
			t.Fatal(err)
		}
		if err := lock.TryFile(f, lock.Exclusive); err != nil {
			t.Fatal(err)
		}
		held = append(held, f)
	}
	os.WriteFile(filepath.Join(dir, "something else"), content, 0o600)
	os.WriteFile(filepath.Join(dir, "ab.new"), content, 0o600)
	os.WriteFile(name(100), content, 0o600) // left over: its process was killed
	os.Symlink(good, name(101))
	os.Mkdir(name(102), 0o700)
	o.gate.Close()
	o.wg.Wait()
	for _, f := range held {
		f.Close()
	}
	for _, name := range []string{"something else", "ab.new"} {
		if err := os.Remove(filepath.Join(dir, name)); err != nil {
			t.Error(err)
		}
	}
	if err := os.Remove(name(101)); err != nil {
		t.Error(err)
	}
	if err := os.Remove(name(102)); err != nil {
		t.Error(err)
	}
	o.finish(0)
	if len(o.ids) != 1 {
		t.Errorf("events %v", o.ids)
	}
}

// TestLongDraftsAreNotLeft: who has the database is not to wait for megabytes
// of others.
func TestLongDraftsAreNotLeft(t *testing.T) {
	o := startMeeting(t)
	d := draft(strings.Repeat("x", bolt.MaxPendingBytes))
	if dirOf(o.Thread).LeavesWrite([]event.Draft{d}) {
		t.Error("left")
	}
	o.gate.Close()
}

// TestFormatOfReceipt pins the bytes of a receipt: a new event, and a duplicate.
func TestFormatOfReceipt(t *testing.T) {
	now := time.UnixMilli(1773829800123)
	th, err := engine.Init(filepath.Join(t.TempDir(), "t"), engine.WithClock(func() time.Time { return now }))
	if err != nil {
		t.Fatal(err)
	}
	d := draft("")
	d.DedupeKey = "k"
	token := []byte("0123456789abcdef")
	var got string
	err = bolt.Write(ctx, dirOf(th), func(tx *bolt.Tx, s store.Session) error {
		err := tx.StorePending(s, token, []event.Draft{d, d}, event.FormatTime(now))
		got = hex.EncodeToString(tx.Bolt().Bucket([]byte(store.Receipts)).Get(token))
		return err
	})
	if want := "0000019d007ec0bb" + "02" + "03"; err != nil || !strings.HasPrefix(got, want) || len(got) != len(want)+8 {
		t.Errorf("got %s, %v", got, err)
	}
}
