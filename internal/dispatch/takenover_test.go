//go:build linux

package dispatch

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"thread/engine"
	"thread/internal/command"
	"thread/internal/faults"
)

// TestStandbyCannotWork: a standby that takes over and cannot work says why.
func TestStandbyCannotWork(t *testing.T) {
	b := newBench(t)
	t.Setenv("DISPATCH_TEST_DELAY_MS", "1")
	th := withEvent(t, b.path("other"), "true")
	defer th.Close()
	must(t, os.RemoveAll(filepath.Join(th.Dir(), "run")))
	must(t, os.WriteFile(filepath.Join(th.Dir(), "run"), nil, 0o600))
	standby := b.command(superviseVerb, modeStandby, "-thread", th.Dir())
	standby.Stdin = strings.NewReader("")
	if out, err := standby.CombinedOutput(); err == nil || !strings.Contains(string(out), "mkdir "+th.Dir()) {
		t.Errorf("%v: %s", err, out)
	}
}

// TestTakeoverHasAStandby: a process that takes over has a standby before it looks, as had the
// one before it, so that a process is left after a row of kills.
func TestTakeoverHasAStandby(t *testing.T) {
	th := withEvent(t, filepath.Join(faults.Dir(t), "t"), "true")
	defer th.Close()
	withoutProgram(t)
	r := newDispatcher(th, Options{})
	r.takeovers = 1
	s := newSupervisor(r)
	s.startStandby(t.Context())
	select {
	case <-s.standby.tried:
	default:
		t.Error("none was tried")
	}
	<-s.standby.exited
}

// TestAdoptedRunIsEnded: a run that has lost its supervisor is ended when its time is up, and
// by a server that ends, which its exit says.
func TestAdoptedRunIsEnded(t *testing.T) {
	stop := make(chan struct{})
	close(stop)
	for what, tt := range map[string]struct {
		hooks   *Hooks
		timeout time.Duration
		want    exit
	}{
		"its time is up":  {nil, time.Millisecond, exit{killed: true, text: "timed out after 1ms"}},
		"the server ends": {&Hooks{Stop: stop}, 0, exit{killed: true, stopped: true, text: "stopped with the server"}},
	} {
		th := withEvent(t, filepath.Join(faults.Dir(t), "t"), "true")
		r := newDispatcher(th, Options{})
		must(t, r.prepare())
		run := newRunID()
		cmd := (&bench{TB: t, t: th}).command("hold", filepath.Join(th.Dir(), "held"))
		cmd.Env = append(os.Environ(), envRunID+"="+run)
		detach(cmd)
		must(t, cmd.Start())
		go func() { _ = cmd.Wait() }()
		pid := cmd.Process.Pid
		h := &handler{dispatcher: r, hooks: tt.hooks, rec: &record{note: note{RunID: run}, Consumer: "c", PID: pid, Began: beganAt(pid)},
			due: engine.Due{Subscription: engine.Subscription{Consumer: "c", Timeout: tt.timeout}}}
		x, err := h.adopt(context.Background())
		if err != nil || x != tt.want {
			t.Errorf("%s: %+v, %v; want %+v", what, x, err, tt.want)
		}
		if _, runs := command.ReadStat(pid); runs && alive(pid) {
			t.Errorf("%s: it runs", what)
		}
		must(t, th.Close())
	}
}

// TestNoLeaderKeepsNothingOpen: a process that is not the one of the run is not kept open.
func TestNoLeaderKeepsNothingOpen(t *testing.T) {
	before := descriptors(t)
	for range 10 {
		if l := findLeader(&record{note: note{RunID: newRunID()}, Consumer: "c", PID: os.Getpid(), Began: 1}); l != nil {
			t.Fatal("this process is taken for a run's")
		}
	}
	if list := stayOpen(t, before); list != nil {
		t.Errorf("%q stay open", list)
	}
}

// TestUnnotedLeader: the process of a run is found by the run's id, where a supervisor notes it.
func TestUnnotedLeader(t *testing.T) {
	b := newBench(t)
	run := newRunID()
	cmd := b.command("hold", b.path("held"))
	cmd.Env = append(os.Environ(), envRunID+"="+run)
	detach(cmd)
	must(t, cmd.Start())
	defer func() { _, _ = cmd.Process.Kill(), cmd.Wait() }()
	b.until("the process has begun", func() bool { held, err := isHeld(b.path("held")); return held && err == nil })
	for _, rec := range []record{
		{note: note{RunID: run}, Consumer: "c"}, {note: note{RunID: run}, Consumer: "c", Manual: true}, {note: note{RunID: run}}, {note: note{RunID: newRunID()}, Consumer: "c"},
	} {
		want := 0
		if rec.RunID == run && !rec.Manual && rec.Consumer != "" {
			want = cmd.Process.Pid
		}
		if pid, _ := unnotedLeader(&rec); pid != want {
			t.Errorf("%+v: %d, want %d", rec, pid, want)
		}
	}
}

// TestOutputsOfTheOneBefore: what the handlers of a killed supervisor print of this thread is
// copied to their logs.
func TestOutputsOfTheOneBefore(t *testing.T) {
	th := withEvent(t, filepath.Join(faults.Dir(t), "t"), "true")
	defer th.Close()
	r := newDispatcher(th, Options{})
	must(t, r.prepare())
	state := standbyState{runs: map[string]*standbyRun{}}
	var told []string
	for _, dir := range []string{th.Dir(), "/other"} {
		reader, writer, err := os.Pipe()
		must(t, err)
		_, err = writer.WriteString("printed for " + dir + "\n")
		must(t, errors.Join(err, writer.Close()))
		state.fds = append(state.fds, reader)
		text, err := json.Marshal(&standbyRun{Dir: dir, Consumer: "c", RunID: dir})
		must(t, err)
		told = append(told, string(text))
	}
	for _, text := range append(told, "no JSON") {
		state.apply(string(rune(msgRunStarted)) + text)
	}
	state.runs["without output"] = &standbyRun{Dir: th.Dir(), Consumer: "d"}
	if len(state.runs) != 3 {
		t.Errorf("%d runs", len(state.runs))
	}
	r.copyOutputs(state.runs).Wait()
	text, err := os.ReadFile(OutputPath(th.Dir(), "c"))
	if err != nil || string(text) != "printed for "+th.Dir()+"\n" || len(r.inherited) != 1 {
		t.Errorf("%q %v, of %d runs", text, err, len(r.inherited))
	}
}

// TestSupervised: consumers that have a supervisor are counted.
func TestSupervised(t *testing.T) {
	b := newBench(t)
	must(t, b.r.prepare())
	if n := b.r.countSupervised(); n != 0 {
		t.Errorf("%d at the beginning", n)
	}
	must(t, os.WriteFile(filepath.Join(b.r.run, "idle.busy"), nil, 0o600))
	must(t, os.WriteFile(filepath.Join(b.r.run, "works.busy"), nil, 0o600))
	exclusive(t, filepath.Join(b.r.run, "works.busy"))
	if n := b.r.countSupervised(); n != 1 {
		t.Errorf("%d supervised, want 1", n)
	}
	s := newSupervisor(b.r)
	s.running = 1
	go func() { s.ended <- ended{consumer: "c", err: os.ErrClosed} }()
	if err := s.await(t.Context(), nil); !errors.Is(err, os.ErrClosed) || s.running != 0 {
		t.Errorf("the error of a run is not told: %v", err)
	}
}
