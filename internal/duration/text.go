package duration

import (
	"fmt"
	"strings"
	"time"
)

// Text returns d as Parse reads it, in days, hours, minutes and seconds and without
// those that are zero: 30d, 1d12h, 90s is 1m30s. A negative d is in Go's form.
func Text(d time.Duration) string {
	if d < time.Minute {
		return d.String()
	}
	days := d / (24 * time.Hour)
	rest := (d % (24 * time.Hour)).String()
	if strings.HasSuffix(rest, "m0s") {
		rest = strings.TrimSuffix(rest, "0s")
	}
	if strings.HasSuffix(rest, "h0m") {
		rest = strings.TrimSuffix(rest, "0m")
	}
	switch {
	case days == 0:
		return rest
	case rest == "0s":
		return fmt.Sprintf("%dd", days)
	}
	return fmt.Sprintf("%dd%s", days, rest)
}
