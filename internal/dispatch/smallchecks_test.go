//go:build linux

package dispatch

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"thread/engine"
	"thread/internal/faults"
	"thread/lock"
)

// TestNextDelayed: a process waits for an event that falls due soon, and for none that is far
// away or that a server attends to.
func TestNextDelayed(t *testing.T) {
	b := newBench(t)
	t.Setenv(envDispatch, wakeNone)
	must(t, b.r.prepare())
	waits := func(what string, want bool) {
		t.Helper()
		at, err := b.r.nextDelayed(t.Context())
		if err != nil || at.IsZero() == want {
			t.Errorf("%s: it waits until %v, %v", what, at, err)
		}
	}
	waits("nothing is scheduled", false)
	b.later("s", 2*MaxTimerWait)
	waits("it is far away", false)
	b.later("s", MaxTimerWait/2)
	waits("it is near", true)
	server := b.server()
	pings, err := server.Listen()
	must(t, err)
	waits("there is a server", false)
	must(t, pings.Close())
	waits("the server has ended", true)
}

// TestLogsCannotBeWritten: a dispatch says whose the logs are that its handlers cannot write.
func TestLogsCannotBeWritten(t *testing.T) {
	b := newBench(t)
	must(t, b.r.makeOutputDir())
	must(t, b.r.checkLogs())
	for at, errno := range []syscall.Errno{syscall.EACCES, syscall.EACCES, syscall.ENOENT} {
		f := also(errno, at%2+1, "faccessat")()
		var err error
		f.Run(t, b.t.Dir(), func() { err = b.r.checkLogs() })
		if f.Hit == nil || errors.Is(err, fs.ErrPermission) != (errno == syscall.EACCES) {
			t.Errorf("%v: %v", errno, err)
		}
	}
}

// TestEndedRunIsNotSaidToStandby: what a standby knows are the runs in progress, in their order.
func TestEndedRunIsNotSaidToStandby(t *testing.T) {
	s := &standby{}
	var runs []*standbyRun
	for i := range 3 {
		runs = append(runs, &standbyRun{RunID: fmt.Sprint(i)})
		s.runStarted(runs[i])
	}
	s.runEnded(runs[1])
	if len(s.runs) != 2 || s.runs[0] != runs[0] || s.runs[1] != runs[2] {
		t.Errorf("%v are known", s.runs)
	}
}

// TestLookIsRepeated: a supervisor that cannot read its thread looks again, and ends with the
// error when that has failed too often.
func TestLookIsRepeated(t *testing.T) {
	quickly(t)
	withoutProgram(t)
	for failures, want := range map[int]error{1: nil, maxTries - 1: nil, maxTries: errRead} {
		dir := filepath.Join(faults.Dir(t), "t")
		must(t, withEvent(t, dir, "exit 0").Close())
		th, reads := unreadableThread(t, dir)
		reads.at, reads.more = 1, failures-1
		err := newSupervisor(newDispatcher(th, Options{})).work(t.Context())
		if !errors.Is(err, want) || want == nil && err != nil {
			t.Errorf("%d failures: %v", failures, err)
		}
		if s, err := Status(th, "c"); err != nil || (s.LastExit == "exit 0") != (want == nil) {
			t.Errorf("%d failures: %+v, %v", failures, s, err)
		}
		if reads.more != 0 {
			t.Errorf("%d failures, and %d were not met", failures, reads.more)
		}
	}
}

// TestServerIsGone: when a server has gone, the connection to it is closed, and each delivery
// that waits has its turn.
func TestServerIsGone(t *testing.T) {
	gone := &endedConn{}
	q := &Turns{}
	turn := &Turn{t: q, come: make(chan error, 1), abort: make(chan struct{})}
	c := &turnConn{ReadWriteCloser: gone, asked: map[int64]*Turn{1: turn}}
	q.conn = c
	q.receive(c, json.NewDecoder(c))
	if err := <-turn.come; err != nil || !gone.closed || q.conn != nil || c.asked != nil {
		t.Errorf("%v, closed: %v, %+v", err, gone.closed, q)
	}
}

type endedConn struct{ closed bool }

func (c *endedConn) Read([]byte) (int, error)    { return 0, io.EOF }
func (c *endedConn) Write(p []byte) (int, error) { return len(p), nil }
func (c *endedConn) Close() error                { c.closed = true; return nil }

// TestCopiesOfALog: of the copies of a log that may have been rotated while a handler printed,
// the newest stay. One that has more than was printed was not rotated.
func TestCopiesOfALog(t *testing.T) {
	for printed, want := range map[int64]int{99: outputCopies + 2, 100: outputCopies, 101: outputCopies} {
		b := newBench(t)
		path := OutputPath(b.t.Dir(), "c")
		must(t, b.r.makeOutputDir())
		must(t, os.WriteFile(path, make([]byte, 100), 0o600))
		var copies []string // the newest first
		for i := range outputCopies + 2 {
			at := time.Date(2026, 1, 9-i, 0, 0, 0, 0, time.UTC).Format(lumberjackTime)
			copies = append(copies, strings.TrimSuffix(path, ".log")+"-"+at+".log")
			must(t, os.WriteFile(copies[i], nil, 0o600))
		}
		o, err := b.r.openOutput("c")
		must(t, err)
		o.bytes = printed
		o.close()
		for i, name := range copies {
			if exists(name) != (i < want) {
				t.Errorf("%d bytes were printed; copy %d is there: %v", printed, i, exists(name))
			}
		}
	}
}

