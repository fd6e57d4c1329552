//go:build !linux

package journal

import "os"

// sync makes f durable.
func sync(f *os.File) error { return f.Sync() }
