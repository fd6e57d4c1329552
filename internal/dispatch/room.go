package dispatch

import (
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"

	"thread/event"
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
