package history

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"thread/engine"
	"thread/internal/faults"
	"thread/lock"
)

// TestRunOfAHandlerThatIsSilent: the run of a handler lives while its consumer has a supervisor
// whose record says that it is this run. Any other run is silent, whatever its metadata has.
func TestRunOfAHandlerThatIsSilent(t *testing.T) {
	for name, tt := range map[string]struct {
		metadata   string
		busy, held bool
		record     string
		alive      bool
	}{
		"no supervisor":            {metadata: `{"handler":{"exit":""}}`},
		"one that has ended":       {metadata: `{"handler":{"exit":""}}`, busy: true, record: `{"run_id":"r"}`},
		"of another run":           {metadata: `{"handler":{"exit":""}}`, busy: true, held: true, record: `{"run_id":"other"}`},
		"without a record":         {metadata: `{"handler":{"exit":""}}`, busy: true, held: true},
		"of this one":              {metadata: `{"handler":{"exit":""}}`, busy: true, held: true, record: `{"run_id":"r"}`, alive: true},
		"not a handler: null":      {metadata: `{"handler":null}`, busy: true, held: true, record: `{"run_id":"r"}`},
		"not a handler: a member":  {metadata: `{"x":{"handler":{}}}`, busy: true, held: true, record: `{"run_id":"r"}`},
		"not a handler: a number":  {metadata: `{"handler":7}`, busy: true, held: true, record: `{"run_id":"r"}`},
		"no metadata":              {busy: true, held: true, record: `{"run_id":"r"}`},
		"of this one, with others": {metadata: `{"a":1,"handler":{"acked_from":4}}`, busy: true, held: true, record: `{"run_id":"r"}`, alive: true},
	} {
		c := newClock()
		h := inbox(t, WithClock(c.Now))
		r := one[*Run](t)(h.StartRun(ctx, RunRow{ID: "r", AgentName: "mail", Metadata: raw(tt.metadata)}))
		ok(t, r.BeatOnce(ctx))
		r.Leave()
		busy, record := filepath.Join(h.parent, "run", "mail.busy"), filepath.Join(h.parent, "logs", "handlers", "mail.run")
		ok(t, os.MkdirAll(filepath.Dir(record), 0o700))
		if tt.busy {
			ok(t, os.WriteFile(busy, nil, 0o600))
		}
		if tt.record != "" {
			ok(t, os.WriteFile(record, []byte(tt.record), 0o600))
		}
		if tt.held {
			held := one[*lock.File](t)(lock.Try(busy, lock.Exclusive))
			defer held.Close()
		}
		c.add(time.Hour)
		list := one[[]RunRow](t)(h.Recover(ctx, RecoverOptions{}))
		if is := row(t, h, "r"); tt.alive != (len(list) == 0) || tt.alive != (is.Status == Running) {
			t.Errorf("%s: %d recovered: %s", name, len(list), text(&is))
		}
	}
}

// TestFailuresOfABeat: a beat whose file is missing makes it, or returns an error and leaves
// nothing open; the next beat succeeds.
func TestFailuresOfABeat(t *testing.T) {
	faults.Each(t, syscall.EIO, append([]string{"close"}, ofFiles...), func(t *testing.T, f *faults.Fault) {
		dir := faults.Dir(t)
		c := newClock()
		h := openIn(t, dir, WithClock(c.Now))
		r := one[*Run](t)(h.StartRun(ctx, RunRow{ID: "r"}))
		ok(t, r.BeatOnce(ctx))
		ok(t, os.Remove(h.beatPath("r")))
		c.add(time.Minute)
		var failed error
		f.Run(t, dir, func() { failed = h.touch(ctx, "r") })
		switch at := h.beatOf("r"); {
		case f.Hit == nil && failed != nil:
			t.Error(failed)
		case failed == nil && !at.Equal(c.Now()):
			t.Errorf("it beat at %v, without an error after %v", at, f.Hit)
		}
		ok(t, r.BeatOnce(ctx))
		if at := h.beatOf("r"); !at.Equal(c.Now()) {
			t.Errorf("it beat at %v, after %v", at, f.Hit)
		}
		r.Leave()
		ends(t, h, dir)
	})
}

// TestKeptEndOfADamagedStep: a run whose step cannot be read is not recovered, and its end stays
// kept until the step can be read again.
func TestKeptEndOfADamagedStep(t *testing.T) {
	c := newClock()
	h := inbox(t, WithClock(c.Now))
	step := StepRow{RunID: "r", StepType: "command", Status: Running}
	r := one[*Run](t)(h.StartRun(ctx, RunRow{ID: "r"}, Supervised(), With(func(tx *Tx, _ *RunRow) error { return tx.Put(&step) })))
	step.Output = raw(`{"exit_code":0}`)
	ok(t, r.Keep(End{Status: Completed}, &step))
	c.add(time.Hour)
	key := rowKey(step.Entity(), step.ID)
	var was []byte
	put := func(value func(was []byte) []byte) {
		t.Helper()
		ok(t, h.Update(ctx, func(tx *Tx) error {
			old := append([]byte{}, tx.rows.Get(key)...)
			defer func() { was = old }()
			return tx.rows.Put(key, value(old))
		}))
	}
	put(func(old []byte) []byte { return append(old[:len(old):len(old)], "x"...) })
	whole := was
	if list, err := h.Recover(ctx, RecoverOptions{}); len(list) != 0 || !errors.Is(err, engine.ErrCorrupt) {
		t.Errorf("%d recovered, %v", len(list), err)
	}
	if is := row(t, h, "r"); is.Status != Running {
		t.Errorf("%s", text(&is))
	}
	put(func([]byte) []byte { return whole })
	one[[]RunRow](t)(h.Recover(ctx, RecoverOptions{}))
	if is := row(t, h, "r"); is.Status != Completed {
		t.Errorf("%s", text(&is))
	}
	for s := range h.Steps(ctx, "r") {
		if s.Status != Completed || string(s.Output) != `{"exit_code":0}` {
			t.Errorf("its step is %s", text(&s))
		}
	}
}

// TestDamagedMetadata: a run whose metadata is not JSON any more is neither recovered nor given
// back to the queue, and stays as it is.
func TestDamagedMetadata(t *testing.T) {
	for _, ended := range []bool{false, true} {
		c := newClock()
		h := inbox(t, WithClock(c.Now))
		r := one[*Run](t)(h.StartRun(ctx, RunRow{ID: "r", Metadata: raw(`{"a":1}`)}))
		if ended {
			ok(t, r.End(ctx, End{Status: Failed}))
		}
		r.Leave()
		ok(t, h.Update(ctx, func(tx *Tx) error {
			key := rowKey(RunEntity, "r")
			return tx.rows.Put(key, bytes.Replace(tx.rows.Get(key), []byte(`{"a":1}`), []byte(`{"a":1x`), 1))
		}))
		before := row(t, h, "r")
		var err error
		if ended {
			_, err = h.Requeue(ctx, "r")
		} else {
			ok(t, h.touch(ctx, "r"))
			c.add(time.Hour)
			_, err = h.Recover(ctx, RecoverOptions{})
		}
		if err == nil {
			t.Errorf("ended: %v: %s", ended, before.Metadata)
		}
		if is := row(t, h, "r"); is.Status != before.Status || string(is.Metadata) != `{"a":1x` {
			t.Errorf("%s became %s of %s", before.Status, is.Status, is.Metadata)
		}
	}
}
