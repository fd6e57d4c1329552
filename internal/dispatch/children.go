package dispatch

import (
	"os/exec"
	"sync"
)

// children are the processes that this one has started and waits for by itself. A
// process that gets the orphans of its handlers (adoptOrphans) has others, too.
var children struct {
	sync.Mutex
	adopts  bool
	pids    map[int]bool
	runs    int    // handlers that run
	begun   uint64 // handlers that were started, or adopted
	tainted bool   // a handler that exited has left processes here
}

// startChild starts cmd as one of the children: its end is never taken for that of
// an orphan, however soon it comes.
func startChild(cmd *exec.Cmd) error {
	children.Lock()
	defer children.Unlock()
	if err := cmd.Start(); err != nil {
		return err
	}
	if children.pids == nil {
		children.pids = map[int]bool{}
	}
	children.pids[cmd.Process.Pid] = true
	return nil
}

// waitChild is cmd.Wait for what startChild has started.
func waitChild(cmd *exec.Cmd) error {
	err := cmd.Wait()
	children.Lock()
	delete(children.pids, cmd.Process.Pid)
	children.Unlock()
	reapOrphans()
	return err
}

func isChild(pid int) bool {
	children.Lock()
	defer children.Unlock()
	return children.pids[pid]
}

// orphanScope tells whether orphans without a name of their run are those of one handler:
// only if no other one ran in this process at the same time, and none before has
// left anything behind.
type orphanScope struct {
	begun     uint64
	exclusive bool
}

func beginRun() *orphanScope {
	children.Lock()
	defer children.Unlock()
	children.runs++
	children.begun++
	return &orphanScope{begun: children.begun, exclusive: children.runs == 1 && !children.tainted}
}

func (k *orphanScope) certain() bool {
	children.Lock()
	defer children.Unlock()
	return k.exclusive && children.adopts && children.begun == k.begun
}

// end is called when what the handler has left is dealt with, or is left alone.
func (k *orphanScope) end() {
	left := countOrphans()
	children.Lock()
	defer children.Unlock()
	children.runs--
	children.tainted = children.tainted || left > 0
}
