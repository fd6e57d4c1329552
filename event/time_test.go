package event

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

// AppendTime writes what the time package writes for the layout, and ParseTime
// reads it back.
func TestAppendTime(t *testing.T) {
	first := time.Date(0, 1, 1, 0, 0, 0, 0, time.UTC).UnixMilli()
	last := time.Date(9999, 12, 31, 23, 59, 59, 999e6, time.UTC).UnixMilli()
	check := func(t interface{ Fatalf(string, ...any) }, ms int64) {
		got, want := string(AppendTime(nil, ms)), time.UnixMilli(ms).UTC().Format(TimeLayout)
		if got != want {
			t.Fatalf("%d is %s, want %s", ms, got, want)
		}
		if back, exact := ParseTime(got); exact != (first <= ms && ms <= last) || exact && back != ms {
			t.Fatalf("%s is read as %d, %v; it is %d", got, back, exact, ms)
		}
	}
	for _, ms := range []int64{first - 1, first, -1, 0, 1, 951782399999, 951782400000, 1773829800123, last, last + 1} {
		check(t, ms)
	}
	rapid.Check(t, func(t *rapid.T) { check(t, rapid.Int64Range(first-1e12, last+1e12).Draw(t, "ms")) })
}
