package serve

import (
	"cmp"
	"context"
	"errors"
	"io"
	"math"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"thread/engine"
	"thread/event"
	"thread/history"
	"thread/internal/dispatch"
	"thread/internal/page"
	"thread/internal/similar"
)

// defaultHeartbeat is how often a stream without events is written to, so that
// the other side and what lies between know that it lives.
const defaultHeartbeat = 15 * time.Second

// events answers /events with server-sent events (the WHATWG's HTML standard,
// section 9.2): one for each event of the thread after the given one, those that
// are there and then those that come.
//
// A stream is a place in the order of ids and nothing else: it reads what lies
// after its place, moves there, and waits until the thread may have changed. So
// between what was there and what comes, there is no gap and nothing twice.
func (w *web) events(rw http.ResponseWriter, q *http.Request) {
	t, err := w.s.named(q.URL.Query().Get("thread"))
	if err != nil {
		refuse(rw, err)
		return
	}
	w.stream(rw, q, t)
}

// stream is events of one thread.
func (w *web) stream(rw http.ResponseWriter, q *http.Request, t *thread) {
	f, err := w.newFollower(q, t)
	if err != nil {
		refuse(rw, err)
		return
	}
	defer f.close()
	release, refused := w.place(q)
	if refused != nil {
		rw.Header().Set("Retry-After", retryAfter)
		refuse(rw, refused)
		return
	}
	defer release()
	rw.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
	rw.Header().Set("Connection", "close")
	rw.WriteHeader(http.StatusOK)
	if q.Method == http.MethodHead {
		return
	}
	f.to = eventWriter{rw, http.NewResponseController(rw)}
	ctx, cancel := context.WithCancel(q.Context()) // ends when the client goes
	defer cancel()
	defer context.AfterFunc(w.ctx, cancel)()
	if err := f.run(ctx); err != nil {
		w.s.log.Info("stream ended", "thread", f.t.dir, "after", f.after, "error", err)
	}
}

// retryAfter is in how many seconds a client without a place may ask again.
const retryAfter = "15"

// place takes a place among the streams for who sends q. Where several clients are
// known, half of the places are all that one of them gets.
func (w *web) place(q *http.Request) (release func(), refused *httpError) {
	name := ""
	if c := askerOf(q); c != nil && w.clients.several() {
		name = c.Name
	}
	release, taken := w.streams.Take(name)
	switch taken {
	case page.OwnTaken:
		return nil, &httpError{http.StatusTooManyRequests, "client " + name + " has too many streams and requests that wait: end some, others have their own"}
	case page.AllTaken:
		return nil, &httpError{http.StatusServiceUnavailable, "too many streams and requests that wait"}
	}
	return release, nil
}

// newFollower returns the stream that was asked for, which has begun with nothing
// yet, or an *httpError.
func (w *web) newFollower(q *http.Request, t *thread) (*follower, error) {
	if w.ctx.Err() != nil {
		return nil, errDraining
	}
	query, err := url.ParseQuery(q.URL.RawQuery)
	if err != nil {
		return nil, badRequest("the query cannot be decoded")
	}
	known := []string{"after", "filter", "session"}
	if q.URL.Path == "/events" {
		known = append(known, "thread")
	}
	if text := similar.UnknownParameter(query, known); text != "" {
		return nil, badRequest(text)
	}
	where := query.Get("filter")
	f := &follower{t: t, read: t.t, changed: t.changed, close: func() {}}
	for _, err := range t.t.Events(w.ctx, engine.Query{After: math.MaxInt64, Filter: where}) {
		return nil, badRequest(err.Error()) // there are no events up there
	}
	if query.Has("session") {
		if err := f.ofSession(w.ctx); err != nil {
			return nil, err
		}
		where = ofSession(query.Get("session"), where)
	}
	f.where = where
	if f.after, err = place(w.ctx, f.read, cmp.Or(q.Header.Get("Last-Event-ID"), query.Get("after"))); err != nil {
		f.close()
		return nil, err
	}
	return f, nil
}

// ofSession makes f a stream of the history of its thread (H-11), which need not be served
// itself.
func (f *follower) ofSession(ctx context.Context) error {
	h, err := history.Open(ctx, f.t.dir, history.LeaveRuns(), history.WithEngine(dispatch.OwnFile(f.t.dir)))
	if err != nil {
		return &httpError{http.StatusServiceUnavailable, err.Error()}
	}
	t, err := h.Thread()
	if err != nil || t == nil {
		_ = h.Close() // nothing was written
		return &httpError{http.StatusNotFound, "that thread has no history yet"}
	}
	w, err := t.Watch()
	if err != nil {
		_ = h.Close() // nothing was written
		return &httpError{http.StatusServiceUnavailable, err.Error()}
	}
	ctx, cancel := context.WithCancel(ctx)
	changes, ended := make(chan struct{}, 1), make(chan struct{})
	go func() {
		defer close(ended)
		for ctx.Err() == nil {
			if w.Wait(ctx, time.Now().Add(f.t.s.opts.heartbeat)) != nil {
				sleep(ctx, f.t.s.opts.heartbeat) // without notices, by the clock
			}
			select {
			case changes <- struct{}{}:
			default: // the stream has not looked since
			}
		}
	}()
	f.read, f.changed = t, func() <-chan struct{} { return changes }
	f.close = func() {
		cancel()
		<-ended
		w.Close()
		_ = h.Close() // nothing was written
	}
	return nil
}

