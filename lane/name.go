package lane

import (
	"math"
	"strings"
	"unicode"
)

// The named global lanes (L-02).
const (
	Main     = "main"
	Cron     = "cron"
	Subagent = "subagent"
)

// The limits of the named lanes when nothing is configured (L-05). Any other
// lane has the limit 1 (L-04).
const (
	DefaultMainLimit     = 4
	DefaultCronLimit     = 1
	DefaultSubagentLimit = 8
)

const sessionPrefix = "session:"

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

// SessionLane returns the name of the lane of the session key: the trimmed key,
// [Main] when that is empty, with the prefix "session:" unless it has it (L-01).
func SessionLane(key string) string {
	key = GlobalLane(key)
	if isSession(key) {
		return key
	}
	return sessionPrefix + key
}

// GlobalLane returns the trimmed name, or [Main] when that is empty (L-02).
func GlobalLane(name string) string {
	if name = strings.TrimFunc(name, isSpace); name == "" {
		return Main
	}
	return name
}

// isSpace tells what String.prototype.trim removes (ECMA-262, WhiteSpace and
// LineTerminator). It differs from unicode.IsSpace in U+FEFF and U+0085.
func isSpace(r rune) bool {
	switch r {
	case '\t', '\n', '\v', '\f', '\r', '\u2028', '\u2029', '\ufeff':
		return true
	}
	return unicode.Is(unicode.Zs, r)
}

func isSession(name string) bool { return strings.HasPrefix(name, sessionPrefix) }

// isProbe tells the lanes whose tasks are expected to fail (L-10).
func isProbe(name string) bool {
	return strings.HasPrefix(name, "auth-probe:") || strings.HasPrefix(name, sessionPrefix+"probe-")
}

// defaultLimit is the limit of a lane that nobody configured.
func defaultLimit(name string) int {
	switch name {
	case Main:
		return DefaultMainLimit
	case Cron:
		return DefaultCronLimit
	case Subagent:
		return DefaultSubagentLimit
	}
	return 1
}

// toLimit turns a configured number into a limit: max(1, floor(n)), and the
// lane's default for a number that is not finite (L-05).
func toLimit(name string, n float64) int {
	if math.IsNaN(n) || math.IsInf(n, 0) {
		return defaultLimit(name)
	}
	return int(min(max(1, math.Floor(n)), math.MaxInt32))
}
