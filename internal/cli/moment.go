package cli

import (
	"fmt"
	"strings"
	"time"

	"thread/internal/duration"
)

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
