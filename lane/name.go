package lane

import (
	"math"

	"thread/internal/lanes"
)

// The named global lanes (L-02).
const (
	Main     = lanes.Main
	Cron     = lanes.Cron
	Subagent = lanes.Subagent
)

// The limits of the named lanes when nothing is configured (L-05). Any other
// lane has the limit 1 (L-04).
const (
	DefaultMainLimit     = lanes.DefaultMainLimit
	DefaultCronLimit     = lanes.DefaultCronLimit
	DefaultSubagentLimit = lanes.DefaultSubagentLimit
)

// Path says where a task queues. Make one with [Session] or [Lane]; the zero Path is
// [Lane]([Main]).
type Path struct {
	session string // full name of the session lane, or "" for none
	lane    string // global name, "" for Main; with no session, any lane
}

// Session is the path of a task that belongs to the session key and runs in the
// global lane name. Both are resolved by [SessionLane] and [GlobalLane]. The
// global lane cannot itself be a session lane: see [ErrSessionLane].
func Session(key, name string) Path {
	return Path{session: SessionLane(key), lane: GlobalLane(name)}
}

// Lane is the path of a task that queues in one lane only.
func Lane(name string) Path {
	return Path{lane: GlobalLane(name)}
}

// names returns the lanes to pass through, outermost first, and their number.
func (p Path) names() (names [2]string, n int) {
	inner := p.lane
	if inner == "" {
		inner = Main
	}
	if p.session == "" {
		return [2]string{inner}, 1
	}
	return [2]string{p.session, inner}, 2
}

// SessionLane returns the name of a session key's lane. It is the trimmed key, or
// [Main] when that is empty, with the prefix "session:" unless it has it (L-01).
func SessionLane(key string) string { return lanes.Session(key) }

// GlobalLane returns the trimmed name, or [Main] when that is empty (L-02).
func GlobalLane(name string) string { return lanes.Global(name) }

// toLimit turns a configured number into a limit: max(1, floor(n)), and the
// lane's default for a number that is not finite (L-05).
func toLimit(name string, n float64) int {
	if math.IsNaN(n) || math.IsInf(n, 0) {
		return lanes.DefaultLimit(name)
	}
	return int(min(max(1, math.Floor(n)), math.MaxInt32))
}
