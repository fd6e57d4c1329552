//go:build noserve

package dispatch

import (
	"context"
	"errors"
)

// Host is what a resident process adds to one run; this build has none.
type Host struct {
	Env     func() []string
	Started func(runID string, pid int)
	Ended   func(ok bool)
	Abort   <-chan struct{}
}

func guardHost(context.Context, int) error { return errors.ErrUnsupported }
