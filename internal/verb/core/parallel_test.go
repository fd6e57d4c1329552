package core

import (
	"errors"
	"testing"
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
