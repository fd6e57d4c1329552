package watch

import (
	"testing"
	"time"
)

// TestWaitInNaps: a wait that is longer than one nap ends at its time, not before.
func TestWaitInNaps(t *testing.T) {
	if far := Nap(time.Now().AddDate(50, 0, 0)); far != longestNap {
		t.Errorf("a wait of 50 years sleeps for %v at once", far)
	}
	w, err := New(t.TempDir())
	if err != nil {
		t.Skip(err) // no file notifications to be had
	}
	defer w.Close()
	defer func(d time.Duration) { longestNap = d }(longestNap)
	longestNap = time.Millisecond
	until := time.Now().Add(30 * time.Millisecond)
	if err := w.Wait(t.Context(), until); err != nil || time.Now().Before(until) {
		t.Errorf("%v, %v before its time", err, time.Until(until))
	}
}
