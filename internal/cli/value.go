package cli

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"thread/internal/duration"
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

// ParseSize reads a number of bytes, with K, M, G or T behind it for powers of 1024.
func ParseSize(flag, s string) (int64, error) {
	digits, unit := strings.TrimSpace(s), int64(1)
	if n := len(digits) - 1; n > 0 {
		if i := strings.IndexByte("KMGT", digits[n]&^0x20); i >= 0 && digits[n] > '9' {
			digits, unit = digits[:n], 1<<(10*(i+1))
		}
	}
	n, ok := ParseNumber(digits)
	if !ok || n > math.MaxInt64/unit {
		return 0, UsageError(fmt.Sprintf("%s %q is not a size", flag, s), "give bytes, or for example 500K, 200M, 2G")
	}
	return n * unit, nil
}

// ParseDuration reads the duration of a flag, which is longer than nothing.
func ParseDuration(flag, s string) (time.Duration, error) {
	d, err := duration.Parse(s)
	if err != nil || d == 0 {
		return 0, UsageError(fmt.Sprintf("%s %q is not a positive duration", flag, s), "give for example 500ms, 90s, 24h or 30d")
	}
	return d, nil
}

// DurationText returns d in the form that flags are given in, as 30d or 1m30s.
func DurationText(d time.Duration) string { return duration.Text(d) }

// Direction says which way from now a time lies that is given without its day.
type Direction int

// The directions.
const (
	Past   Direction = -1 // 90m is so long ago, 18:00 was last
	Future Direction = 1  // 90m is in so long, 18:00 comes next
)

// TimeHelp is what the help of a flag says that ParseTime reads.
const TimeHelp = "90m or 2w, 18:00, tomorrow 09:00, 2026-01-31 09:00, or RFC 3339; in local time unless it names a zone"

// ParseTime reads the time of a flag: RFC 3339; a day, a time of day, or both, in local
// time; today, yesterday or tomorrow, alone for its first moment or with a time of day;
// now; or a duration. It never returns the zero time, which means elsewhere that none was
// given: the first moment of the year 1 is taken for the one after it.
func ParseTime(flag, s string, now time.Time, d Direction) (time.Time, error) {
	if at, ok := parseMoment(strings.TrimSpace(s), now, d); ok {
		if at.IsZero() {
			at = at.Add(time.Nanosecond)
		}
		return at, nil
	}
	return time.Time{}, UsageError(fmt.Sprintf("%s %q is not a time", flag, s), "give "+TimeHelp)
}

func parseMoment(s string, now time.Time, d Direction) (time.Time, bool) {
	if at, err := time.Parse(time.RFC3339Nano, s); err == nil {
		return at, true
	}
	if at, err := time.Parse("2006-01-02 15:04:05Z07:00", s); err == nil {
		return at, true
	}
	if at, ok := parseLocal(s, "2006-01-02T15:04:05", "2006-01-02T15:04", "2006-01-02 15:04:05", "2006-01-02 15:04", "2006-01-02"); ok {
		return at, true
	}
	if s == "now" {
		return now, true
	}
	now = now.In(time.Local)
	year, month, day := now.Date()
	on := func(day int, clock time.Time) time.Time {
		return time.Date(year, month, day, clock.Hour(), clock.Minute(), clock.Second(), 0, time.Local)
	}
	word, rest, _ := strings.Cut(s, " ")
	if offset, named := map[string]int{"yesterday": -1, "today": 0, "tomorrow": 1}[word]; named {
		clock, ok := time.Time{}, rest == ""
		if !ok {
			clock, ok = parseLocal(rest, "15:04", "15:04:05")
		}
		return on(day+offset, clock), ok
	}
	if clock, ok := parseLocal(s, "15:04", "15:04:05"); ok {
		at := on(day, clock)
		switch {
		case d == Future && !at.After(now):
			at = on(day+1, clock)
		case d == Past && at.After(now):
			at = on(day-1, clock)
		}
		return at, true
	}
	length, err := duration.Parse(s)
	return now.Add(time.Duration(d) * length), err == nil
}

// parseLocal reads s as one of the layouts, in local time.
func parseLocal(s string, layouts ...string) (time.Time, bool) {
	for _, layout := range layouts {
		if at, err := time.ParseInLocation(layout, s, time.Local); err == nil {
			return at, true
		}
	}
	return time.Time{}, false
}
