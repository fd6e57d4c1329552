package engine_test

import (
	"context"

	"thread/engine"
	"thread/internal/fsck"
)

//nolint:gochecknoinits // the tests of package engine cannot import fsck, which imports it
func init() {
	engine.Check = func(ctx context.Context, t *engine.Thread) (*engine.CheckReport, error) {
		r, err := fsck.Check(ctx, t)
		if err != nil {
			return nil, err
		}
		c := &engine.CheckReport{Events: r.Events, Digest: r.Digest}
		for _, f := range r.Faults {
			c.Faults = append(c.Faults, f.Place+": "+f.What)
		}
		return c, nil
	}
	engine.FixLog = func(ctx context.Context, t *engine.Thread) (int, error) {
		fixed, err := fsck.FixLog(ctx, t)
		return len(fixed), err
	}
	engine.Repair = func(ctx context.Context, from, to string) (*engine.RepairReport, error) {
		r, err := fsck.Repair(ctx, from, to)
		if r == nil {
			return nil, err
		}
		return &engine.RepairReport{
			Saved: r.Saved, NextID: r.NextID, Subscriptions: r.Subscriptions, Progress: r.Progress, FromDatabase: r.FromDatabase,
			FromUnused: r.FromUnused, FromPrevious: r.FromPrevious, FromLines: r.FromLines, Lost: len(r.Lost),
			Unknown: len(r.Unknown), Problems: r.Problems,
		}, err
	}
}
