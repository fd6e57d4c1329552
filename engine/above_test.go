package engine

import (
	"context"
	"flag"

	"thread/event"
)

var update = flag.Bool("update", false, "write the golden files anew")

func pushFourth(th *Thread) error {
	_, err := th.Push(ctx, event.Draft{Source: "s", Type: "t", Content: "the last one"})
	return err
}

// Tests of this package look at threads with package fsck, which stands above it: see
// fsck_test.go, which is of package engine_test and may import it.
var (
	Check  func(ctx context.Context, t *Thread) (*CheckReport, error)
	FixLog func(ctx context.Context, t *Thread) (fixed int, err error)
	Repair func(ctx context.Context, from, to string) (*RepairReport, error)
)

// What the tests look at of its reports.
type (
	CheckReport struct {
		Events int64
		Faults []string
		Digest string
	}
	RepairReport struct {
		Saved, NextID            int64
		Subscriptions, Progress  int64
		FromDatabase, FromUnused int64
		FromPrevious, FromLines  int64
		Lost, Unknown            int
		Problems                 []string
	}
)
