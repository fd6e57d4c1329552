package engine

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"thread/event"
	"thread/internal/store/bolt/disk"
)

// TestNoChangeNoCommit: what changes nothing commits nothing.
func TestNoChangeNoCommit(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "t")
	th, err := Init(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer th.Close()
	where := "type = 't'"
	sub := Subscription{Consumer: "c", Handler: "true", Filter: &where}
	for _, err := range []error{
		th.Subscribe(ctx, sub),
		th.Subscribe(ctx, Subscription{Consumer: "p", Pull: true}),
		func() error { _, err := th.Push(ctx, event.Draft{Source: "s", Type: "t", Content: "x"}); return err }(),
		th.Ack(ctx, "c", 1),
		th.SetLimits(ctx, Limits{MaxEvents: 1000, MaxAge: 1000 * time.Hour}),
		func() error { _, err := th.Retain(ctx); return err }(),
		func() error {
			_, err := th.AddSchedule(ctx, Schedule{Name: "n", Spec: "@every 1000h", Draft: event.Draft{Source: "s", Type: "t"}})
			return err
		}(),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	committed := func() uint64 {
		f, err := os.Open(filepath.Join(dir, "events.db"))
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		return disk.Committed(f)
	}
	for _, c := range []struct {
		name   string
		before func() error // commits
		do     func() error
		err    error
	}{
		{name: "an update of nothing", do: func() error { return th.Update(ctx, func(*Tx) error { return nil }) }},
		{name: "retain", do: func() error { _, err := th.Retain(ctx); return err }},
		{name: "ack of an old id", do: func() error { return th.Ack(ctx, "c", 1) }},
		{name: "ack of an older id", do: func() error { return th.Ack(ctx, "c", 0) }},
		{name: "pause", before: func() error { return th.Pause(ctx, "c") }, do: func() error { return th.Pause(ctx, "c") }},
		{name: "resume", before: func() error { return th.Resume(ctx, "c") }, do: func() error { return th.Resume(ctx, "c") }},
		{name: "an equal replace", do: func() error {
			return th.Update(ctx, func(tx *Tx) error { return tx.Replace("c", func(s *Subscription) { s.Filter = &where }) })
		}},
		{name: "a delivery of nothing", before: func() error { return th.Ack(ctx, "p", 1) }, do: func() error { _, err := th.Next(ctx, "p", NextOptions{}); return err }},
		{name: "a stale result", do: func() error { _, err := th.SettleDelivery(ctx, "p", 7, Result{}); return err }, err: ErrStale},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.before != nil {
				if err := c.before(); err != nil {
					t.Fatal(err)
				}
			}
			was := committed()
			if err := c.do(); !errors.Is(err, c.err) {
				t.Fatal(err)
			}
			if is := committed(); is != was {
				t.Errorf("%d transactions", is-was)
			}
		})
	}
}
