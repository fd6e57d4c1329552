//go:build linux

package dispatch

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"thread/engine"
	"thread/internal/faults"
	"thread/internal/programs"
)

// TestStatusOfAnEndedRun: the status and the error code that a run has in the history, by how
// it ended, and whether the history is told at once: of a failure, and of what waits since
// before.
func TestStatusOfAnEndedRun(t *testing.T) {
	ctx := context.Background()
	b := newBench(t)
	told := b.fifo("told")
	path := os.Getenv("PATH")
	t.Setenv("PATH", program(t, programs.History, `echo "$1 $2" > "$D/told"`)+string(os.PathListSeparator)+path)
	b.push("s")
	must(t, b.r.prepare())
	other := newRunID()
	for _, tt := range []struct {
		what         string
		e            ending
		x            exit
		dead         int64
		run          string // that the dead letters are of, "" for this one
		status, code string
		now          bool
	}{
		{"it went well", ending{ok: true}, exit{ok: true, text: "exit 0"}, 0, "", "completed", "", false},
		{"with a dead letter", ending{ok: true}, exit{ok: true, text: "exit 0"}, 1, "", "failed", codeDeadLetter, true},
		{"with one of another run", ending{ok: true}, exit{ok: true, text: "exit 0"}, 1, other, "completed", "", false},
		{"it failed", ending{}, exit{text: "exit 1"}, 0, "", "failed", "", true},
		{"it failed with a dead letter", ending{}, exit{text: "exit 1"}, 1, "", "failed", "", true},
		{"it was aborted", ending{}, exit{text: exitAborted}, 0, "", "cancelled", "", true},
		{"the server ended", ending{stopped: true}, exit{stopped: true, text: "stopped with the server"}, 0, "", "cancelled", "", true},
		{"its time was up", ending{}, exit{text: exitTimedOut + "1s"}, 0, "", "timed_out", "", true},
	} {
		must(t, os.RemoveAll(EndedDir(b.t.Dir())))
		s := newSupervisor(b.r)
		now := time.Now()
		n := note{RunID: newRunID(), StartedAt: now, EndedAt: &now}
		h := &handler{dispatcher: b.r, rec: &record{note: n, First: 1}, due: engine.Due{Subscription: engine.Subscription{Consumer: "c", Handler: "true"}}}
		l := exclusive(t, b.r.workLockPath("c"))
		run := n.RunID
		if tt.run != "" {
			run = tt.run
		}
		work{run: run, dead: tt.dead, released: true}.write(l.File())
		release(l)
		s.recordEnd(ctx, h, &n, tt.e, tt.x, 1)
		list := b.endedRuns()
		if len(list) != 1 || list[0].Status != tt.status || list[0].ErrorCode != tt.code || list[0].Source != "s" {
			t.Errorf("%s: %+v", tt.what, list)
		}
		if strings.Contains(b.log(), "WARN") {
			t.Errorf("%s: it says %s", tt.what, b.log())
		}
		if waits := b.r.takeLater != nil; waits == tt.now {
			t.Errorf("%s: the history is told later: %v", tt.what, waits)
		}
		if tt.now {
			if got := told.line(); got != "history take" {
				t.Errorf("%s: the history is told %q", tt.what, got)
			}
		}
	}
}

// TestNothingIsRecorded: where recording is off, a run that has ended leaves nothing.
func TestNothingIsRecorded(t *testing.T) {
	ctx := context.Background()
	th := withEvent(t, filepath.Join(faults.Dir(t), "t"), "true")
	defer th.Close()
	must(t, th.Update(ctx, func(tx *engine.Tx) error {
		settings, err := tx.Records(runsTable)
		must(t, err)
		return settings.Put([]byte(runsOffKey), []byte("1"))
	}))
	s := newSupervisor(newDispatcher(th, Options{}))
	now := time.Now()
	n := note{RunID: newRunID(), StartedAt: now, EndedAt: &now}
	h := &handler{dispatcher: s.dispatcher, rec: &record{note: n, First: 1}, due: engine.Due{Subscription: engine.Subscription{Consumer: "c"}}}
	s.recordEnd(ctx, h, &n, ending{}, exit{text: "exit 1"}, 1)
	if exists(EndedDir(th.Dir())) {
		t.Error("it is left to the history")
	}
}

// TestFailuresOfLeaving: when a system call of leaving a run fails, the run is there, or an
// error and nothing of it.
func TestFailuresOfLeaving(t *testing.T) {
	faults.Each(t, syscall.EIO, nil, func(t *testing.T, f *faults.Fault) {
		dir := faults.Dir(t)
		run := EndedRun{RunID: newRunID(), EndedAt: time.Now()}
		var err error
		f.Run(t, dir, func() { _, err = run.Leave(dir, false) })
		entries, _ := os.ReadDir(EndedDir(dir))
		var names []string
		for _, e := range entries {
			names = append(names, filepath.Ext(e.Name()))
		}
		switch {
		case err == nil && !slices.Equal(names, []string{endedFailed}), f.Hit == nil && err != nil:
			t.Errorf("%q are left, %v", names, err)
		case f.Hit == nil && (len(f.Names("fsync")) != 2 || f.Names("fsync")[1] != "fsync ./logs/runs"):
			t.Errorf("it is not on the disk: %v", f.Calls)
		case slices.Contains(names, ".new") && f.Hit.Name != "unlinkat":
			t.Errorf("%q are left after %v", names, err)
		}
		if open := faults.Open(t, dir); open != nil {
			t.Errorf("open are %q", open)
		}
	})
}
