package traces

import (
	"context"
	"crypto/rand"
	"errors"
	"os"
	"path/filepath"
	"time"

	"thread/engine"
	"thread/history"
	"thread/internal/address"
	"thread/internal/spans"
	"thread/internal/watch"
)

// Follower finds runs that have ended in the history of a thread. Its mark stores up to where
// it has exported them. After a kill the next follower continues there; without a mark it
// begins with what ends from then on.
type Follower struct {
	thread string // its directory or address
	opts   []engine.Option
	mark   mark
	at     int64 // the history event up to which runs are exported
	seen   [2]stamp
	rests  time.Duration   // stampAge, but in tests
	empty  bool            // nothing was recorded at Begin
	sent   map[string]bool // pushes that were exported lately
	// recorded is the thread of the history at a URL, nil for a directory or before the first
	// look. A *history.History here would link all of that package into thread serve.
	recorded *engine.Thread
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

// Follow returns a follower for the thread at an address, which opens it with opts.
func Follow(thread string, opts ...engine.Option) *Follower {
	f := &Follower{thread: thread, opts: opts, rests: stampAge, sent: map[string]bool{}}
	if address.IsURL(thread) {
		f.mark = &recordMark{thread: thread, opts: opts, me: rand.Text()}
		return f
	}
	f.mark = &fileMark{path: filepath.Join(thread, "run", "traces.lock")}
	return f
}

// Close lets another follower continue.
func (f *Follower) Close() {
	f.mark.release()
	if f.recorded != nil {
		_ = f.recorded.Close()
		f.recorded = nil
	}
}

// open returns the history and the thread, and what to call at the end.
func (f *Follower) open(ctx context.Context) (h *history.History, t *engine.Thread, end func(), err error) {
	if h, err = history.Open(ctx, f.thread, history.WithEngine(f.opts...)); err != nil {
		return nil, nil, nil, err
	}
	if t, err = address.Open(f.thread, f.opts...); err != nil {
		return nil, nil, nil, errors.Join(err, h.Close())
	}
	return h, t, func() { _, _ = h.Close(), t.Close() }, nil
}

// Begin takes note of what is recorded before the first Look, which then continues from there.
func (f *Follower) Begin(ctx context.Context) error {
	now, err := f.stamps(ctx)
	if f.empty = now == [2]stamp{} && err == nil; f.empty || err != nil {
		return err
	}
	if err = f.hold(ctx); errors.Is(err, ErrHeld) {
		return nil
	}
	return err
}

// stamps returns what changes with the history: the times of its files, at a URL its head.
func (f *Follower) stamps(ctx context.Context) (now [2]stamp, err error) {
	if address.IsURL(f.thread) {
		now[0].size, err = f.head(ctx)
		return now, err
	}
	if at, size, err := watch.Written(filepath.Join(f.thread, history.Dir)); err == nil {
		now[0] = stamp{at, size}
	}
	if info, err := os.Stat(filepath.Join(f.thread, "logs", "runs")); err == nil {
		now[1] = stamp{info.ModTime(), info.Size()}
	}
	return now, nil
}

// head returns the newest id of the history at a URL, 0 without a history.
func (f *Follower) head(ctx context.Context) (id int64, err error) {
	if f.recorded == nil {
		url, err := address.History(f.thread)
		if err != nil {
			return 0, err
		}
		if f.recorded, err = address.Open(url, f.opts...); err != nil {
			return 0, err
		}
	}
	err = f.recorded.View(ctx, func(tx *engine.Tx) error {
		id = tx.Head()
		return nil
	})
	if errors.Is(err, engine.ErrNotThread) {
		return 0, nil
	}
	return id, err
}

// ErrHeld says that another follower exports what is recorded in the thread.
var ErrHeld = errors.New("another process exports the traces of the thread")

// Look calls send with the spans of runs that have ended since the last call. It returns
// [ErrHeld] where another follower does that. send returns nil when it is done with them; after an error they are sent again.
func (f *Follower) Look(ctx context.Context, send func(context.Context, []spans.Span) error) error {
	now, err := f.stamps(ctx)
	if err != nil {
		return err
	}
	if now == f.seen && time.Since(now[0].modified) > f.rests && time.Since(now[1].modified) > f.rests {
		return nil
	}
	if now == [2]stamp{} {
		return nil
	}
	if err := f.hold(ctx); err != nil {
		return err
	}
	if err := f.look(ctx, send); err != nil {
		return err
	}
	f.seen = now
	return nil
}

// hold takes the mark and reads how far its last holder came.
func (f *Follower) hold(ctx context.Context) error {
	at, found, err := f.mark.hold(ctx)
	if err != nil {
		return err
	}
	if !found {
		if at, err = f.begin(ctx); err == nil {
			err = f.mark.move(ctx, at)
		}
	}
	if err != nil {
		f.mark.release()
	}
	f.at = at
	return err
}

// begin returns where a follower begins that none was before.
func (f *Follower) begin(ctx context.Context) (at int64, err error) {
	if f.empty {
		return 0, nil
	}
	h, _, end, err := f.open(ctx)
	if err != nil {
		return 0, err
	}
	defer end()
	return h.Head(ctx)
}

// moved stores that runs are exported up to a history event.
func (f *Follower) moved(ctx context.Context, at int64) error {
	f.at = at
	return f.mark.move(ctx, at)
}

func (f *Follower) look(ctx context.Context, send func(context.Context, []spans.Span) error) (err error) {
	h, t, end, err := f.open(ctx)
	if err != nil {
		return err
	}
	defer end()
	s := &source{thread: f.thread, h: h, t: t}
	if head, err := h.Head(ctx); err != nil || head < f.at { // another history is in its place
		return errors.Join(err, f.moved(ctx, head))
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
		return f.moved(ctx, at)
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
