package engine

import (
	"context"
	"errors"
	"math"
	"os"
	"testing"

	"thread/event"
	"thread/internal/store"
	"thread/internal/store/bolt"
)

func start(t *testing.T, dir string) *bolt.Restore {
	t.Helper()
	r, err := bolt.StartRestore(dir, false)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close() })
	return r
}

// TestRestoreInvisible: before Publish there is no thread, and Close leaves
// nothing that was not there before.
func TestRestoreInvisible(t *testing.T) {
	root := t.TempDir()
	dir := root + "/deep/er"
	r := start(t, dir)
	if err := r.Event(&event.Event{ID: 7, CreatedAt: "then", Source: "s", Type: "t"}); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(dir); !errors.Is(err, ErrNotThread) {
		t.Errorf("open meanwhile: %v", err)
	}
	if _, err := bolt.StartRestore(dir, false); !errors.Is(err, ErrBusy) {
		t.Errorf("a second restore: %v", err)
	}
	if err := r.Publish(); !errors.Is(err, ErrInvalid) {
		t.Errorf("publish before finish: %v", err)
	}
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	if entries, _ := os.ReadDir(root); len(entries) != 0 {
		t.Errorf("left %v", entries)
	}
}

func TestRestore(t *testing.T) {
	ctx := context.Background()
	dir := t.TempDir() + "/a"
	r := start(t, dir)
	// Gaps, more than a column block, and texts that a push would refuse.
	var want []event.Event
	for i := range int64(3000) {
		e := event.Event{ID: 2*i + 1, CreatedAt: "\xff", Source: "", Type: "t\x00", Content: "\xfe"}
		want = append(want, e)
		if err := r.Event(&e); err != nil {
			t.Fatal(err)
		}
	}
	for _, id := range []int64{5999, 0, -1, math.MinInt64} {
		if err := r.Event(&event.Event{ID: id}); !errors.Is(err, ErrInvalid) {
			t.Errorf("event %d: %v", id, err)
		}
	}
	bad := "type=message AND"
	for i, c := range []string{"second", "first"} {
		if err := r.Subscription(store.Subscription{Consumer: c, Filter: &bad}, uint64(10-i), nil); err != nil {
			t.Fatal(err)
		}
	}
	if err := r.Subscription(store.Subscription{Consumer: "first"}, 11, nil); !errors.Is(err, ErrInvalid) {
		t.Errorf("twice: %v", err)
	}
	if err := r.Progress("gone", store.ProgressRecord{LastAcked: 9, Newest: 5999, UpdatedAt: "once"}); err != nil {
		t.Fatal(err)
	}
	if err := r.Extra(store.Extra{Bucket: []string{"events"}, Key: []byte("k")}); !errors.Is(err, ErrInvalid) {
		t.Errorf("an entry in our own bucket: %v", err)
	}
	if err := errors.Join(r.Finish(7000, 5), r.Publish(), r.Close()); err != nil {
		t.Fatal(err)
	}
	th, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	got, err := th.Peek(ctx, Query{})
	if err != nil || len(got) != len(want) {
		t.Fatalf("%d events, %v", len(got), err)
	}
	for i := range got {
		if got[i] != want[i] {
			t.Fatalf("%+v became %+v", want[i], got[i])
		}
	}
	info, err := th.Info(ctx)
	if err != nil || info.EventCount != 3005 || info.Newest != 5999 || info.Subscriptions[0].Consumer != "first" || info.Subscriptions[1].FilterErr == nil {
		t.Errorf("%+v, %v", info, err)
	}
	e, err := th.Push(ctx, event.Draft{Source: "s", Type: "t"})
	if err != nil || e.ID != 7001 {
		t.Errorf("next event %d, %v", e.ID, err)
	}
	if err := th.Subscribe(ctx, Subscription{Consumer: "third", Handler: "h"}); err != nil {
		t.Fatal(err)
	}
	s, err := store.TakeSnapshot(ctx, dirOf(th))
	if err != nil || s.Subscriptions[2].Consumer != "third" || s.Pruned != 5 || s.Stored != 3001 || len(s.Progress) != 1 || s.Progress[0].UpdatedAt != "once" {
		t.Errorf("%+v, %v", s, err)
	}
	if _, err := bolt.StartRestore(dir, false); !errors.Is(err, ErrExists) {
		t.Errorf("over a thread: %v", err)
	}
}
