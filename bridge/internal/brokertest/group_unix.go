//go:build unix

package brokertest

import (
	"os"
	"os/exec"
	"syscall"
	"time"
)

// lead makes the process that cmd starts the first of a group.
func lead(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }

// killGroup kills the group that p leads, and returns when it is gone.
func killGroup(p *os.Process) {
	_ = syscall.Kill(-p.Pid, syscall.SIGKILL) // it may be over
	for syscall.Kill(-p.Pid, 0) == nil {
		time.Sleep(time.Millisecond) // nothing tells when the last one of a group is gone
	}
}
