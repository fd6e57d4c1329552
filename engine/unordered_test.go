package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"thread/event"
)

func ok[V any](v V, err error) func(*testing.T) V {
	return func(t *testing.T) V {
		t.Helper()
		noError(t, err)
		return v
	}
}

func noError(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// O-07: an unordered feed gives out what is due first, by time and then by id, and
// nothing waits for an event that has failed. It is held against a plain list,
// through failures, postponements, dead letters that are sent back, and users that
// die with a delivery.
func TestUnorderedModel(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		now := time.UnixMilli(1_800_000_000_000)
		th := ok(Init(t.TempDir()+fmt.Sprint("/", now.UnixNano()), WithClock(func() time.Time { return now })))(t)
		defer Destroy(th.Dir())
		ctx := context.Background()
		noError(t, th.Subscribe(ctx, Subscription{Consumer: "c", Handler: "true", Filter: event.Text("type = 'x'")}))
		const attempts = 3
		var settled []Settled
		policy := Policy{Unordered: true, MaxAttempts: attempts, Backoff: func(n int64) time.Duration { return time.Duration(n) * time.Second },
			OnSettled: func(_ *Tx, s *Settled) error { settled = append(settled, *s); return nil }}
		feed := th.Feed("c", policy)

		type item struct {
			id       int64
			at       time.Time // not before
			attempts int64     // in this round
			total    int64
			dead     bool
			waiting  bool
		}
		var items []*item
		var out *item
		// first is what must be given out now.
		first := func() *item {
			var best *item
			for _, it := range items {
				if it.dead || it.at.After(now) {
					continue
				}
				if best == nil || it.at.Before(best.at) || it.at.Equal(best.at) && it.id < best.id {
					best = it
				}
			}
			return best
		}
		failed := func(it *item) {
			it.attempts++
			it.total++
			it.waiting = true
			it.at = now.Add(time.Duration(it.attempts) * time.Second)
			if it.attempts == attempts {
				it.dead = true
			}
		}
		next := func(r *Result) {
			d := ok(feed.Next(ctx, r))(t)
			want := first()
			if (want == nil) != (len(d.Events) == 0) || want != nil && (d.Events[0].ID != want.id || d.Attempt != want.total+1 || d.Retry != want.waiting) {
				rt.Fatalf("got %+v, want %+v", d, want)
			}
			if out = want; want == nil && !d.NotBefore.IsZero() {
				for _, it := range items {
					if !it.dead && it.at.Before(d.NotBefore) {
						rt.Fatalf("not before %v, but event %d waits until %v", d.NotBefore, it.id, it.at)
					}
				}
			}
		}
		end := func(v Verdict, wait time.Duration) *Result {
			r := &Result{Verdict: v, ExitCode: 1, Error: "e"}
			if wait > 0 {
				r.NotBefore = now.Add(wait)
			}
			switch it := out; v {
			case Succeeded:
				items = slices.DeleteFunc(items, func(i *item) bool { return i == it })
			case Failed:
				if failed(it); wait > 0 && !it.dead {
					it.at = r.NotBefore
				}
			case Postponed:
				it.at, it.waiting = r.NotBefore, true
			case Rejected:
				it.attempts++
				it.total++
				it.dead, it.waiting = true, true
			}
			return r
		}
		rt.Repeat(map[string]func(*rapid.T){
			"push": func(rt *rapid.T) {
				typ := rapid.SampledFrom([]string{"x", "x", "y"}).Draw(rt, "type")
				e := ok(th.Push(ctx, event.Draft{Source: "s", Type: typ}))(t)
				if typ == "x" {
					items = append(items, &item{id: e.ID, at: now})
				}
			},
			"time": func(rt *rapid.T) {
				now = now.Add(time.Duration(rapid.IntRange(1, 4000).Draw(rt, "ms")) * time.Millisecond)
			},
			"take": func(rt *rapid.T) {
				if out != nil {
					rt.Skip()
				}
				next(nil)
			},
			"settle": func(rt *rapid.T) {
				if out == nil {
					rt.Skip()
				}
				v := rapid.SampledFrom([]Verdict{Succeeded, Failed, Failed, Rejected, Postponed, Returned}).Draw(rt, "verdict")
				wait := time.Duration(rapid.IntRange(0, 3).Draw(rt, "wait")) * 1500 * time.Millisecond
				if v == Postponed {
					wait += time.Second
				}
				was, n := *out, len(settled)
				r := end(v, wait)
				next(r)
				if len(settled) != n+1 || settled[n].First != was.id || settled[n].Acked != (v == Succeeded) || settled[n].Interrupted {
					rt.Fatalf("settled %+v, want %+v by %v", settled[n:], was, v)
				}
			},
			"killed": func(rt *rapid.T) {
				killFeeds(th)
				feed = th.Feed("c", policy)
				if out == nil {
					rt.Skip()
				}
				failed(out)
				next(nil)
				if s := settled[len(settled)-1]; !s.Interrupted {
					rt.Fatalf("settled %+v", s)
				}
			},
			"retry": func(rt *rapid.T) {
				for _, it := range items {
					if !it.dead {
						continue
					}
					sent := false
					noError(t, th.Update(ctx, func(tx *Tx) (err error) { sent, err = tx.Retry("c", it.id); return err }))
					if !sent {
						rt.Fatalf("dead letter %d was not sent back", it.id)
					}
					it.dead, it.attempts, it.at = false, 0, time.Time{}
				}
			},
			"": func(rt *rapid.T) {
				err := th.View(ctx, func(tx *Tx) error {
					letters := map[int64]DeliveryState{}
					for l, err := range tx.Letters("c") {
						if err != nil {
							return err
						}
						letters[l.ID] = l.State
					}
					for _, it := range items {
						state, f, err := tx.Standing("c", it.id)
						want := Unread
						if it.dead {
							want = Dead
						} else if it.waiting {
							want = Waiting
						}
						if state != want || f.Attempts != it.total || letters[it.id] != want {
							return errors.Join(err, fmt.Errorf("event %d is %v after %d, want %v after %d", it.id, state, f.Attempts, want, it.total))
						}
						delete(letters, it.id)
					}
					if len(letters) > 0 {
						return fmt.Errorf("letters %v too many", letters)
					}
					return nil
				})
				if err != nil {
					rt.Fatal(err)
				}
			},
		})
	})
}

