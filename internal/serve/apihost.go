package serve

import (
	"log/slog"
	"net/http"
	"path/filepath"

	"thread/internal/api"
)

// apiHost is the server as the API knows it.
type apiHost struct{ w *web }

// Thread returns the one that is called so.
func (h apiHost) Thread(name string) (api.Thread, error) {
	t, err := h.w.s.called(name)
	if err != nil {
		return nil, &api.Error{Status: err.status, Reason: err.reason}
	}
	return apiThread{uiThread{t}}, nil
}

// called returns the thread whose path, or the last element of it, is name.
func (s *Server) called(name string) (*thread, *httpError) {
	if t := s.thread(name); t != nil {
		return t, nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var found *thread
	for dir, t := range s.threads {
		if filepath.Base(dir) != name {
			continue
		}
		if found != nil {
			return nil, &httpError{http.StatusNotFound, "there are several threads of that name: give the whole path"}
		}
		found = t
	}
	if found == nil {
		return nil, &httpError{http.StatusNotFound, "that thread is not served here"}
	}
	return found, nil
}

// Stream answers as /events does.
func (h apiHost) Stream(rw http.ResponseWriter, q *http.Request, t api.Thread) {
	h.w.stream(rw, q, t.(apiThread).t)
}

// Wait takes a place among the streams.
func (h apiHost) Wait(q *http.Request) (release func(), err error) {
	release, refused := h.w.place(q)
	if refused != nil {
		return nil, &api.Error{Status: refused.status, Reason: refused.reason}
	}
	return release, nil
}

// Behind logs that events.jsonl is behind.
func (h apiHost) Behind(t api.Thread, err error) {
	h.w.s.repeats.say(slog.LevelWarn, "events.jsonl is behind", "thread", t.Dir(), "error", err)
}

// Done is closed when the draining begins.
func (h apiHost) Done() <-chan struct{} { return h.w.ctx.Done() }

// apiThread is a thread as the API knows it.
type apiThread struct{ uiThread }

// Pushed starts what is due, as after a push.
func (t apiThread) Pushed() {
	t.t.pushes.Add(1)
	t.Wake()
}

// Changed is closed when it may have changed.
func (t apiThread) Changed() <-chan struct{} { return t.t.changed() }

// Gone is closed when it is not served any more.
func (t apiThread) Gone() <-chan struct{} { return t.t.gone }
