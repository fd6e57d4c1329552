package verb

import (
	"os"
	"os/exec"
)

func ownGroup(*exec.Cmd) {}

func terminateGroup(p *os.Process) { _ = p.Kill() }
func killGroup(p *os.Process)      { _ = p.Kill() }