// TestSocketIsOfTheGroup: the socket of a thread whose group may push is of that group.
func TestSocketIsOfTheGroup(t *testing.T) {
	asRoot(t)
	b := newBench(t)
	must(t, b.r.prepare())
	db := filepath.Join(b.t.Dir(), "events.db")
	must(t, errors.Join(os.Chown(db, -1, 4321), os.Chmod(db, 0o660)))
	p, err := b.r.listen()
	must(t, err)
	defer p.Close()
	info, err := os.Lstat(filepath.Join(b.r.run, wakeSocket))
	must(t, err)
	if of, ok := statOf(info); !ok || of.gid != 4321 || info.Mode().Perm() != 0o660 {
		t.Errorf("it is %v of group %d", info.Mode(), of.gid)
	}
}

// TestIsWorkedFor: a handler has ended when nothing of its run holds the consumer, whatever
// another run has left.
func TestIsWorkedFor(t *testing.T) {
	b := newBench(t)
	must(t, b.r.prepare())
	h := &handler{dispatcher: b.r, rec: &record{note: note{RunID: "mine"}}}
	if h.isWorkedFor("c") {
		t.Error("there is no lock, and it is worked for")
	}
	for _, tt := range []struct {
		w    work
		want bool
	}{
		{work{run: "mine"}, true}, {work{run: "mine", released: true}, false}, {work{run: "other"}, false}, {work{run: "other", released: true}, false},
	} {
		l := exclusive(t, b.r.workLockPath("c"))
		tt.w.write(l.File())
		if !h.isWorkedFor("c") {
			t.Errorf("%+v, held: it is not worked for", tt.w)
		}
		release(l)
		if got := h.isWorkedFor("c"); got != tt.want {
			t.Errorf("%+v: %v", tt.w, got)
		}
	}
	if _, err := lock.Try(b.r.workLockPath("c"), lock.Exclusive); err != nil {
		t.Errorf("the question holds the lock: %v", err)
	}
}

// TestServerStandbyWithoutLink: the standby of a server that cannot read what it is sent says so.
func TestServerStandbyWithoutLink(t *testing.T) {
	b := newBench(t)
	dir, err := os.Open(t.TempDir()) // which cannot be read as a file
	must(t, err)
	defer dir.Close()
	standby := b.command(superviseVerb, modeServerStandby)
	standby.Stdin = dir
	if out, err := standby.CombinedOutput(); err == nil || !strings.Contains(string(out), syscall.EISDIR.Error()) {
		t.Errorf("%v: %s", err, out)
	}
}

// TestSlotKeepsItsPipe: the files of a slot are made once, and again only when they are gone.
func TestSlotKeepsItsPipe(t *testing.T) {
	dir := t.TempDir()
	q := &Turns{place: dir, control: dir, consumer: "c", files: map[int]*deliveryFiles{}}
	turn, err := q.Wait(context.Background(), 3, nil, 1)
	must(t, err)
	turn.Environment()
	first := q.files[3]
	if turn.Environment(); first == nil || q.files[3] != first {
		t.Error("the files are made anew")
	}
	must(t, os.Remove(first.path))
	if turn.Environment(); q.files[3] == first {
		t.Error("files that are gone are kept")
	}
	if _, err := first.pipe.Stat(); err == nil {
		t.Error("the pipe of before is open")
	}
}

// TestTakeNextCannotBeRepeated: a lease that cannot be had after a consumer was locked is an
// error, and the consumer is not locked any more.
func TestTakeNextCannotBeRepeated(t *testing.T) {
	t.Setenv(envDispatch, wakeNone)
	ctx := context.Background()
	for at := 1; ; at++ {
		dir := filepath.Join(faults.Dir(t), "t")
		th, err := engine.Init(dir)
		must(t, err)
		must(t, th.Subscribe(ctx, engine.Subscription{Consumer: "c", Pull: true}))
		(&bench{TB: t, t: th}).push("s")
		feed := th.Feed("c", engine.Policy{})
		_, err = feed.Next(ctx, nil)
		must(t, err)
		feed.Close() // with the event in flight
		must(t, th.Close())
		th, reads := unreadableThread(t, dir)
		reads.at = at
		_, err = TakeNext(ctx, th, "c", engine.NextOptions{})
		met := reads.at <= 0
		reads.at = 0
		if met != errors.Is(err, errRead) || !met && err != nil {
			t.Errorf("transaction %d: %v", at, err)
		}
		lockAndRelease(t, th)
		if !met {
			break
		}
	}
}
