package dispatch

import (
	"context"
	"os"
	"os/exec"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/windows"
)

const shell = "sh"

func detach(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{CreationFlags: windows.CREATE_NEW_PROCESS_GROUP | windows.DETACHED_PROCESS}
}

// Handles are inherited one by one, by name.
func closeInherited()                 {}
func sealed(start func() error) error { return start() }

// A dispatch does not wait here until its supervisor has handed over.
func withReady(*exec.Cmd) (func(time.Duration) (bool, bool), error) {
	return func(time.Duration) (bool, bool) { return true, false }, nil
}
func readyFile() *os.File { return nil }

func terminateGroup(cmd *exec.Cmd) { cmd.Process.Kill() }
func killGroup(cmd *exec.Cmd)      { cmd.Process.Kill() }

func exitText(p *os.ProcessState) string { return "exit " + strconv.Itoa(p.ExitCode()) }

// There are no process groups to be killed, and no way to find a handler's
// processes: at a time limit only the shell ends, and a handler whose supervisor was
// killed goes on unseen. See docs/DISPATCH.md.

type treeLock struct{ path string }

func (r *dispatcher) lockTree(context.Context, string, remains, time.Duration) (*treeLock, error) {
	return &treeLock{}, nil
}
func (t *treeLock) attach(*exec.Cmd) {}
func (t *treeLock) release()         {}
func (t *treeLock) abandon()         {}

// awaitExit returns when the process has ended.
func awaitExit(pid int) {
	h, err := windows.OpenProcess(windows.SYNCHRONIZE, false, uint32(pid))
	if err != nil {
		return // the caller waits as well
	}
	defer windows.CloseHandle(h)
	windows.WaitForSingleObject(h, windows.INFINITE)
}
