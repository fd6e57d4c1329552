package pgstore

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"thread/event"
	"thread/internal/store"
)

// A push whose connections are cut at any byte of what they answer says what became of it:
// stored once, not stored, or unknown.
func TestCutPush(t *testing.T) {
	at := newThread(t, newSchema(t))
	ctx := context.Background()
	push := func(s *Store, content string) error {
		p, err := s.Push(ctx, []event.Draft{{Source: "s", Type: "t", Content: content}})
		if err == nil && p.Events[0].Content != content {
			t.Errorf("pushed %q, and got %q", content, p.Events[0].Content)
		}
		return err
	}
	all := left(math.MaxInt64)
	if err := push(openFaulty(t, at, plain{}, &faulty{bytes: all}, math.MaxInt64), "first"); err != nil {
		t.Fatal(err)
	}
	total := math.MaxInt64 - all.Load()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 7))
	outcomes, longest := map[string]error{"first": nil}, time.Duration(0)
	var failed, unknown int
	for i := range howManyCuts() {
		// Of a few connections, which share that many bytes, or of all of them.
		first := 1 + r.Int64N(3)
		if r.IntN(50) == 0 {
			first = math.MaxInt64
		}
		s := openFaulty(t, at, plain{}, &faulty{bytes: left(r.Int64N(2 * total))}, first)
		s.resolveTimeout = 200 * time.Millisecond
		if first < math.MaxInt64 {
			s.resolveTimeout = resolveTimeout
		}
		content, begun := fmt.Sprint(i), time.Now()
		err := push(s, content)
		outcomes[content] = err
		switch {
		case errors.Is(err, store.ErrUnknownOutcome):
			unknown++
			longest = max(longest, time.Since(begun))
		case err != nil:
			failed++
		}
		_ = s.Close()
	}
	times := map[string]int{}
	if err := opened(t, at, plain{}).View(ctx, func(tx store.Tx) error {
		last := int64(0)
		return tx.EventsAfter(0, func(e *event.Event) error {
			if last++; e.ID != last {
				return fmt.Errorf("event %d after %d", e.ID, last-1)
			}
			times[e.Content]++
			return nil
		})
	}); err != nil {
		t.Fatal(err)
	}
	for content, err := range outcomes {
		n := times[content]
		delete(times, content)
		if n > 1 || err == nil && n != 1 || err != nil && !errors.Is(err, store.ErrUnknownOutcome) && n != 0 {
			t.Errorf("%s is there %d times, and its push said: %v", content, n, err)
		}
	}
	if len(times) > 0 {
		t.Errorf("nobody has pushed %v", times)
	}
	t.Logf("%d pushes: %d failed, %d unknown, the longest after %v", len(outcomes), failed, unknown, longest.Round(time.Millisecond))
}
