package dispatch

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"

	"thread/engine"
	"thread/lock"
)

// unpoppedFix is what is said to the process that takes a handler's stdin for its events.
const unpoppedFix = "no event comes on its stdin; thread consume -- CMD pops them for a command"

// windowed reports whether the consumer's events are settled out of order: then a run
// that has handled some may leave the progress where it was.
func (s *supervisor) windowed(ctx context.Context, consumer string) bool {
	info, err := s.t.Info(ctx)
	for i := range info.Subscriptions {
		if c := &info.Subscriptions[i]; c.Consumer == consumer {
			return c.Window != 0
		}
	}
	return err != nil
}

// anyUnpopped reports whether a note in the directory run says Unpopped.
func anyUnpopped(run string) bool {
	entries, _ := os.ReadDir(run)
	return slices.ContainsFunc(entries, func(e os.DirEntry) bool {
		if filepath.Ext(e.Name()) != ".json" {
			return false
		}
		var n note
		text, err := lock.ReadFile(filepath.Join(run, e.Name()))
		return err == nil && json.Unmarshal(text, &n) == nil && n.Unpopped
	})
}

// Unpopped returns the consumers whose handlers exited 0 the last time and had popped
// nothing, in the order of subscription. The database is asked, which looks at every
// consumer, only where a note says that there is one.
func Unpopped(ctx context.Context, t *engine.Thread) (consumers []string, err error) {
	r := newDispatcher(t, Options{})
	if t.URL() != "" || !anyUnpopped(r.run) {
		return nil, nil
	}
	info, err := t.Info(ctx)
	for i := range info.Subscriptions {
		if c := &info.Subscriptions[i]; r.readNote(c.Consumer).Unpopped {
			consumers = append(consumers, c.Consumer)
		}
	}
	return consumers, err
}