// named returns the thread of that directory, or the only one.
func (s *Server) named(dir string) (*thread, error) {
	if dir != "" {
		if t := s.thread(dir); t != nil {
			return t, nil
		}
		return nil, &httpError{http.StatusNotFound, "that thread is not served here"}
	}
	if all := s.all(); len(all) == 1 {
		return all[0], nil
	}
	return nil, badRequest("say which thread, for example /events?thread=/srv/inbox")
}

// place is where a stream begins: after the event of that id, or with the next one.
func place(ctx context.Context, t *engine.Thread, text string) (int64, error) {
	if text == "" {
		return head(ctx, t)
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 0 {
		return 0, badRequest("the id of the last event is not a number")
	}
	return n, nil
}

// head returns the id of the newest event.
func head(ctx context.Context, t *engine.Thread) (id int64, err error) {
	err = t.View(ctx, func(tx *engine.Tx) error {
		id = tx.Head()
		return nil
	})
	if err != nil {
		err = &httpError{http.StatusServiceUnavailable, err.Error()}
	}
	return id, err
}

// streamWriter is where a stream goes.
type streamWriter interface {
	io.Writer
	Flush() error
	SetWriteDeadline(at time.Time) error
}

// eventWriter is the answer to a request as one.
type eventWriter struct {
	http.ResponseWriter
	*http.ResponseController
}

// follower is one stream.
type follower struct {
	t       *thread
	read    *engine.Thread         // whose events: t, or its history
	changed func() <-chan struct{} // of read
	close   func()
	to      streamWriter
	where   string
	after   int64
	buf     []byte
}

// run returns when the client goes, the thread is not served any more or ctx ends,
// and an error when the client does not keep up or the thread cannot be read.
func (f *follower) run(ctx context.Context) error {
	// What net/http adds at the end has its time, too.
	defer func() { _ = f.to.SetWriteDeadline(time.Now().Add(f.t.s.opts.writeTime)) }()
	if err := f.to.Flush(); err != nil { // the header: the client knows that it is heard
		return err
	}
	beat := time.NewTicker(f.t.s.opts.heartbeat)
	defer beat.Stop()
	for {
		changed := f.changed() // before the read: a change during it leads to another one
		if err := f.advance(ctx); err != nil {
			return err
		}
		select {
		case <-changed:
		case <-beat.C:
			f.buf = append(f.buf, ":\n\n"...)
		case <-f.t.gone:
			return nil
		case <-ctx.Done():
			return nil
		}
	}
}

// advance sends the events after the stream's place.
func (f *follower) advance(ctx context.Context) error {
	if !f.hold(ctx) {
		return nil
	}
	head, err := head(ctx, f.read)
	if err == nil && head > f.after {
		for e, eerr := range f.read.Events(ctx, engine.Query{After: f.after, Filter: f.where}) {
			if err = eerr; err != nil {
				break
			}
			f.after = e.ID
			f.buf = appendSSE(f.buf, &e)
			if len(f.buf) >= flushBytes {
				f.release()
				if err = f.flush(); err != nil {
					return err
				}
				if !f.hold(ctx) {
					return nil
				}
			}
		}
		// The read went at least up to head: what did not match need not be asked again.
		if err == nil {
			f.after = max(f.after, head)
		}
	}
	f.release()
	if err != nil && errors.Is(ctx.Err(), context.Canceled) {
		return nil
	}
	if err != nil && ctx.Err() == nil {
		// Not "error": an EventSource has an event of that name for its own connection.
		f.buf = append(event.AppendString(append(f.buf, "event: problem\ndata: "...), err.Error()), "\n\n"...)
		return errors.Join(err, f.flush())
	}
	return f.flush()
}

// hold takes a place among the streams that read, unless ctx ends. A directory needs none.
func (f *follower) hold(ctx context.Context) bool {
	if f.t.reads == nil {
		return true
	}
	select {
	case f.t.reads <- struct{}{}:
		return true
	case <-ctx.Done():
		return false
	}
}

func (f *follower) release() {
	if f.t.reads != nil {
		<-f.t.reads
	}
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
	if err := f.to.SetWriteDeadline(time.Now().Add(f.t.s.opts.writeTime)); err != nil {
		return err
	}
	_, err := f.to.Write(f.buf)
	f.buf = f.buf[:0]
	if err != nil {
		return err
	}
	return f.to.Flush()
}

// appendSSE appends an event: its JSON is one line.
func appendSSE(b []byte, e *event.Event) []byte {
	b = strconv.AppendInt(append(b, "id: "...), e.ID, 10)
	b = e.AppendJSON(append(b, "\ndata: "...))
	return append(b, "\n\n"...)
}
