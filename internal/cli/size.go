package cli

import (
	"fmt"
	"math"
	"strings"
)

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
