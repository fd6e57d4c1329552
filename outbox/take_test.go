package outbox

import (
	"testing"
	"time"
)

// TestRowTime: every form in which SQLite and PostgreSQL write a time as text is the same
// moment.
func TestRowTime(t *testing.T) {
	want := time.Date(2026, 3, 18, 10, 30, 0, 0, time.UTC)
	for _, text := range []string{"2026-03-18T10:30:00Z", "2026-03-18 10:30:00", "2026-03-18T10:30", "2026-03-18 10:30:00.000", "2026-03-18 10:30:00+00", "2026-03-18 10:30:00.000000+00",
		"2026-03-18 12:30:00+02", "2026-03-18 05:00:00-05:30", "2026-03-18T12:30:00+0200", "2026-03-18 12:30+02:00"} {
		at, ok, err := rowTime(text)
		if err != nil || !ok || !at.Equal(want) {
			t.Errorf("%s: %v %v %v", text, at, ok, err)
		}
	}
	for _, value := range []any{int64(1773829800), int64(1773829800000), []byte("2026-03-18 10:30:00+00")} {
		if at, ok, err := rowTime(value); err != nil || !ok || !at.Equal(want) {
			t.Errorf("%v: %v %v %v", value, at, ok, err)
		}
	}
	for _, text := range []string{"soon", "2026-03-18 10:30:00+", "2026-03-18 10:30:00 PST", "2026-13-18"} {
		if at, _, err := rowTime(text); err == nil {
			t.Errorf("%s: %v", text, at)
		}
	}
}
