package engine

import (
	"context"
	"errors"
	"testing"

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
