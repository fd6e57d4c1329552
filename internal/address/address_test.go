package address

import (
	"errors"
	"testing"
)

func TestIsURL(t *testing.T) {
	for address, want := range map[string]bool{
		"postgres://db/app?thread=inbox": true, "POSTGRESQL://db/app": true,
		"./inbox": false, "": false, "postgres:inbox": false, "http://db/app": false,
	} {
		if IsURL(address) != want {
			t.Errorf("IsURL(%q) is %v", address, !want)
		}
	}
}

// TestHistory: the history of a thread is named next to it, and leads back to it.
func TestHistory(t *testing.T) {
	const of = "postgres://u@a,b/app?durability=2&thread=in+box%2F1"
	h, err := History(of)
	if err != nil || Name(h) != "in box/1/history" {
		t.Fatalf("%q %v", h, err)
	}
	if back := HistoryOf(h); back != of {
		t.Errorf("%q leads to %q", h, back)
	}
	for _, none := range []string{of, "./inbox/history", "postgres://db/app"} {
		if got := HistoryOf(none); got != "" {
			t.Errorf("HistoryOf(%q) is %q", none, got)
		}
	}
}

// TestNoDriver: without a driver, URLs are refused and never taken for directories.
func TestNoDriver(t *testing.T) {
	if _, err := Open("postgres://db/app?thread=inbox"); !errors.Is(err, ErrNoDriver) {
		t.Error(err)
	}
	if err := Init(t.Context(), "postgres://db/app?thread=inbox"); !errors.Is(err, ErrNoDriver) {
		t.Error(err)
	}
}
