package core

import (
	"context"
	"errors"
	"math"
	"slices"
	"testing"
	"time"
)

// TestParallel: every part's result in the order of the parts, then the error, wherever
// it is; and the goroutine ends when the reader stops early.
func TestParallel(t *testing.T) {
	broken := errors.New("broken")
	for _, n := range []int{0, 1, 2, 100} {
		for _, end := range []error{nil, broken} {
			for _, stop := range []int{-1, 1, n / 2} {
				ended := make(chan struct{})
				parts := func(yield func(int, error) bool) {
					defer close(ended)
					for i := range n {
						if !yield(i, nil) {
							return
						}
					}
					if end != nil && yield(0, end) {
						t.Error("the sequence goes on behind its error")
					}
				}
				i := 0
				var got error
				for v, err := range parallel(parts, func(i int) int { return 10 * i }) {
					if got = err; err != nil {
						break
					}
					if v != 10*i {
						t.Fatalf("part %d gave %d", i, v)
					}
					if i++; i == stop {
						break
					}
				}
				if want := min(n, max(stop, 0)); want > 0 && i != want {
					t.Errorf("stopped after %d parts, want %d", i, want)
				} else if want == 0 && (i != n || got != end) {
					t.Errorf("%d of %d parts, then %v", i, n, got)
				}
				<-ended
			}
		}
	}
}

// TestArrivals: a group ends at its number of drafts, at its time without any more of them,
// before an error, and with a signal; the drafts that came before are in it.
func TestArrivals(t *testing.T) {
	broken := errors.New("broken")
	for name, test := range map[string]struct {
		s      arrivals
		in     []arrived
		stop   bool // with the last draft
		groups []int
		ended  error
	}{
		"number": {s: arrivals{max: 2}, in: []arrived{{}, {}, {}, {err: broken}}, groups: []int{2, 1}, ended: broken},
		"time":   {s: arrivals{max: math.MaxInt64, flush: time.Millisecond}, in: []arrived{{}}, groups: []int{1}},
		"error":  {s: arrivals{max: 9}, in: []arrived{{err: broken}, {}}, groups: []int{0}, ended: broken},
		"signal": {s: arrivals{max: 9, flush: time.Hour}, in: []arrived{{}, {}}, stop: true, groups: []int{2}},
	} {
		next := make(chan arrived, len(test.in))
		for _, in := range test.in {
			next <- in
		}
		s := test.s
		s.next = next
		stopping, stop := context.WithCancel(t.Context())
		var groups []int
		for len(groups) < len(test.groups) {
			n := 0
			for _, err := range s.group(stopping) {
				if err != nil {
					t.Errorf("%s: %v is in a group", name, err)
				}
				if n++; test.stop && len(next) == 0 {
					stop()
				}
			}
			groups = append(groups, n)
		}
		stop()
		if !slices.Equal(groups, test.groups) || s.err != test.ended || s.ended != (test.stop || test.ended != nil) {
			t.Errorf("%s: groups %v, %v, ended %t; want %v, %v", name, groups, s.err, s.ended, test.groups, test.ended)
		}
	}
}
