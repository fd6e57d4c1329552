package engine

import (
	"errors"
	"path/filepath"
	"testing"
	"time"

	"thread/event"
)

// A delayed event is cancelled by an id that it keeps also when its delay begins again
// because the clock was ahead, and that no schedule and no other event has.
func TestCancel(t *testing.T) {
	now := time.UnixMilli(1773829800123)
	th, err := Init(filepath.Join(t.TempDir(), "t"), WithClock(func() time.Time { return now }))
	if err != nil {
		t.Fatal(err)
	}
	d := event.Draft{Source: "s", Type: "t"}
	now = now.Add(48 * time.Hour) // too late
	_, first, err := th.DelayFor(ctx, d, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := th.AddSchedule(ctx, Schedule{Name: "n", Spec: "@every 1h", Draft: d}); err != nil {
		t.Fatal(err)
	}
	_, second, err := th.DelayFor(ctx, d, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	now = now.Add(-48 * time.Hour)
	list, err := th.Delayed(ctx, 0)
	if err != nil || len(list) != 2 || list[0].ID != first.ID || list[1].ID != second.ID || list[0].At.After(now.Add(time.Hour)) {
		t.Fatalf("with the clock set back %v wait, %v; they were %d and %d", list, err, first.ID, second.ID)
	}
	for id := range int64(5) {
		if err := th.Cancel(ctx, id); (err == nil) != (id == first.ID) && id != second.ID || err != nil && !errors.Is(err, ErrNoDelayed) {
			t.Errorf("Cancel(%d): %v", id, err)
		}
	}
	if list, err := th.Delayed(ctx, 0); err != nil || len(list) != 0 {
		t.Errorf("%v wait, %v", list, err)
	}
	if list, err := th.Schedules(ctx); err != nil || len(list) != 1 {
		t.Errorf("the schedules are %v, %v", list, err)
	}
	_, third, err := th.DelayFor(ctx, d, time.Second)
	if err != nil {
		t.Fatal(err)
	}
	now = now.Add(2 * time.Second)
	if err := th.Cancel(ctx, third.ID); !errors.Is(err, ErrNoDelayed) {
		t.Errorf("Cancel of what is due: %v", err)
	}
	if es, err := th.Peek(ctx, Query{}); err != nil || len(es) != 1 {
		t.Errorf("%v, %v", es, err)
	}
}
