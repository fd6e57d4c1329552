package main

import (
	"iter"

	"thread/event"
)

// The sizes of what ahead hands over at a time, and of how much of that waits.
const (
	aheadDrafts = 512
	aheadBytes  = 1 << 20
	aheadChunks = 4
)

// ahead runs ds on a goroutine of its own, some megabytes ahead of who reads the
// sequence, so that reading and parsing stdin use a second processor.
func ahead(ds iter.Seq2[event.Draft, error]) iter.Seq2[event.Draft, error] {
	type chunk struct {
		drafts []event.Draft
		err    error // behind the drafts
	}
	return func(yield func(event.Draft, error) bool) {
		chunks, stop := make(chan chunk, aheadChunks), make(chan struct{})
		defer close(stop)
		go func() {
			defer close(chunks)
			var c chunk
			size := 0
			send := func() bool {
				select {
				case chunks <- c:
					c, size = chunk{drafts: make([]event.Draft, 0, aheadDrafts)}, 0
					return true
				case <-stop:
					return false
				}
			}
			for d, err := range ds {
				if c.err = err; err != nil {
					break
				}
				c.drafts = append(c.drafts, d)
				if size += len(d.Content); len(c.drafts) == aheadDrafts || size > aheadBytes {
					if !send() {
						return
					}
				}
			}
			send()
		}()
		for c := range chunks {
			for _, d := range c.drafts {
				if !yield(d, nil) {
					return
				}
			}
			if c.err != nil {
				yield(event.Draft{}, c.err)
				return
			}
		}
	}
}
