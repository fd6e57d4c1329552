//go:build linux

package main

import (
	"os/exec"
	"testing"

	"thread/internal/bugs"
)

// TestBugs finds a patch that the code has left behind. That the scheduler notices each bug
// is tried by hand: make simulate SIMULATE='-bug PATCH', also with a patch of internal/survive/bugs.
func TestBugs(t *testing.T) {
	if _, err := exec.LookPath("patch"); err != nil {
		t.Skip(err)
	}
	if err := bugs.CheckAll("bugs", "../..", t.TempDir); err != nil {
		t.Error(err)
	}
}
