package core

import (
	"iter"
	"runtime"
)

// maxParallel bounds how many parts are worked on at once, and so the memory that
// they hold.
const maxParallel = 4

// parallel returns f of each part of the sequence, in order. The parts are taken from
// it on a goroutine, and f runs on several, a few parts ahead of the reader; a
// part must not be used by the sequence again. The first error ends both
// sequences. When the reader stops early, the goroutines end at the next part;
// one that waits for a part goes on waiting.
func parallel[P, R any](parts iter.Seq2[P, error], f func(P) R) iter.Seq2[R, error] {
	type result struct {
		value chan R // gets one
		err   error
	}
	return func(yield func(R, error) bool) {
		results := make(chan result, min(runtime.GOMAXPROCS(0), maxParallel)-1)
		stop := make(chan struct{})
		defer close(stop)
		go func() {
			defer close(results)
			for p, err := range parts {
				r := result{err: err}
				if err == nil {
					r.value = make(chan R, 1)
					go func() { r.value <- f(p) }()
				}
				select {
				case results <- r:
				case <-stop:
					return
				}
				if err != nil {
					return
				}
			}
		}()
		for r := range results {
			if r.err != nil {
				var none R
				yield(none, r.err)
				return
			}
			if !yield(<-r.value, nil) {
				return
			}
		}
	}
}
