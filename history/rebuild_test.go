package history

import (
	"errors"
	"fmt"
	"os"
	"sort"
	"testing"

	"pgregory.net/rapid"

	"thread/engine"
	"thread/event"
)

// TestRebuild: after any interleaving of what can be done, the tables are what the
// log says, every row has one history event per write (H-06), and the queue and its
// ready runs are what going through all runs says (H-10, H-16).
func TestRebuild(t *testing.T) {
	base := t.TempDir()
	rapid.Check(t, func(t *rapid.T) {
		dir, err := os.MkdirTemp(base, "")
		ok(t, err)
		defer os.RemoveAll(dir)
		c := newClock()
		h := openIn(t, dir, WithClock(c.Now))
		for _, id := range []string{"a", "b"} {
			session(t, h, id)
		}
		var runs []*Run
		pick := func() string {
			list := all(t, h.Runs(ctx, Query{}))
			if len(list) == 0 {
				return "none"
			}
			return list[rapid.IntRange(0, len(list)-1).Draw(t, "run")].ID
		}
		expected := func(err error) {
			t.Helper()
			for _, of := range []error{nil, ErrEnded, ErrRecovered, ErrState, ErrNotFound, ErrActive, ErrNoneReady, ErrExists} {
				if errors.Is(err, of) {
					return
				}
			}
			t.Fatal(err)
		}
		names := rapid.SampledFrom([]string{"", "a", "b"})
		t.Repeat(map[string]func(*rapid.T){
			"start": func(t *rapid.T) {
				_, err := h.StartRun(ctx, RunRow{SessionID: names.Draw(t, "session")})
				expected(err)
			},
			"enqueue": func(t *rapid.T) {
				_, err := h.Enqueue(ctx, RunRow{SessionID: names.Draw(t, "session"), InitiatorRef: "u"})
				expected(err)
			},
			"claim": func(t *rapid.T) {
				want := readyByHand(t, h)
				r, _, err := h.Claim(ctx)
				if got := errors.Is(err, ErrNoneReady); got != (want == "") || !got && r.ID() != want {
					t.Fatalf("claimed %v, %v, want %q", r, err, want)
				}
				if r != nil {
					runs = append(runs, r)
				}
			},
			"end": func(t *rapid.T) {
				if len(runs) > 0 {
					r := runs[rapid.IntRange(0, len(runs)-1).Draw(t, "of")]
					expected(r.End(ctx, End{Status: rapid.SampledFrom([]string{Completed, Failed, TimedOut}).Draw(t, "status")}))
				}
			},
			"end any": func(t *rapid.T) { expected(h.Attach(pick(), 0).End(ctx, End{Status: Failed})) },
			"wait":    func(t *rapid.T) { expected(h.Attach(pick(), 0).Waits(ctx, true)) },
			"switch":  func(t *rapid.T) { expected(h.Attach(pick(), 0).Switch(ctx, "other")) },
			"requeue": func(t *rapid.T) { _, err := h.Requeue(ctx, pick()); expected(err) },
			"cancel":  func(t *rapid.T) { _, err := h.Cancel(ctx, pick()); expected(err) },
			"toolcall": func(t *rapid.T) {
				_, err := h.Attach(pick(), 0).ToolCall(ctx, ToolCallRow{ToolName: "sh"})
				expected(err)
			},
			"step": func(t *rapid.T) { _, err := h.Attach(pick(), 0).Step(ctx, StepRow{StepType: "x"}); expected(err) },
			"message": func(t *rapid.T) {
				expected(h.Put(ctx, &MessageRow{SessionID: names.Draw(t, "session") + "a", Role: "user", Content: raw(`"x"`)}))
			},
			"delete": func(t *rapid.T) {
				id := names.Draw(t, "session")
				if err := h.DeleteSession(ctx, id); err == nil {
					session(t, h, id)
				} else {
					expected(err)
				}
			},
			"recover": func(t *rapid.T) {
				c.add(20e9)
				_, err := h.Recover(ctx, RecoverOptions{Strategy: rapid.SampledFrom([]Strategy{Fail, RequeueRunning, RequeueAll}).Draw(t, "strategy")})
				expected(err)
			},
			"prune": func(t *rapid.T) {
				keep := rapid.Int64Range(0, 20).Draw(t, "keep")
				before := contents(t, h)
				_, _, err := h.Prune(ctx, engine.Retention{KeepLast: &keep})
				ok(t, err)
				if now := contents(t, h); now != before {
					t.Fatalf("pruning changed\n%s to\n%s", before, now)
				}
			},
			"failing": func(t *rapid.T) {
				head := one[int64](t)(h.Head(ctx))
				mine := errors.New("mine")
				if err := h.Update(ctx, func(tx *Tx) error { return errors.Join(tx.Put(&RunRow{Status: Queued}), mine) }); !errors.Is(err, mine) {
					t.Fatal(err)
				}
				if now := one[int64](t)(h.Head(ctx)); now != head {
					t.Fatalf("a failed transaction left events: %d, then %d", head, now)
				}
			},
			"rebuild": func(t *rapid.T) { rebuilt(t, h) },
		})
		rebuilt(t, h)
	})
}

// contents returns all rows and where they stand in their order.
func contents(t tester, h *History) string {
	t.Helper()
	var lines []string
	ok(t, h.View(ctx, func(tx *Tx) error {
		for rec := range tx.rows.Ascend(nil, nil) {
			for e, tag := range entityTags {
				if tag == rec.Key[0] {
					row := NewRow(e)
					v, found, err := tx.read(row, rec.Key)
					if err != nil || !found {
						return fmt.Errorf("%q: %v, %w", rec.Key, found, err)
					}
					lines = append(lines, fmt.Sprintf("%q %d %s %s", rec.Key, v.first, v.session, text(row)))
				}
			}
		}
		return nil
	}))
	sort.Strings(lines)
	return fmt.Sprint(lines)
}

// readyByHand returns the run that Claim must take, found by looking at all.
func readyByHand(t tester, h *History) string {
	t.Helper()
	busy := map[string]bool{}
	runs := all(t, h.Runs(ctx, Query{Oldest: true}))
	for _, r := range runs {
		busy[r.SessionID] = busy[r.SessionID] || r.Active()
	}
	for _, r := range runs {
		if r.Status == Queued && (r.SessionID == "" || !busy[r.SessionID]) {
			return r.ID
		}
	}
	return ""
}

// TestForeignEvents: what is not a history event is passed over when the tables are
// rebuilt.
func TestForeignEvents(t *testing.T) {
	h := inbox(t)
	session(t, h, "S")
	th := one[*engine.Thread](t)(h.Thread())
	_, err := th.Push(ctx, event.Draft{Source: "someone", Type: "run", Content: "hello"})
	ok(t, err)
	rebuilt(t, h)
	if s := ids(t, h.Sessions(ctx, Query{})); s != "S " {
		t.Errorf("%q", s)
	}
}
