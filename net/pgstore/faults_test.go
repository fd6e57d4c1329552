package pgstore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"thread/event"
	"thread/filter"
	"thread/internal/store"
)

// plain is a logic that does nothing except storing.
type plain struct{}

type plainSession struct{ tx store.Tx }

func (plain) BeforeBatch(context.Context) error                   { return nil }
func (plain) Subscribed(store.Tx) bool                            { return false }
func (plain) DropAfter(store.Tx, int64, int) (more bool, _ error) { return false, nil }
func (plain) Write(tx store.Tx, _ bool, fn func(s store.Session) error) (w store.Written, err error) {
	return w, fn(plainSession{tx})
}
func (s plainSession) Push(d *event.Draft, createdAt string) (event.Event, bool, error) {
	e, err := s.tx.Append(d, createdAt)
	return e, false, err
}

var drafts = []event.Draft{{Source: "s", Type: "t", Content: "x"}}

func count(t *testing.T, s store.Store) (n int64) {
	t.Helper()
	if err := s.View(context.Background(), func(tx store.Tx) error { n = tx.State().Count; return nil }); err != nil {
		t.Fatal(err)
	}
	return n
}

// faulty is a connection that is cut after that many bytes of answers, or at a COMMIT:
// before it has gone out, or when the server has answered it.
type faulty struct {
	net.Conn
	bytes         *atomic.Int64 // that are left
	before, after bool
	cut           atomic.Bool
}

func (f *faulty) Read(b []byte) (int, error) {
	left := f.bytes.Load()
	if left <= 0 || f.cut.Load() && f.before {
		return 0, io.ErrUnexpectedEOF
	}
	n, err := f.Conn.Read(b[:min(int64(len(b)), left)])
	// Now, because the read may have begun before the COMMIT, and because a server that is
	// told of the end first may not look at the COMMIT.
	if f.cut.Load() {
		return 0, io.ErrUnexpectedEOF
	}
	f.bytes.Add(int64(-n))
	return n, err
}

func (f *faulty) Write(b []byte) (int, error) {
	if commits := bytes.Contains(b, []byte("COMMIT\x00")); commits && (f.before || f.after) {
		f.cut.Store(true)
		if f.before {
			return 0, io.ErrClosedPipe
		}
	}
	return f.Conn.Write(b)
}

// openFaulty returns a handle whose first connections, that many, are faulty.
func openFaulty(t *testing.T, a *Address, l store.Logic, f *faulty, first int64) *Store {
	broken := *a
	broken.config = a.config.Copy()
	c, dial := broken.config, a.config.DialFunc
	c.TLSConfig, c.Fallbacks = nil, nil // COMMIT is to be seen
	var n atomic.Int64
	c.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := dial(ctx, network, addr)
		if err != nil || n.Add(1) > first {
			return conn, err
		}
		return &faulty{Conn: conn, bytes: f.bytes, before: f.before, after: f.after}, nil
	}
	return opened(t, &broken, l)
}

func left(n int64) *atomic.Int64 {
	var a atomic.Int64
	a.Store(n)
	return &a
}

// howManyCuts is 100, or as many as THREAD_CUTS says.
func howManyCuts() int {
	if n, err := strconv.Atoi(os.Getenv("THREAD_CUTS")); err == nil {
		return n
	}
	return 100
}

