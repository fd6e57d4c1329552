package dispatch

import (
	"encoding/json"
	"errors"
	"os"
	"time"

	"thread/engine"
	"thread/lock"
)

// state says what the last note in a consumer's file is about.
type state string

const (
	stateRunning state = "running" // written before the handler is started
	stateWaiting state = "waiting" // a retry is due at RetryAt
	stateStopped state = "stopped" // ended without progress, nothing new
	stateStalled state = "stalled" // failed maxTries times
	stateIdle    state = "idle"    // ended, and nothing of the above
)

// note is the content of run/<c>.json: what supervisors tell each other and
// `thread info` about a consumer. It is advice; see the package comment. Only
// the holder of the consumer's lock or busy lock writes it.
type note struct {
	State     state      `json:"state"`
	RunID     string     `json:"run_id"`
	StartedAt time.Time  `json:"started_at"`
	EndedAt   *time.Time `json:"ended_at,omitempty"` // of the last run that ended
	Exit      string     `json:"exit,omitempty"`     // how that one ended, see exitText
	RetryAt   *time.Time `json:"retry_at,omitempty"`
	// Seen is the newest id when the handler was started, and once it has ended,
	// at the look that followed.
	Seen int64 `json:"seen"`
	// SeenRetried is Due.Retried at the same moment.
	SeenRetried int64 `json:"seen_retried,omitempty"`
	streak
}

func (n *note) halted() bool { return n.State == stateStopped || n.State == stateStalled }

// resumed is the streak that a run begins with: a supervisor that was killed
// counts as a failure of its handler, and one that has stopped as the end of the
// streak. After maxTries such deaths a push starts afresh too.
func (n *note) resumed() streak {
	switch k := n.streak; {
	case n.halted():
		return streak{}
	case n.State != stateRunning:
		return k
	case k.Failures+1 < maxTries:
		k.Failures++
		return k
	}
	return streak{}
}

// readNote returns the consumer's note, the zero note if there is none that can
// be read.
func (r *room) readNote(consumer string) note {
	var n note
	text, err := os.ReadFile(r.notePath(consumer))
	if err != nil || json.Unmarshal(text, &n) != nil {
		return note{}
	}
	return n
}

// writeNote replaces the consumer's note. No sync: a note that a power cut takes
// away is about processes that it took away too.
func (r *room) writeNote(consumer string, n note) error {
	text, err := json.Marshal(n)
	if err != nil {
		return err
	}
	path := r.notePath(consumer)
	f, err := os.OpenFile(path+".new", os.O_WRONLY|os.O_CREATE|os.O_TRUNC|openNoFollow, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(append(text, '\n'))
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}

// State is what is known of a consumer's handler, for people. Times are nil when
// there is none.
type State struct {
	Running      bool
	RunningSince *time.Time
	RunID        string     // of the running handler
	LastExit     string     // "exit 0", "exit 3", "killed by SIGKILL", "timed out after 5m0s"; "": never ended
	LastExitAt   *time.Time // when
	Failures     int        // failed runs in a row, without progress in between
	RetryAt      *time.Time // a supervisor waits to run it again
	// Stalled is set after the last try in a row has failed: the next push, or
	// thread dispatch, starts afresh.
	Stalled bool
	// Stopped is set when the handler ended well but left events unread, and
	// nothing new came: the next push runs it again.
	Stopped bool
	// Interrupted is set when the supervisor was killed while the handler ran or
	// waited for a retry, and nobody has taken over yet.
	Interrupted bool
}

// Status returns what is known of a consumer's handler. It changes nothing, and
// it holds up no dispatch. An unknown consumer has the zero State.
func Status(t *engine.Thread, consumer string) (State, error) {
	r := newRoom(t, Options{})
	n := r.readNote(consumer)
	engaged := false
	// The probe would create the file.
	if _, err := os.Lstat(r.busyPath(consumer)); err == nil {
		if engaged, err = r.engaged(consumer); err != nil {
			return State{}, err
		}
	} else if !errors.Is(err, os.ErrNotExist) {
		return State{}, err
	}
	s := State{LastExit: n.Exit, LastExitAt: n.EndedAt, Failures: n.Failures}
	s.Stalled, s.Stopped = n.State == stateStalled, n.State == stateStopped
	switch {
	case n.State == stateRunning && engaged:
		s.Running, s.RunID, s.RunningSince = true, n.RunID, &n.StartedAt
	case n.State == stateWaiting && engaged:
		s.RetryAt = n.RetryAt
	case n.State == stateRunning || n.State == stateWaiting:
		s.Interrupted = true
	}
	return s, nil
}

// engaged reports whether a supervisor runs the consumer or waits to retry it.
// Both this question and others like it take the lock shared, so that askers do
// not see each other; a supervisor that takes it waits until they are gone.
func (r *room) engaged(consumer string) (bool, error) {
	l, err := lock.Try(r.busyPath(consumer), lock.Shared)
	if errors.Is(err, lock.ErrHeld) {
		return true, nil
	}
	if err != nil {
		return false, err
	}
	release(l)
	return false, nil
}
