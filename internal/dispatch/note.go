package dispatch

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"

	"thread/lock"
)

const (
	stateRunning state = "running" // written before the handler is started
	stateWaiting state = "waiting" // a retry is due at RetryAt
	stateStopped state = "stopped" // ended without progress, nothing new
	stateStalled state = "stalled" // failed maxTries times
	stateLeft    state = "left"    // the server that ran it was told to end
	stateIdle    state = "idle"    // ended, and nothing of the above
)

func (n *note) halted() bool { return n.State == stateStopped || n.State == stateStalled }

// resumed is the streak that a run begins with: one that has stopped has ended.
func (n *note) resumed() streak {
	if n.halted() {
		return streak{}
	}
	return n.streak
}

// readNote returns the consumer's note, the zero note if there is none that can
// be read.
func (r *dispatcher) readNote(consumer string) note {
	for range 3 { // a process that is not the holder of a lock may look while it is being written
		text, err := lock.ReadFile(r.notePath(consumer))
		if n, ok := r.unwritten.get(consumer, text); ok {
			return n
		}
		var n note
		if err != nil {
			break
		}
		if json.Unmarshal(text, &n) == nil {
			return n
		}
	}
	return note{}
}

// writeNote replaces the consumer's note. One that cannot be written, as on a full
// disk, is kept for this process: it would run a handler that leaves its events
// unread again and again. No sync: a note that a power cut takes away is about
// processes that it took away too.
func (r *dispatcher) writeNote(consumer string, n note) error {
	text, err := json.Marshal(n)
	if err != nil {
		return err
	}
	path := r.notePath(consumer)
	if err := overwriteFile(path, append(text, '\n')); err != nil {
		old, _ := lock.ReadFile(path)
		r.unwritten.keep(consumer, n, old)
		return err
	}
	r.unwritten.forget(consumer)
	return nil
}

// noteBytes is how long a note is, or a multiple of it.
const noteBytes = 512

// overwriteFile writes text, which is JSON, into the file in one write, so that who
// reads it, or comes after a kill, finds what was there or what is now: spaces keep its
// length. A file that cannot be written so is replaced. To replace one that is there
// makes ext4 write the new one to the disk at once, which takes milliseconds where the
// disk is busy, and a handler waits for it.
func overwriteFile(path string, text []byte) error {
	pad := func(size int) {
		if n := size - len(text); n > 0 {
			text = append(append(text[:len(text)-1], bytes.Repeat([]byte{' '}, n)...), '\n')
		}
	}
	pad((len(text) + noteBytes - 1) / noteBytes * noteBytes)
	f, err := os.OpenFile(path, os.O_WRONLY|lock.NoFollow|lock.NoWait, 0)
	if err != nil {
		return replaceFile(path, text)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil || !info.Mode().IsRegular() || info.Size() > 128*noteBytes {
		return replaceFile(path, text)
	}
	pad(int(info.Size()))
	_, err = f.WriteAt(text, 0)
	return err
}

func replaceFile(path string, text []byte) error {
	f, err := os.OpenFile(path+".new", os.O_WRONLY|os.O_CREATE|os.O_TRUNC|lock.NoFollow|lock.NoWait, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}

func (u *unwritten) keep(consumer string, n note, old []byte) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.notes == nil {
		u.notes = map[string]unwrittenNote{}
	}
	u.notes[consumer] = unwrittenNote{n, old}
}

func (u *unwritten) forget(consumer string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	delete(u.notes, consumer)
}

// get returns the consumer's note if text is still what is in its place.
func (u *unwritten) get(consumer string, text []byte) (note, bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	n, ok := u.notes[consumer]
	return n.note, ok && bytes.Equal(n.old, text)
}
