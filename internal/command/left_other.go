//go:build !linux

package command

import (
	"context"
	"time"
)

// Stat is what is known of a process.
type Stat struct{ Began uint64 }

// End ends nothing: there is no exact way to find the processes of a command here.
func (q *Left) End(context.Context, time.Duration, func(pid int, err error)) error { return nil }

// EndedBySignal is not asked before the process is waited for: nothing is ended here.
func EndedBySignal(int) bool { return false }