// A connection that is cut at any byte is an error or the whole answer, never less of it.
func TestCutReading(t *testing.T) {
	in := newSchema(t)
	at := newThread(t, in)
	s := opened(t, at, plain{})
	ds := make([]event.Draft, 1500)
	for i := range ds {
		ds[i] = event.Draft{Source: fmt.Sprint("s", i%7), Type: "t", Content: strings.Repeat("x", i%50)}
	}
	ds[700].Content = strings.Repeat("long", shortContent)
	ctx := context.Background()
	if _, err := s.Push(ctx, ds); err != nil {
		t.Fatal(err)
	}
	if err := s.Update(ctx, func(u store.Session) error {
		for i := range 200 {
			if err := u.(plainSession).tx.Put(store.Dead, fmt.Append(nil, i), nil); err != nil {
				return err
			}
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	type answer struct {
		events  []event.Event
		letters []string
		ids     int
	}
	read := func(bytes *atomic.Int64) (a answer, err error) {
		s := openFaulty(t, at, plain{}, &faulty{bytes: bytes}, math.MaxInt64)
		defer s.Close()
		err = s.View(ctx, func(tx store.Tx) error {
			var err error
			if a.events, _, err = tx.Page(store.Scan{Selection: store.NewSelection(nil, nil), Upto: math.MaxInt64}, math.MaxInt64, nil); err != nil {
				return err
			}
			// Errors that are passed over come to light at the end.
			_ = tx.Descend(store.Dead, nil, func(k, _ []byte) (bool, error) {
				a.letters = append(a.letters, string(k))
				return true, nil
			})
			_ = tx.EventsAfter(0, func(*event.Event) error { a.ids++; return nil })
			return nil
		})
		return a, err
	}
	all := left(math.MaxInt64)
	want, err := read(all)
	if err != nil || len(want.events) != len(ds) || len(want.letters) != 200 || want.ids != len(ds) {
		t.Fatalf("%d events, %d letters: %v", len(want.events), len(want.letters), err)
	}
	total := math.MaxInt64 - all.Load()
	r, cut, cuts := rand.New(rand.NewPCG(5, 6)), 0, howManyCuts()
	for range cuts {
		byte := r.Int64N(total)
		got, err := read(left(byte))
		if err != nil {
			cut++
		} else if !reflect.DeepEqual(got, want) {
			t.Errorf("cut at byte %d of %d: %d events, %d letters, and no error", byte, total, len(got.events), len(got.letters))
		}
	}
	if cut < cuts*9/10 {
		t.Errorf("of %d cuts %d were noticed", cuts, cut)
	}
}

// Who is cut at COMMIT learns what became of it from another connection, and where there
// is none is told that the outcome is unknown.
func TestCutAtCommit(t *testing.T) {
	in := newSchema(t)
	for name, f := range map[string]*faulty{"before": {before: true}, "after": {after: true}} {
		for first, want := range map[int64]error{1: nil, 2: nil, math.MaxInt64: store.ErrUnknownOutcome} {
			t.Run(fmt.Sprint(name, " of the first ", first), func(t *testing.T) {
				a := newThread(t, in)
				f.bytes = left(math.MaxInt64)
				s := openFaulty(t, a, plain{}, f, first)
				if s.resolveTimeout = time.Minute; want != nil { // there will be no answer
					s.resolveTimeout = time.Second
				}
				p, err := s.Push(context.Background(), drafts)
				if !errors.Is(err, want) || err == nil && p.Events[0].ID != 1 {
					t.Errorf("got %v, %v", p, err)
				}
				// Behind the lock it is settled.
				other, n := opened(t, a, plain{}), int64(0)
				if err := other.Update(context.Background(), func(u store.Session) error {
					n = u.(plainSession).tx.State().Count
					return nil
				}); err != nil {
					t.Fatal(err)
				}
				if stored := want == nil || f.after; n != map[bool]int64{true: 1}[stored] {
					t.Errorf("%d events", n)
				}
			})
		}
	}
}

// What is cut earlier was not stored, which is known, though fn passes over the error.
func TestCutInside(t *testing.T) {
	in := newSchema(t)
	s := opened(t, newThread(t, in), plain{})
	cut := func(x store.Tx) error {
		if _, err := x.Append(&drafts[0], "2026-03-18T10:30:00.123Z"); err != nil {
			return err
		}
		if err := x.(*tx).exec("SELECT pg_terminate_backend(pg_backend_pid())"); err == nil {
			t.Error("the connection still stands")
		}
		_ = x.Ascend(store.Dead, nil, func(_, _ []byte) (bool, error) { return true, nil })
		return nil
	}
	if err := s.View(context.Background(), func(x store.Tx) error {
		_ = x.(*tx).exec("SELECT pg_terminate_backend(pg_backend_pid())")
		return nil
	}); err == nil {
		t.Error("a view that was cut is no error")
	}
	err := s.Update(context.Background(), func(u store.Session) error { return cut(u.(plainSession).tx) })
	if err == nil || errors.Is(err, store.ErrUnknownOutcome) {
		t.Errorf("got %v", err)
	}
	if n := count(t, s); n != 0 {
		t.Errorf("%d events", n)
	}
}

// TestCutIdle: a connection that the server has ended while nothing was done with it is
// replaced, whether the server says so or not.
func TestCutIdle(t *testing.T) {
	a := newThread(t, newSchema(t))
	named := *a
	named.config = a.config.Copy()
	named.config.RuntimeParams["application_name"] = a.Schema
	s := opened(t, &named, plain{})
	for n := int64(1); n <= 3; n++ {
		if _, err := s.Push(context.Background(), drafts); err != nil {
			t.Fatalf("push %d: %v", n, err)
		}
		pid := text(string(on(t, a, "SELECT pid::text FROM pg_stat_activity WHERE application_name = $1", text(a.Schema))[0][0]))
		on(t, a, "SELECT pg_terminate_backend($1::int)", pid)
		for len(on(t, a, "SELECT 1 FROM pg_stat_activity WHERE pid = $1::int", pid)) > 0 { // it has to say good-bye
		}
		if got := count(t, s); got != n {
			t.Errorf("%d events, want %d", got, n)
		}
	}
}

// TestSeriesOfAnotherServer: a handle that comes to a server without what was stored last, as
// after a fail-over to an asynchronous standby, does not go by the ids of series of the other.
func TestSeriesOfAnotherServer(t *testing.T) {
	a, ctx := newThread(t, newSchema(t)), context.Background()
	named := *a
	named.config = a.config.Copy()
	named.config.RuntimeParams["application_name"] = a.Schema
	s := opened(t, &named, plain{})
	if _, err := s.Push(ctx, []event.Draft{{Source: "mine", Type: "t"}}); err != nil {
		t.Fatal(err)
	}
	f, err := filter.Compile("source = 'other'")
	if err != nil {
		t.Fatal(err)
	}
	kept := store.NewSelection(f, nil)
	matches := func(want ...int64) {
		t.Helper()
		var got []int64
		if err := s.View(ctx, func(tx store.Tx) error {
			got = nil
			_, err := tx.Scan(store.Scan{Selection: kept, Upto: math.MaxInt64}, func(id int64) (bool, error) {
				got = append(got, id)
				return true, nil
			})
			return err
		}); err != nil || !slices.Equal(got, want) {
			t.Errorf("the filter matches %v, want %v; %v", got, want, err)
		}
	}
	matches()
	on(t, a, "DELETE FROM threads WHERE thread = $1", text(a.Thread))
	if err := Init(ctx, a); err != nil {
		t.Fatal(err)
	}
	if _, err := opened(t, a, plain{}).Push(ctx, []event.Draft{{Source: "other", Type: "t"}}); err != nil {
		t.Fatal(err)
	}
	on(t, a, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = $1", text(a.Schema))
	for len(on(t, a, "SELECT 1 FROM pg_stat_activity WHERE application_name = $1", text(a.Schema))) > 0 { // it has to say good-bye
	}
	if _, err := s.Push(ctx, []event.Draft{{Source: "mine", Type: "t"}}); err != nil {
		t.Fatal(err)
	}
	matches(1)
	if err := s.View(ctx, func(tx store.Tx) error {
		e, ok, err := tx.Event(2)
		if err == nil && (!ok || e.Source != "mine") {
			t.Errorf("got %+v, %v", e, ok)
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
}

// A standby that has not confirmed is a warning at COMMIT. Here a trigger gives one.
func TestWarningAtCommit(t *testing.T) {
	in := newSchema(t)
	s := opened(t, newThread(t, in), plain{})
	for _, sql := range []string{
		"CREATE FUNCTION warn() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE WARNING 'not replicated'; RETURN NULL; END $$",
		"CREATE CONSTRAINT TRIGGER warn AFTER INSERT ON events DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION warn()",
	} {
		c, err := connect(context.Background(), in.config)
		if err != nil {
			t.Fatal(err)
		}
		_, err = c.Exec(context.Background(), "SET search_path = "+in.searchPath()+"; "+sql).ReadAll()
		hangUp(c)
		if err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.Push(context.Background(), drafts); !errors.Is(err, store.ErrUnknownOutcome) || !strings.Contains(err.Error(), "not replicated") {
		t.Errorf("got %v", err)
	}
}

// Who waits for the lock gives up after the timeout, or when the context ends.
func TestBusy(t *testing.T) {
	in := newSchema(t)
	a := newThread(t, in)
	s, other := opened(t, a, plain{}), opened(t, a, plain{})
	why := errors.New("why")
	if err := s.Update(context.Background(), func(store.Session) error {
		other.lockTimeout = 50 * time.Millisecond
		long, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if _, err := other.Push(long, drafts); !errors.Is(err, store.ErrBusy) {
			t.Errorf("got %v", err)
		}
		other.lockTimeout = time.Minute
		ctx, stop := context.WithTimeoutCause(context.Background(), 50*time.Millisecond, why)
		defer stop()
		if _, err := other.Push(ctx, drafts); !errors.Is(err, why) {
			t.Errorf("got %v", err)
		}
		if n := count(t, other); n != 0 { // readers do not wait
			t.Errorf("%d events", n)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if _, err := other.Push(context.Background(), drafts); err != nil {
		t.Error(err)
	}
	if n := count(t, other); n != 1 {
		t.Errorf("%d events", n)
	}
	none := *a
	none.Thread = "none"
	if err := opened(t, &none, plain{}).View(context.Background(), func(store.Tx) error { return nil }); !errors.Is(err, store.ErrNotThread) {
		t.Errorf("no thread: %v", err)
	}
	none.Schema = "none"
	if err := opened(t, &none, plain{}).View(context.Background(), func(store.Tx) error { return nil }); !errors.Is(err, store.ErrNotThread) {
		t.Errorf("no schema: %v", err)
	}
}
