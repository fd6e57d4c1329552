package pgstore

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"thread/internal/store"
)

// pollEvery is how long a watcher waits at most: a notice may be lost, and behind a pooler
// of transactions none comes.
const pollEvery = 5 * time.Second

// shortestWait keeps a process from asking without a pause.
const shortestWait = 20 * time.Millisecond

// watcher implements store.Watcher.
type watcher struct {
	s    *Store
	poll time.Duration
	conn *pgconn.PgConn // nil: there is none
}

// Watch returns a watcher. What is written from now on ends its Wait.
func (s *Store) Watch(ctx context.Context) store.Watcher {
	w := &watcher{s: s, poll: pollEvery}
	w.listen(ctx)
	return w
}

func (w *watcher) listen(ctx context.Context) {
	limited, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	c, err := connect(limited, w.s.pool.config)
	if err != nil {
		return // it looks every 5 s, and tries again
	}
	if _, err := c.Exec(limited, "LISTEN "+quoted(w.s.channel())).ReadAll(); err != nil {
		hangUp(c)
		return
	}
	w.conn = c
}

// Wait implements store.Watcher. It returns after 5 s, too.
func (w *watcher) Wait(ctx context.Context, until time.Time) error {
	longest := time.Now().Add(w.poll)
	if until.IsZero() || until.After(longest) {
		until = longest
	}
	// Where the clock of this host is ahead, the server may not think that it is time.
	if soon := time.Now().Add(shortestWait); until.Before(soon) {
		until = soon
	}
	limited, cancel := context.WithDeadline(ctx, until)
	defer cancel()
	if w.conn == nil {
		w.listen(limited)
		if w.conn != nil {
			return context.Cause(ctx) // what came before it was not told
		}
		<-limited.Done()
		return context.Cause(ctx)
	}
	if err := w.conn.WaitForNotification(limited); err != nil && limited.Err() == nil {
		hangUp(w.conn)
		w.conn = nil
	}
	return context.Cause(ctx)
}

// Close ends the watching.
func (w *watcher) Close() error {
	if w.conn != nil {
		hangUp(w.conn)
		w.conn = nil
	}
	return nil
}
