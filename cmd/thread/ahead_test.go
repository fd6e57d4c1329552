package main

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"thread/event"
)

// TestAhead: the same drafts in the same order, then the error, wherever it is;
// and the goroutine ends when the reader stops early.
func TestAhead(t *testing.T) {
	broken := errors.New("broken")
	for _, n := range []int{0, 1, aheadDrafts - 1, aheadDrafts, aheadDrafts + 1, 3*aheadDrafts + 7} {
		for _, end := range []error{nil, broken} {
			for _, stop := range []int{-1, 0, n / 2} {
				ended := make(chan struct{})
				seq := func(yield func(event.Draft, error) bool) {
					defer close(ended)
					for i := range n {
						if !yield(event.Draft{Source: fmt.Sprint(i), Content: strings.Repeat("x", i%7*aheadBytes/5)}, nil) {
							return
						}
					}
					if end != nil {
						yield(event.Draft{}, end)
					}
				}
				i := 0
				var got error
				for d, err := range ahead(seq) {
					if got = err; err != nil {
						break
					}
					if d.Source != fmt.Sprint(i) {
						t.Fatalf("draft %d is %q", i, d.Source)
					}
					if i++; i == stop {
						break
					}
				}
				if stop < 1 && (i != n || got != end) {
					t.Errorf("%d of %d drafts, then %v", i, n, got)
				}
				<-ended
			}
		}
	}
}
