package store

import (
	"math"

	"thread/event"
)

// The first and the last time that have the form of event.AppendTime. Between
// these, and only there, the order of the texts is the order of the times.
const (
	firstMillis = -62167219200000 // 0000-01-01T00:00:00.000Z
	lastMillis  = 253402300799999 // 9999-12-31T23:59:59.999Z
)

// millisRange returns the first and the last time whose text lies in the range of
// a filter.CreatedAtRange. If there is none, earliest is after latest.
func millisRange(low, high string) (earliest, latest int64) {
	earliest, latest = math.MinInt64, math.MaxInt64
	if low != "" {
		earliest = firstFrom(low)
	}
	if high != "" {
		latest = firstFrom(high) - 1
	}
	return earliest, latest
}

// firstFrom returns the first time whose text is not less than s.
func firstFrom(s string) int64 {
	var buf [len(event.TimeLayout)]byte
	low, high := int64(firstMillis), int64(lastMillis+1)
	for low < high {
		if mid := low + (high-low)/2; string(event.AppendTime(buf[:0], mid)) < s {
			low = mid + 1
		} else {
			high = mid
		}
	}
	return low
}
