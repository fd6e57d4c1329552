// Package lanes has the names of lanes and their limits when nothing is configured,
// for package lane and for what must not link that.
package lanes

import (
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

// Session returns the name of the lane of the session key: the trimmed key, [Main]
// when that is empty, with the prefix "session:" unless it has it (L-01).
func Session(key string) string {
	key = Global(key)
	if IsSession(key) {
		return key
	}
	return sessionPrefix + key
}

// Global returns the trimmed name, or [Main] when that is empty (L-02).
func Global(name string) string {
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

// IsSession reports whether name names a session lane.
func IsSession(name string) bool { return strings.HasPrefix(name, sessionPrefix) }

// scopeMark separates the name of a lane from its scope. No path holds a zero byte.
const scopeMark = "\x00\x00"

// Scoped returns the name of a lane that differs from the lanes of the same name in
// other scopes.
func Scoped(name, scope string) string { return name + scopeMark + scope }

// Shown returns the name of a lane without its scope, as logs and errors print it.
func Shown(name string) string {
	if i := strings.LastIndex(name, scopeMark); i >= 0 {
		return name[:i]
	}
	return name
}

// IsProbe reports whether name names a lane whose tasks are expected to fail
// (L-10).
func IsProbe(name string) bool {
	return strings.HasPrefix(name, "auth-probe:") || strings.HasPrefix(name, sessionPrefix+"probe-")
}

// DefaultLimit is the limit of a lane that is not configured.
func DefaultLimit(name string) int {
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
