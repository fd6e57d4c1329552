package cli

import (
	"fmt"
	"time"

	"thread/internal/duration"
)

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
