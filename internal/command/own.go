package command

import (
	"os/exec"
	"slices"
	"sync"
)

// own are the processes that this one has started and waits for. A process that gets the
// orphans of its commands has other children, too.
var own struct {
	sync.Mutex
	pids map[int]bool
}

// StartOwn is cmd.Start. The end of the process is never taken for the end of an orphan,
// however soon it comes: a program that waits for orphans starts all its commands with
// StartOwn, and WaitOwn waits for them.
func StartOwn(cmd *exec.Cmd) error {
	own.Lock()
	defer own.Unlock()
	if err := cmd.Start(); err != nil {
		return err
	}
	if own.pids == nil {
		own.pids = map[int]bool{}
	}
	own.pids[cmd.Process.Pid] = true
	return nil
}

// WaitOwn is cmd.Wait for what StartOwn has started.
func WaitOwn(cmd *exec.Cmd) error {
	err := cmd.Wait()
	own.Lock()
	delete(own.pids, cmd.Process.Pid)
	own.Unlock()
	return err
}

// IsOwn reports whether StartOwn has started the process and WaitOwn has not returned.
func IsOwn(pid int) bool {
	own.Lock()
	defer own.Unlock()
	return own.pids[pid]
}

// Others returns the listed processes that are not own. None is started while they
// are listed.
func Others(list func() []int) []int {
	own.Lock()
	defer own.Unlock()
	return slices.DeleteFunc(list(), func(pid int) bool { return own.pids[pid] })
}
