package engine

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"thread/event"
)

// TestAtOnce: events that the policy settles where they begin leave what they leave when
// they are given out and succeed, in the same order with the others, in fewer commits; and
// an error of it changes nothing.
func TestAtOnce(t *testing.T) {
	mine := errors.New("mine")
	runs := 0
	rapid.Check(t, func(rt *rapid.T) {
		if runs++; runs > 6 && !t.Failed() {
			return // each of them syncs some hundred times
		}
		n := rapid.IntRange(1, 30).Draw(rt, "events")
		bad := rapid.SliceOfN(rapid.Int64Range(1, int64(n)), 0, 6).Draw(rt, "failing")
		loud := rapid.SliceOfN(rapid.Int64Range(1, int64(n)), 0, 6).Draw(rt, "given out")
		loud = append(loud, bad...)
		p := Policy{MaxAttempts: 2, Unordered: rapid.Bool().Draw(rt, "unordered")}
		limit := rapid.Int64Range(1, 3).Draw(rt, "limit")
		p.Limit = limit
		if limit > 1 {
			loud = nil // groups are given out
		}
		once := rapid.IntRange(0, 6).Draw(rt, "error at")
		if runs == 1 { // all at once, in as few commits as can be
			n, loud, bad, p.Limit, limit, once = 2*mostAtOnce+5, nil, nil, 1, 1, 0
		}
		var left [2]string
		var commits [2]int
		for side := range left {
			th, err := Init(filepath.Join(t.TempDir(), "thread"), WithClock(func() time.Time { return time.UnixMilli(1_800_000_000_000) }))
			if err != nil {
				rt.Fatal(err)
			}
			if err := th.Subscribe(ctx, Subscription{Consumer: "c", Handler: "true"}); err != nil {
				rt.Fatal(err)
			}
			for range n {
				if _, err := th.Push(ctx, event.Draft{Source: "s", Type: "t"}); err != nil {
					rt.Fatal(err)
				}
			}
			log := ""
			p := p
			p.OnSettled = func(_ *Tx, s *Settled) error {
				log += fmt.Sprint(" ", s.First, "-", s.Last, s.Acked, s.Dead, s.Interrupted)
				return nil
			}
			if side == 1 {
				asked := 0
				p.AtOnce = func(_ *Tx, d *Delivery) (bool, error) {
					if asked++; asked == once {
						return false, mine
					}
					return limit == 1 && !slices.Contains(loud, d.Events[0].ID), nil
				}
			}
			f := th.Feed("c", p)
			var result *Result
			for {
				before := log
				d, err := f.Next(ctx, result)
				commits[side]++
				if errors.Is(err, mine) && side == 1 {
					log = before // rolled back
					continue
				}
				if err != nil {
					rt.Fatal(err)
				}
				if len(d.Events) == 0 {
					break
				}
				result = &Result{Verdict: Succeeded}
				if len(d.Events) == 1 && slices.Contains(bad, d.Events[0].ID) {
					result.Verdict = Failed
				}
			}
			var progress Progress
			if err := th.View(ctx, func(tx *Tx) (err error) { progress, _, err = tx.Progress("c"); return err }); err != nil {
				rt.Fatal(err)
			}
			dead := ""
			for l, err := range th.DeadLetters(ctx, DeadLetterQuery{Consumer: "c"}) {
				if err != nil {
					rt.Fatal(err)
				}
				dead += fmt.Sprint(" ", l.Event.ID, l.Attempts)
			}
			left[side] = fmt.Sprint(progress.LastAcked, dead, log)
		}
		if left[0] != left[1] {
			rt.Fatalf("given out:\n%s\nat once:\n%s", left[0], left[1])
		}
		if runs == 1 && commits[1] > 20 { // a busy machine ends transactions early
			rt.Errorf("%d commits for %d events", commits[1], n)
		}
	})
}
