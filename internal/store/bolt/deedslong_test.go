package bolt_test

import (
	"fmt"
	"path/filepath"
	"testing"

	"thread/engine"
	"thread/event"
	"thread/index"
	"thread/internal/faults"
	"thread/internal/store/bolt"
)

// failEachOnce is failEachStep for what does not depend on whether a database is kept open.
func failEachOnce(t *testing.T, sound string, all map[string]deed) {
	for name, d := range all {
		t.Run(name, func(t *testing.T) {
			d.failEach(t, &stepped{sound: sound, dir: filepath.Join(faults.Dir(t), "t")})
		})
	}
}

// TestStepsOfLongDeeds is TestSteps for a batch of several transactions, which carry on the
// events that no column has yet, and for a restore of more events than get lines.
func TestStepsOfLongDeeds(t *testing.T) {
	dir := filepath.Join(faults.Dir(t), "t")
	fiveEvents(t, dir)
	failEachOnce(t, dir, map[string]deed{
		"batch": {do: done(func(th *engine.Thread) error {
			s, err := openStore(th.Dir(), bolt.Options{MaxGroup: 1000})
			if err != nil {
				return err
			}
			defer s.Close()
			_, err = s.PushAll(ctx, drafts(3*index.BlockEvents, ""))
			return err
		}), then: newest, within: "(*Tx).addToColumn"},
		"restore": {do: done(func(th *engine.Thread) error {
			r, err := bolt.StartRestore(filepath.Join(th.Dir(), "in", "t"), false)
			if err != nil {
				return err
			}
			defer r.Close()
			for i := range int64(10_003) {
				e := event.Event{ID: i + 1, CreatedAt: "2026-03-18T10:30:00.123Z", Source: "s", Type: "t", Content: fmt.Sprint(i)}
				if err := r.Event(&e); err != nil {
					return err
				}
			}
			if err := r.Finish(0, 0); err != nil {
				return err
			}
			return r.Publish()
		}), then: restored, within: "(*Tx).BeforeNewest"},
	})
}
