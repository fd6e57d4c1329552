package engine

import (
	"context"
	"errors"
	"testing"
	"time"

	"pgregory.net/rapid"

	"thread/event"
)

// TestOutcome: whatever a consumer's feed does, Outcome says of every event what the
// model knows.
func TestOutcome(t *testing.T) {
	ctx := context.Background()
	rapid.Check(t, func(rt *rapid.T) {
		th, err := Init(t.TempDir() + "/t")
		if err != nil {
			rt.Fatal(err)
		}
		defer th.Close()
		err = th.View(ctx, func(tx *Tx) error {
			_, err := tx.Outcome("c", 1)
			return err
		})
		if !errors.Is(err, ErrNoSubscription) {
			rt.Fatalf("without a subscription: %v", err)
		}
		if err := th.Subscribe(ctx, Subscription{Consumer: "c", Handler: "true", Filter: event.Text("type = 'a'")}); err != nil {
			rt.Fatal(err)
		}
		model := map[int64]DeliveryState{}
		for range rapid.IntRange(1, 8).Draw(rt, "events") {
			typ := rapid.SampledFrom([]string{"a", "b"}).Draw(rt, "type")
			e, err := th.Push(ctx, event.Draft{Source: "s", Type: typ, Content: "x"})
			if err != nil {
				rt.Fatal(err)
			}
			if typ == "b" {
				model[e.ID] = Unmatched
			} else {
				model[e.ID] = Unread
			}
		}
		compare := func() {
			var ids []int64
			for id := range model {
				ids = append(ids, id)
			}
			err := th.View(ctx, func(tx *Tx) error {
				got, err := tx.Outcome("c", ids...)
				for i, o := range got {
					want := model[ids[i]]
					if o.State == Waiting || o.State == Unread {
						o.State, want = Unread, max(want, 0)
						if want == Waiting {
							want = Unread
						}
					}
					if o.ID != ids[i] || o.State != want && (want != Unmatched || o.State != Acked) {
						rt.Fatalf("event %d: %v, want %v", ids[i], o.State, want)
					}
					if o.State == Dead && o.LastError != "boom" {
						rt.Fatalf("event %d died of %q", ids[i], o.LastError)
					}
				}
				return err
			})
			if err != nil {
				rt.Fatal(err)
			}
		}
		feed := th.Feed("c", Policy{MaxAttempts: 2})
		var result *Result
		for range rapid.IntRange(1, 12).Draw(rt, "steps") {
			d, err := feed.Next(ctx, result)
			if err != nil {
				rt.Fatal(err)
			}
			result = nil
			compare()
			if len(d.Events) == 0 {
				for id, state := range model {
					if state == Dead && rapid.Bool().Draw(rt, "retry") {
						err := th.Update(ctx, func(tx *Tx) error {
							ok, err := tx.Retry("c", id)
							if !ok {
								rt.Fatalf("event %d is no dead letter", id)
							}
							return err
						})
						if err != nil {
							rt.Fatal(err)
						}
						model[id] = Waiting
					}
				}
				compare()
				continue
			}
			id := d.Events[0].ID
			switch rapid.IntRange(0, 2).Draw(rt, "result") {
			case 0:
				result, model[id] = &Result{Verdict: Succeeded}, Acked
			case 1:
				result, model[id] = &Result{Verdict: Rejected, ExitCode: 65, Error: "boom"}, Dead
			case 2:
				result = &Result{Verdict: Failed, ExitCode: 1, Error: "boom"}
				if d.Attempt > 1 {
					result, model[id] = &Result{Verdict: Succeeded}, Acked
				}
			}
			if settled, err := feed.Settle(ctx, *result); err != nil || settled != (model[id] == Acked || model[id] == Dead) {
				rt.Fatalf("event %d: settled %t, %v", id, settled, err)
			}
			result = nil
			compare()
		}
		for id, state := range model {
			if state != Dead {
				continue
			}
			if err := th.Update(ctx, func(tx *Tx) error { return tx.DropDead("c", id) }); err != nil {
				rt.Fatal(err)
			}
			model[id] = Acked
		}
		compare()
	})
}

// TestOutcomeAboveMark: of deliveries side by side each settled event counts, though one
// before it waits for its next attempt, and what is known of the attempts of that is told.
func TestOutcomeAboveMark(t *testing.T) {
	ctx := context.Background()
	th, err := Init(t.TempDir() + "/t")
	if err != nil {
		t.Fatal(err)
	}
	defer th.Close()
	if err := th.Subscribe(ctx, Subscription{Consumer: "c", Handler: "true"}); err != nil {
		t.Fatal(err)
	}
	for range 4 {
		if _, err := th.Push(ctx, event.Draft{Source: "s", Type: "t", Content: "x"}); err != nil {
			t.Fatal(err)
		}
	}
	feed, err := th.ParallelFeed("c", ParallelPolicy{Policy: Policy{MaxAttempts: 2, Backoff: func(int64) time.Duration { return time.Hour }}})
	if err != nil {
		t.Fatal(err)
	}
	step := func(q Step) Given {
		t.Helper()
		g, err := feed.Step(ctx, q)
		if err != nil {
			t.Fatal(err)
		}
		return g
	}
	want := func(states ...DeliveryState) (got []Outcome) {
		t.Helper()
		err := th.View(ctx, func(tx *Tx) (err error) {
			got, err = tx.Outcome("c", 1, 2, 3, 4)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		for i, o := range got {
			one, _, err := standingOf(th, o.ID)
			if o.State != states[i] || one != o.State || err != nil {
				t.Errorf("event %d: %v and %v, want %v, %v", o.ID, o.State, one, states[i], err)
			}
		}
		return got
	}
	g := step(Step{Begin: 3})
	if len(g.Begin) != 3 {
		t.Fatalf("%+v", g)
	}
	want(Unread, Unread, Unread, Unread)
	step(Step{Results: []DeliveryResult{{Number: g.Begin[0].Number(), Result: Result{Verdict: Failed, Error: "killed"}},
		{Number: g.Begin[1].Number(), Result: Result{Verdict: Succeeded}}, {Number: g.Begin[2].Number(), Result: Result{Verdict: Rejected, Error: "no"}}}})
	got := want(Unread, Acked, Dead, Unread)
	if got[0].Attempts != 1 || got[0].LastError != "killed" || got[2].LastError != "no" {
		t.Errorf("%+v", got)
	}
	if err := th.Seek(ctx, "c", 0); err != nil {
		t.Fatal(err)
	}
	want(Unread, Unread, Dead, Unread)
}

func standingOf(th *Thread, id int64) (state DeliveryState, f Failures, err error) {
	err = th.View(context.Background(), func(tx *Tx) (err error) {
		state, f, err = tx.Standing("c", id)
		return err
	})
	return state, f, err
}
