//go:build linux

package main

import (
	"path/filepath"
	"testing"

	"thread/internal/agentday"
)

// TestDay: the day of an agent, with a thread in a directory.
func TestDay(t *testing.T) {
	dir := t.TempDir()
	agentday.Run(t, func(name string) string { return filepath.Join(dir, name) })
}
