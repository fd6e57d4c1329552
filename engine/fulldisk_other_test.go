//go:build !linux

package engine

import "testing"

// onFullDisk calls nothing: there is no disk that can be made full for one process.
func onFullDisk(*testing.T, func()) {}
