package serve

import (
	"context"
	"errors"
	"io"
	"math"
	"net"
	"strconv"
	"time"

	"thread/engine"
	"thread/event"
)

// defaultHeartbeat is how often a stream without events is written to, so that
// the other side and what lies between know that it lives.
const defaultHeartbeat = 15 * time.Second

// stream answers /events with server-sent events (the WHATWG's HTML standard,
// section 9.2): one for each event of the thread after the given one, those that
// are there and then those that come.
//
// A stream is a place in the order of ids and nothing else: it reads what lies
// after its place, moves there, and waits until the thread may have changed. So
// between what was there and what comes, there is no gap and nothing twice.
func (w *web) stream(conn net.Conn, q *httpRequest) error {
	if w.ctx.Err() != nil {
		return errDraining
	}
	t, err := w.s.named(q.query.Get("thread"))
	if err != nil {
		return err
	}
	where := q.query.Get("filter")
	for _, err := range t.t.Events(w.ctx, engine.Query{After: math.MaxInt64, Filter: where}) {
		return badRequest(err.Error()) // there are no events up there
	}
	after, err := place(w.ctx, t, q)
	if err != nil {
		return err
	}
	select {
	case w.streams <- struct{}{}:
		defer func() { <-w.streams }()
	default:
		return &httpError{503, "too many streams"}
	}
	ctx, cancel := context.WithCancel(w.ctx)
	defer cancel()
	go func() { // the client has nothing more to say but that it goes
		_, _ = io.Copy(io.Discard, conn)
		cancel()
	}()
	f := &follower{t: t, conn: conn, where: where, after: after}
	f.run(ctx)
	return nil
}

// named returns the thread of that directory, or the only one.
func (s *Server) named(dir string) (*thread, error) {
	if dir != "" {
		if t := s.thread(dir); t != nil {
			return t, nil
		}
		return nil, &httpError{404, "that thread is not served here"}
	}
	if all := s.all(); len(all) == 1 {
		return all[0], nil
	}
	return nil, badRequest("say which thread, for example /events?thread=/srv/inbox")
}

// place is where a stream begins: after the event that the client had last, or
// after the one it names, or with the next event.
func place(ctx context.Context, t *thread, q *httpRequest) (int64, error) {
	text := q.lastEventID
	if text == "" {
		text = q.query.Get("after")
	}
	if text == "" {
		return t.head(ctx)
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 0 {
		return 0, badRequest("the id of the last event is not a number")
	}
	return n, nil
}

// head returns the id of the newest event.
func (t *thread) head(ctx context.Context) (id int64, err error) {
	err = t.t.View(ctx, func(tx *engine.Tx) error {
		id = tx.Head()
		return nil
	})
	if err != nil {
		err = &httpError{503, err.Error()}
	}
	return id, err
}

// follower is one stream.
type follower struct {
	t     *thread
	conn  net.Conn
	where string
	after int64
	buf   []byte
}

// run returns when the client goes or does not keep up, or the thread is not
// served any more.
func (f *follower) run(ctx context.Context) {
	f.buf = append(appendHead(f.buf, 200, "text/event-stream; charset=utf-8"), "\r\n"...)
	beat := time.NewTicker(f.t.s.opts.heartbeat)
	defer beat.Stop()
	for {
		changed := f.t.changed() // before the look: a change during it leads to another one
		if err := f.advance(ctx); err != nil {
			f.t.s.log.Info("stream ended", "thread", f.t.dir, "after", f.after, "error", err)
			return
		}
		select {
		case <-changed:
		case <-beat.C:
			f.buf = append(f.buf, ":\n\n"...)
		case <-f.t.gone:
			return
		case <-ctx.Done():
			return
		}
	}
}

// advance sends the events after the stream's place.
func (f *follower) advance(ctx context.Context) error {
	head, err := f.t.head(ctx)
	if err != nil && errors.Is(ctx.Err(), context.Canceled) {
		return nil
	}
	if err == nil && head > f.after {
		for e, eerr := range f.t.t.Events(ctx, engine.Query{After: f.after, Filter: f.where}) {
			if err = eerr; err != nil {
				break
			}
			f.after = e.ID
			f.buf = appendSSE(f.buf, &e)
			if len(f.buf) >= flushBytes {
				if err = f.flush(); err != nil {
					return err
				}
			}
		}
		// The look went at least up to head: what did not match need not be asked again.
		if err == nil {
			f.after = max(f.after, head)
		}
	}
	if err != nil && ctx.Err() == nil {
		// Not "error": an EventSource has an event of that name for its own connection.
		f.buf = append(event.AppendString(append(f.buf, "event: problem\ndata: "...), err.Error()), "\n\n"...)
		return errors.Join(err, f.flush())
	}
	return f.flush()
}

// flushBytes is how much is collected before it is written.
const flushBytes = 32 << 10

// flush writes what was collected. A client that does not take it in time is
// dropped, with what the kernel still has for it: it comes back with the last id
// that it has.
func (f *follower) flush() error {
	if len(f.buf) == 0 {
		return nil
	}
	f.conn.SetWriteDeadline(time.Now().Add(f.t.s.opts.writeTime))
	_, err := f.conn.Write(f.buf)
	f.buf = f.buf[:0]
	if c, ok := f.conn.(*net.TCPConn); ok && err != nil {
		_ = c.SetLinger(0)
	}
	return err
}

// appendSSE appends an event: its JSON is one line.
func appendSSE(b []byte, e *event.Event) []byte {
	b = strconv.AppendInt(append(b, "id: "...), e.ID, 10)
	b = e.AppendJSON(append(b, "\ndata: "...))
	return append(b, "\n\n"...)
}
