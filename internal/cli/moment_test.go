package cli

import (
	"testing"
	"time"
)

// TestParseTime: one grammar for every flag, around a change of the clocks, too.
func TestParseTime(t *testing.T) {
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Skip(err)
	}
	was := time.Local
	time.Local = berlin
	t.Cleanup(func() { time.Local = was })
	now := time.Date(2026, 3, 28, 12, 30, 15, 0, berlin) // the clocks go forward the next night
	at := func(month time.Month, day, hour, minute, second int) time.Time {
		return time.Date(2026, month, day, hour, minute, second, 0, berlin)
	}
	for _, c := range []struct {
		s            string
		past, future time.Time
	}{
		{"90m", now.Add(-90 * time.Minute), now.Add(90 * time.Minute)},
		{"2w", now.Add(-14 * 24 * time.Hour), now.Add(14 * 24 * time.Hour)},
		{"1d", now.Add(-24 * time.Hour), now.Add(24 * time.Hour)}, // 24 hours
		{"0", now, now},
		{"0001-01-01T00:00:00Z", time.Time{}.Add(1), time.Time{}.Add(1)},
		{"now", now, now},
		{"18:00", at(3, 27, 18, 0, 0), at(3, 28, 18, 0, 0)},
		{"9:05", at(3, 28, 9, 5, 0), at(3, 29, 9, 5, 0)},
		{"12:30:15", at(3, 28, 12, 30, 15), at(3, 29, 12, 30, 15)},
		{"12:30:16", at(3, 27, 12, 30, 16), at(3, 28, 12, 30, 16)},
		{"today", at(3, 28, 0, 0, 0), at(3, 28, 0, 0, 0)},
		{"tomorrow 09:00", at(3, 29, 9, 0, 0), at(3, 29, 9, 0, 0)},
		{"tomorrow 02:30", at(3, 29, 2, 30, 0), at(3, 29, 2, 30, 0)}, // a time that is left out
		{"yesterday", at(3, 27, 0, 0, 0), at(3, 27, 0, 0, 0)},
		{" yesterday 23:59:59 ", at(3, 27, 23, 59, 59), at(3, 27, 23, 59, 59)},
		{"2026-01-31", at(1, 31, 0, 0, 0), at(1, 31, 0, 0, 0)},
		{"2026-01-31 09:00", at(1, 31, 9, 0, 0), at(1, 31, 9, 0, 0)},
		{"2026-07-31T09:00:01", at(7, 31, 9, 0, 1), at(7, 31, 9, 0, 1)},
		{"2026-01-31T09:00:00Z", at(1, 31, 10, 0, 0), at(1, 31, 10, 0, 0)},
		{"2026-01-31 09:00:00+01:00", at(1, 31, 9, 0, 0), at(1, 31, 9, 0, 0)},
		{"2026-01-31T09:00:00.5Z", at(1, 31, 10, 0, 0).Add(500 * time.Millisecond), at(1, 31, 10, 0, 0).Add(500 * time.Millisecond)},
	} {
		for d, want := range map[Direction]time.Time{Past: c.past, Future: c.future} {
			if got, err := ParseTime("--at", c.s, now, d); err != nil || !got.Equal(want) {
				t.Errorf("%q in direction %d is %v, %v; want %v", c.s, d, got, err, want)
			}
		}
	}
	for _, s := range []string{"", " ", "soon", "-5m", "25:00", "12:60", "tomorrow 25:00", "tomorrow  9", "today now", "2026-02-30", "2026-13-01", "31.1.2026", "18", "1e9"} {
		if got, err := ParseTime("--at", s, now, Past); err == nil {
			t.Errorf("%q is %v", s, got)
		}
	}
}
