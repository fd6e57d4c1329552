//go:build linux

package main

import (
	"os/exec"
	"strings"
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
	change, err := bugs.ReadOne("../../" + shortDelay)
	if err != nil {
		t.Fatal(err)
	}
	if err := change.Check("../..", t.TempDir()); err != nil {
		t.Error(err)
	}
}

// TestSeeds finds a seed of a scenario that has been renamed.
func TestSeeds(t *testing.T) {
	if jobs := keptSeeds(scenarios); len(jobs) != strings.Count(seeds, "\n") {
		t.Errorf("%d lines of seeds name a scenario, of %d", len(jobs), strings.Count(seeds, "\n"))
	}
}
