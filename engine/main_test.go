package engine

import (
	"flag"
	"os"
	"testing"
)

const quickChecks = "25"

// TestMain lets a quick run try fewer cases of each model than rapid's 100: every
// case makes directories and waits for the disk. -rapid.checks asks for another
// number.
func TestMain(m *testing.M) {
	if err := flag.Set("rapid.checks", quickChecks); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}
