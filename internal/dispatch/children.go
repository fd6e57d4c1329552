package dispatch

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"sync"
	"time"

	"thread/internal/command"
)

// children is what is known of the handlers' processes that are children of this one.
var children struct {
	sync.Mutex
	adopts  bool
	runs    int    // handlers that run
	begun   uint64 // handlers that were started, or adopted
	tainted bool   // a handler that exited has left processes here
}

// waitChild is command.WaitOwn, and deals with what the child has left.
func waitChild(cmd *exec.Cmd) error {
	err := command.WaitOwn(cmd)
	reapOrphans()
	return err
}

// remains tells what is left of this run. The leader is 0 unless it is our child and
// not waited for.
func (h *handler) remains(leader int) *command.Left {
	q := &command.Left{RunID: h.rec.RunID, Leader: leader, Trees: h.trees(h.due.Consumer), Child: command.IsOwn, Reap: reapOrphans}
	if h.orphans != nil { // processes of before are of other handlers
		q.Orphan = func(p command.Stat) bool { return h.orphans.certain() && p.Began >= h.rec.Began }
	}
	return q
}

// trees are the locks that what is left of a handler may hold.
func (r *dispatcher) trees(consumer string) []string {
	return []string{r.treeLockPath(consumer), r.workLockPath(consumer)}
}

// evict ends what is left of a handler, see [command.Left.End].
func (r *dispatcher) evict(ctx context.Context, consumer string, q *command.Left, grace time.Duration) error {
	return q.End(ctx, grace, r.saysEnded(consumer))
}

func (r *dispatcher) saysEnded(consumer string) func(pid int, err error) {
	return func(pid int, err error) {
		r.log.Warn("supervise: consumer=%s ends pid=%d, left of the handler before%s", consumer, pid, suffix(err))
	}
}

func suffix(err error) string {
	if err == nil || errors.Is(err, os.ErrProcessDone) {
		return ""
	}
	return ": " + err.Error()
}

// orphanScope tells whether orphans without a name of their run are the run of one handler:
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
