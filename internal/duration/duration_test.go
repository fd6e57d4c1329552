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

// TestText: what is printed reads as the same duration.
func TestText(t *testing.T) {
	for want, d := range map[string]time.Duration{"0s": 0, "1m30s": 90 * time.Second, "30d": 720 * time.Hour, "1d12h": 36 * time.Hour,
		"1h": time.Hour, "1h0m5s": time.Hour + 5*time.Second, "10m": 10 * time.Minute, "1d5m0.5s": 24*time.Hour + 5*time.Minute + 500*time.Millisecond, "250ms": 250 * time.Millisecond} {
		if got := Text(d); got != want {
			t.Errorf("%v is %q, want %q", d, got, want)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		unit := rapid.SampledFrom([]time.Duration{1, time.Millisecond, time.Second, time.Minute, time.Hour, 24 * time.Hour}).Draw(t, "unit")
		d := unit * time.Duration(rapid.Int64Range(0, 100_000).Draw(t, "n"))
		if got, err := Parse(Text(d)); err != nil || got != d {
			t.Fatalf("%v is %q, which reads as %v, %v", d, Text(d), got, err)
		}
	})
}
