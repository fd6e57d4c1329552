//go:build lite

package deliveries

import (
	"thread/engine"
	"thread/internal/consume"
)

// Flag has no flags: thread-lite starts no program that exports traces.
type Flag struct{}

// Trace does nothing.
func Trace(*Flag, *engine.Thread, string, *consume.Options) (end func(), err error) {
	return func() {}, nil
}
