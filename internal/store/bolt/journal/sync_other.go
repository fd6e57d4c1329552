//go:build !linux

package journal

import "os"

// sync makes f durable.
func syncData(f *os.File) error { return f.Sync() }
