package consume

import (
	"os"
	"os/exec"
)

// There is no server here that gives turns.

func ownGroup(*exec.Cmd)           {}
func terminateGroup(p *os.Process) { _ = p.Kill() }
func killGroup(p *os.Process)      { _ = p.Kill() }
