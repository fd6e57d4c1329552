// Package storetest holds what every store must do: a battery of tests that is run on
// each of them, and on a model in memory, so that it asks nothing that only one kind of
// store can do.
package storetest

import (
	"context"
	"testing"

	"thread/internal/store"
)

// A Maker makes a new, empty thread. Open returns a handle on it: another one each
// time, as other processes would have.
type Maker func(t *testing.T) (open func(l store.Logic) store.Store)

// Run runs the battery on the threads of make.
func Run(t *testing.T, make Maker) {
	for name, test := range map[string]func(t *testing.T, open func(l store.Logic) store.Store){
		"dense ids, nothing skipped by a live reader": denseIDs,
		"all or nothing":           atomic,
		"a view is one moment":     oneMoment,
		"own writes in byte order": records,
		"dedupe":                   dedupe,
		"what is due comes first":  due,
		"a long batch at once":     longBatch,
		"contents":                 contents,
		"scans":                    scans,
		"prune":                    prune,
		"a snapshot":               whole,
		"contexts and closing":     ended,
	} {
		t.Run(name, func(t *testing.T) { test(t, make(t)) })
	}
}

var ctx = context.Background()
