package serve

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"
)

// repeatTime is how often the log is told of what goes wrong again and again, and
// how long it must not have happened to be told as new.
const repeatTime = 10 * time.Minute

// repeats logs what goes wrong once, and from then on how often it did. Without
// it, a process short of something fills the disk with the same line.
type repeats struct {
	log *slog.Logger

	mu   sync.Mutex
	seen map[string]*repeat
}

type repeat struct {
	level slog.Level
	msg   string
	args  []any
	since time.Time // of the last line
	count int       // since then
}

func newRepeats(log *slog.Logger) *repeats { return &repeats{log: log, seen: map[string]*repeat{}} }

// say logs a line, unless it was logged before with the same arguments.
func (r *repeats) say(level slog.Level, msg string, args ...any) {
	key := fmt.Sprintln(append([]any{msg}, args...)...)
	r.mu.Lock()
	defer r.mu.Unlock()
	if old := r.seen[key]; old != nil {
		old.count++
		return
	}
	r.seen[key] = &repeat{level: level, msg: msg, args: args, since: time.Now()}
	r.log.Log(context.Background(), level, msg, args...)
}

// sum logs the counts of the lines that are older than age, and forgets those that
// did not happen again.
func (r *repeats) sum(age time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for key, old := range r.seen {
		switch {
		case time.Since(old.since) < age:
		case old.count == 0:
			delete(r.seen, key)
		default:
			r.log.Log(context.Background(), old.level, old.msg, append(slices.Clip(old.args), "again", old.count)...)
			old.since, old.count = time.Now(), 0
		}
	}
}
