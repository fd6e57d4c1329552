package dispatch

import (
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"thread/event"
	"thread/internal/command"
	"thread/internal/lanes"
	"thread/lock"
)

// room is what a handler takes of what there is of a thread: one of its slots and,
// where its subscription names a lane, a place in that lane.
//
// The handler inherits the lock of its place, as it does the tree lock: while the
// supervisor is killed and its standby takes over, the place stays taken. Its file
// names the consumer, so that a process without a place can see to it that the run that
// has it is supervised.
type room struct {
	lane        string
	slot, place *lock.File
}

// claimResult says how an attempt to claim a consumer went.
type claimResult int

const (
	claimed  claimResult = iota
	held                 // another process has the consumer's lock, and looks when it releases it
	retrying             // a supervisor waits to retry it
	notDue               // it need not run
	noSlot               // every slot is held, and their holders look when they release them
	noPlace              // every place in its lane is, and the same
	recheck              // room was held for nothing meanwhile: look at every consumer again
)

// tryRoom takes room in the lane, or returns why there is none. A server has lanes of
// its own, and so needs a slot only; as do those who name no lane.
//
// No slot is taken for nothing where the lane is full, or two consumers of one lane
// would call each other forever. A place that is taken for want of a slot is given
// back before the slots are looked at for the last time: who saw it taken is found by
// who has them.
func (r *dispatcher) tryRoom(lane string) (*room, claimResult, error) {
	got := &room{lane: lane}
	var err error
	takePlace := func() bool {
		if lane != "" && r.max != serverSlots {
			got.place, err = r.tryPlace(lane)
			return got.place != nil
		}
		return err == nil
	}
	if !takePlace() {
		return nil, noPlace, err
	}
	if got.slot, err = r.trySlot(); got.slot != nil {
		return got, claimed, nil
	}
	if got.place == nil || err != nil {
		got.release()
		return nil, noSlot, err
	}
	got.release()
	if got.slot, err = r.trySlot(); got.slot == nil {
		return nil, noSlot, err
	}
	if takePlace() {
		return got, claimed, nil
	}
	got.release()
	return nil, recheck, err
}

// tryPlace takes a free place in the lane, and returns nil when there is none.
func (r *dispatcher) tryPlace(lane string) (*lock.File, error) {
	for i := range lanes.DefaultLimit(lane) {
		l, err := lock.Try(r.placePath(lane, i), lock.Exclusive)
		if err == nil || !errors.Is(err, lock.ErrHeld) {
			return l, err
		}
	}
	return nil, nil
}

func (r *dispatcher) placePath(lane string, i int) string {
	return filepath.Join(r.run, "slots", lock.Name(lane)+"."+strconv.Itoa(i))
}

// name notes whose room it is.
func (m *room) name(consumer string) error {
	if m.place == nil {
		return nil
	}
	f := m.place.File()
	if err := f.Truncate(0); err != nil {
		return err
	}
	_, err := f.WriteAt([]byte(consumer), 0)
	return err
}

// attach makes cmd inherit the lock of the place, after the tree lock.
func (m *room) attach(cmd *exec.Cmd) {
	if n := len(cmd.ExtraFiles); m.place != nil && n > 1 {
		cmd.ExtraFiles[n-2] = m.place.File()
	}
}

// release gives it back, also for a handler that has inherited it. A nil m is nothing
// to release.
func (m *room) release() {
	if m == nil {
		return
	}
	release(m.place)
	release(m.slot)
	m.place, m.slot = nil, nil
}

// inLane returns the consumers that have places in the lane, as far as that is noted.
func (r *dispatcher) inLane(lane string) (list []string) {
	for i := range lanes.DefaultLimit(lane) {
		f, err := os.OpenFile(r.placePath(lane, i), os.O_RDONLY|lock.NoFollow|lock.NoWait, 0)
		if err != nil {
			continue
		}
		text, err := io.ReadAll(io.LimitReader(f, event.MaxNameBytes))
		f.Close()
		if err == nil && len(text) > 0 {
			list = append(list, string(text))
		}
	}
	return list
}

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
