package cli

import (
	"fmt"
	"strconv"
	"strings"
)

// ParseID reads the number of an event, in [0, 2^63). See ParseNumber.
func ParseID(flag, s string) (int64, error) {
	n, ok := ParseNumber(s)
	if !ok {
		return 0, UsageError(fmt.Sprintf("%s %q is not a number from 0 to 9223372036854775807", flag, s),
			"give the id of the last event already processed, 0 for none")
	}
	return n, nil
}

// ParseLimit reads a number of events, in [1, 2^63). See ParseNumber.
func ParseLimit(s string) (int64, error) {
	n, ok := ParseNumber(s)
	if !ok || n == 0 {
		return 0, UsageError(fmt.Sprintf("--limit %q is not a number from 1 to 9223372036854775807", s),
			"give how many at most")
	}
	return n, nil
}

// ParseNumber reads decimal digits with optional spaces around them and an
// optional plus sign before them, and nothing else (T-08: of what
// JavaScript's parseInt reads, the part that cannot be a slip).
func ParseNumber(s string) (int64, bool) {
	s = strings.TrimPrefix(strings.TrimSpace(s), "+")
	if s == "" || s[0] < '0' || s[0] > '9' {
		return 0, false
	}
	n, err := strconv.ParseInt(s, 10, 64)
	return n, err == nil
}
