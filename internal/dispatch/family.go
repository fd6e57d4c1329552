package dispatch

import (
	"os/exec"
	"sync"
)

// family are the processes that this one has started and waits for by itself. A
// process that gets the orphans of its handlers (adoptOrphans) has others, too.
var family struct {
	sync.Mutex
	adopts  bool
	pids    map[int]bool
	runs    int    // handlers that run
	begun   uint64 // handlers that were started, or adopted
	tainted bool   // a handler that exited has left processes here
}

// startChild starts cmd as one of the family: its end is never taken for that of
// an orphan, however soon it comes.
func startChild(cmd *exec.Cmd) error {
	family.Lock()
	defer family.Unlock()
	if err := cmd.Start(); err != nil {
		return err
	}
	if family.pids == nil {
		family.pids = map[int]bool{}
	}
	family.pids[cmd.Process.Pid] = true
	return nil
}

// waitChild is cmd.Wait for what startChild has started.
func waitChild(cmd *exec.Cmd) error {
	err := cmd.Wait()
	family.Lock()
	delete(family.pids, cmd.Process.Pid)
	family.Unlock()
	reapOrphans()
	return err
}

func inFamily(pid int) bool {
	family.Lock()
	defer family.Unlock()
	return family.pids[pid]
}

// kin tells whether orphans without a name of their run are those of one handler:
// only if no other one ran in this process at the same time, and none before has
// left anything behind.
type kin struct {
	begun uint64
	alone bool
}

func beginRun() *kin {
	family.Lock()
	defer family.Unlock()
	family.runs++
	family.begun++
	return &kin{begun: family.begun, alone: family.runs == 1 && !family.tainted}
}

func (k *kin) certain() bool {
	family.Lock()
	defer family.Unlock()
	return k.alone && family.adopts && family.begun == k.begun
}

// end is called when what the handler has left is dealt with, or is left alone.
func (k *kin) end() {
	left := countOrphans()
	family.Lock()
	defer family.Unlock()
	family.runs--
	family.tainted = family.tainted || left > 0
}
