//go:build unix

package serve

import (
	"os/exec"
	"syscall"
)

// ownGroup keeps Ctrl-C on the server's terminal from the worker: the server lets it
// come to its end.
func ownGroup(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }
