package store

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"thread/event"
)

// millisRange says of a time what comparing its text says.
func TestMillisRange(t *testing.T) {
	if first, last := event.FormatTime(time.UnixMilli(firstMillis)), event.FormatTime(time.UnixMilli(lastMillis)); first != "0000-01-01T00:00:00.000Z" || last != "9999-12-31T23:59:59.999Z" {
		t.Fatal(first, last)
	}
	texts := []string{"", "\x00", "0", "2026", "2026-03-18", "2026-03-18 ", "2026-03-18T10:30:00.123Z", "2026-03-18T10:30:00.123Z\x00", "2026-03-18T10:30:00.9", "2026-13", "9999-12-31T23:59:59.999Z", "9999-12-31T23:59:59.999Z\x00", "a", "\xff"}
	rapid.Check(t, func(t *rapid.T) {
		low, high := rapid.SampledFrom(texts).Draw(t, "low"), rapid.SampledFrom(texts).Draw(t, "high")
		earliest, latest := millisRange(low, high)
		for _, near := range []int64{earliest, latest, 1773829800123, firstMillis, lastMillis} {
			for ms := max(near, firstMillis+2) - 2; ms <= min(near, lastMillis-2)+2; ms++ {
				s := event.FormatTime(time.UnixMilli(ms))
				if want := s >= low && (high == "" || s < high); want != (earliest <= ms && ms <= latest) {
					t.Fatalf("[%q, %q) is [%d, %d], and of %s it is %v", low, high, earliest, latest, s, want)
				}
			}
		}
	})
}
