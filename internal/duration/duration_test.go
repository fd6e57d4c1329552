package duration

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestParse(t *testing.T) {
	const day = 24 * time.Hour
	for s, want := range map[string]time.Duration{
		"0": 0, "0s": 0, "500ms": 500 * time.Millisecond, "1.5h": 90 * time.Minute, "30d": 30 * day, "2w": 14 * day,
		"1d12h": 36 * time.Hour, "1w2d3h4m5s": 9*day + 3*time.Hour + 4*time.Minute + 5*time.Second, "0.5d": 12 * time.Hour,
		".5d": 12 * time.Hour, "3µs": 3 * time.Microsecond, "106751d": 106751 * day, "15250w": 15250 * 7 * day,
	} {
		if got, err := Parse(s); err != nil || got != want {
			t.Errorf("%q is %v, %v; want %v", s, got, err, want)
		}
	}
	for _, s := range []string{"", " ", "d", "1", "30", "-1d", "+1d", "-5s", "1d ", " 1d", "1 d", "1D", "1y", "1.d.", "..d", "1h-5m",
		"106752d", "15251w", "99999999999999999999d", "106751d24h", "1e3s", "inf", "soon"} {
		if got, err := Parse(s); err == nil {
			t.Errorf("%q is %v", s, got)
		}
	}
}

// TestParseLikeGo: what Go reads without a sign means the same here, and what has
// no days and weeks and is refused by Go is refused here.
func TestParseLikeGo(t *testing.T) {
	piece := rapid.SampledFrom([]string{"0", "1", "15", ".", "2.5", "ms", "s", "m", "h", "us", "µs", "ns", " ", "x"})
	rapid.Check(t, func(t *rapid.T) {
		s := ""
		for _, p := range rapid.SliceOfN(piece, 0, 6).Draw(t, "pieces") {
			s += p
		}
		got, err := Parse(s)
		want, goErr := time.ParseDuration(s)
		if got != want || (err == nil) != (goErr == nil) {
			t.Fatalf("%q is %v, %v; to Go it is %v, %v", s, got, err, want, goErr)
		}
	})
}
