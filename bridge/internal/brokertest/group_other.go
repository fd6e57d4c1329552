//go:build !unix

package brokertest

import (
	"os"
	"os/exec"
)

// The servers of these tests run on Unix: elsewhere this is only built.
func lead(*exec.Cmd) {}

func killGroup(p *os.Process) { _ = p.Kill() } // it may be over