// An event that fails holds up the ones after it, but not in an unordered feed, and
// the error of OnSettled stores nothing.
func TestUnorderedHoldsUpNothing(t *testing.T) {
	th := ok(Init(t.TempDir() + "/t"))(t)
	ctx := context.Background()
	noError(t, th.Subscribe(ctx, Subscription{Consumer: "c", Handler: "true"}))
	for range 2 {
		ok(th.Push(ctx, event.Draft{Source: "s", Type: "t"}))(t)
	}
	called := errors.New("called off")
	var refuse bool
	f := th.Feed("c", Policy{Unordered: true, MaxAttempts: 5, Backoff: func(int64) time.Duration { return time.Hour },
		OnSettled: func(*Tx, *Settled) error {
			if refuse {
				return called
			}
			return nil
		}})
	ok(f.Next(ctx, nil))(t)
	refuse = true
	if _, err := f.Next(ctx, &Result{Verdict: Succeeded}); !errors.Is(err, called) {
		t.Fatal(err)
	}
	refuse = false
	d := ok(f.Next(ctx, &Result{Verdict: Failed, ExitCode: 1, Error: "no"}))(t)
	if len(d.Events) != 1 || d.Events[0].ID != 2 {
		t.Fatalf("got %+v, want event 2", d)
	}
	d = ok(f.Next(ctx, &Result{Verdict: Succeeded}))(t)
	if len(d.Events) != 0 || d.NotBefore.IsZero() {
		t.Fatalf("got %+v", d)
	}
}
