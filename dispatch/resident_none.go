//go:build noserve

package dispatch

import (
	"context"
	"errors"
)

// Host is what a resident process adds to one run; this build has none.
type Host struct {
	Env   func() []string
	Ended func(ok bool)
	Abort <-chan struct{}
	Start func(runID string, start func() (pid int, err error)) error
}

func guardHost(context.Context, int) error { return errors.ErrUnsupported }
