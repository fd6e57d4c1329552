package traces

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"thread/engine"
	"thread/history"
	"thread/internal/spans"
	"thread/internal/watch"
	"thread/lock"
)

// Follower finds runs that have ended in the history of a thread directory. Up to where it
// has exported them is stored in run/traces.lock, which only one follower holds. After a
// kill the next one continues there; without the file it begins with what ends from then on.
type Follower struct {
	dir   string
	opts  []engine.Option
	held  *lock.File
	at    int64 // the history event up to which runs are exported
	seen  [2]stamp
	rests time.Duration   // stampAge, but in tests
	empty bool            // nothing was recorded at Begin
	sent  map[string]bool // pushes that were exported lately
}

type stamp struct {
	modified time.Time
	size     int64
}

const (
	// stampAge is how old a modification has to be before its time tells it from a later
	// one: file systems count in ticks, the coarsest in 2 s.
	stampAge = 2 * time.Second
	// maxSpans is how many spans of ended runs are sent at once, about.
	maxSpans = 512
	maxSent  = 10_000
)

// Follow returns a follower for the thread in dir, which opens it with opts.
func Follow(dir string, opts ...engine.Option) *Follower {
	return &Follower{dir: dir, opts: opts, rests: stampAge, sent: map[string]bool{}}
}

// Close lets another follower continue.
func (f *Follower) Close() {
	if f.held != nil {
		_ = f.held.Close()
		f.held = nil
	}
}

// Begin takes note of what is recorded before the first Look, which then continues from there.
func (f *Follower) Begin(ctx context.Context) error {
	if f.stamps() == [2]stamp{} {
		f.empty = true
		return nil
	}
	_, err := f.hold(ctx)
	return err
}

func (f *Follower) stamps() (now [2]stamp) {
	if at, size, err := watch.Written(filepath.Join(f.dir, history.Dir)); err == nil {
		now[0] = stamp{at, size}
	}
	if info, err := os.Stat(filepath.Join(f.dir, "logs", "runs")); err == nil {
		now[1] = stamp{info.ModTime(), info.Size()}
	}
	return now
}

// ErrHeld says that another follower exports what is recorded in the directory.
var ErrHeld = errors.New("another process exports the traces of the thread")

// Look calls send with the spans of runs that have ended since the last call. It returns
// [ErrHeld] where another follower does that. send returns nil when it is done with them; after an error they are sent again.
func (f *Follower) Look(ctx context.Context, send func(context.Context, []spans.Span) error) error {
	now := f.stamps()
	if now == f.seen && time.Since(now[0].modified) > f.rests && time.Since(now[1].modified) > f.rests {
		return nil
	}
	if now == [2]stamp{} {
		return nil
	}
	held, err := f.hold(ctx)
	if err != nil {
		return err
	}
	if !held {
		return ErrHeld
	}
	if err := f.look(ctx, send); err != nil {
		return err
	}
	f.seen = now
	return nil
}

// hold takes the lock and reads how far its last holder came.
func (f *Follower) hold(ctx context.Context) (bool, error) {
	if f.held != nil {
		return true, nil
	}
	path := filepath.Join(f.dir, "run", "traces.lock")
	if err := lock.Mkdir(filepath.Dir(path)); err != nil {
		return false, err
	}
	held, err := lock.Try(path, lock.Exclusive)
	if errors.Is(err, lock.ErrHeld) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	text := make([]byte, 32)
	n, _ := held.File().ReadAt(text, 0)
	at, err := strconv.ParseInt(strings.TrimSpace(string(text[:n])), 10, 64)
	f.held = held
	if err == nil {
		f.at = at
		return true, nil
	}
	if at, err = f.begin(ctx); err == nil {
		err = f.moved(at)
	}
	if err != nil {
		f.Close()
	}
	return err == nil, err
}

// begin returns where a follower begins that none was before.
func (f *Follower) begin(ctx context.Context) (at int64, err error) {
	if f.empty {
		return 0, nil
	}
	h, err := history.Open(ctx, f.dir, f.options()...)
	if err != nil {
		return 0, err
	}
	at, err = h.Head(ctx)
	return at, errors.Join(err, h.Close())
}

func (f *Follower) options() []history.Option {
	return []history.Option{history.WithEngine(f.opts...)}
}

// moved stores that runs are exported up to a history event.
func (f *Follower) moved(at int64) error {
	f.at = at
	_, err := f.held.File().WriteAt(fmt.Appendf(nil, "%020d\n", at), 0)
	return err
}

func (f *Follower) look(ctx context.Context, send func(context.Context, []spans.Span) error) (err error) {
	h, err := history.Open(ctx, f.dir, f.options()...)
	if err != nil {
		return err
	}
	defer h.Close()
	t, err := engine.Open(f.dir, f.opts...)
	if err != nil {
		return err
	}
	defer t.Close()
	s := &source{thread: f.dir, h: h, t: t}
	if head, err := h.Head(ctx); err != nil || head < f.at { // another history is in its place
		return errors.Join(err, f.moved(head))
	}
	var list []spans.Span
	at := f.at
	flush := func() error {
		if at == f.at {
			return nil
		}
		if len(list) > 0 {
			if err := send(ctx, f.fresh(list)); err != nil {
				return err
			}
		}
		list = nil
		return f.moved(at)
	}
	for c, err := range h.Changes(ctx, f.at, "type = 'run'") {
		if err != nil {
			return err
		}
		at = c.ID
		var row history.RunRow
		if c.Op != history.OpUpsert || history.ParseJSON(&row, c.Row) != nil || !row.Ended() {
			continue
		}
		some, err := s.spans(ctx, &row)
		if err != nil {
			return err
		}
		if list = append(list, some...); len(list) < maxSpans {
			continue
		}
		if err := flush(); err != nil {
			return err
		}
	}
	return flush()
}

// fresh leaves out pushes that were exported, as for another consumer, and spans of traces
// that are not to be kept.
func (f *Follower) fresh(list []spans.Span) []spans.Span {
	var out []spans.Span
	for i := range list {
		s := &list[i]
		if s.Unkept || s.Kind == spans.Producer && f.sent[s.ID] {
			continue
		}
		if len(f.sent) >= maxSent {
			clear(f.sent)
		}
		if s.Kind == spans.Producer {
			f.sent[s.ID] = true
		}
		out = append(out, *s)
	}
	return out
}
