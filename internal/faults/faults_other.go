//go:build !linux || !(amd64 || arm64)

package faults

import "testing"

// Run skips the test.
func (f *Fault) Run(t testing.TB, _ string, _ func()) {
	t.Helper()
	t.Skip("failing system calls are for Linux")
}
