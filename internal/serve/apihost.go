package serve

import (
	"log/slog"
	"net/http"
	"slices"
	"strings"

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

// everyday are the requests of which the events tell, or of which there may be hundreds a
// second: what is done about them is logged with Options.Log at its debug level.
var everyday = []string{"/threads/{name}/events", "next", "ack", "extend", "retry", "beat"}

// Audit logs a request that changed something.
func (h apiHost) Audit(q *http.Request, path string, err error) {
	level, result := slog.LevelInfo, "done"
	if slices.Contains(everyday, path) || slices.Contains(everyday, path[strings.LastIndexByte(path, '/')+1:]) {
		level = slog.LevelDebug
	}
	if err != nil {
		level, result = slog.LevelInfo, err.Error()
	}
	name := ""
	if c := askerOf(q); c != nil {
		name = c.Name
	}
	args := []any{"by", name, "address", h.w.address(q), "verb", q.Method + " " + path, "thread", q.PathValue("name")}
	for _, of := range []string{"consumer", "session", "run", "schedule"} {
		if value := q.PathValue(of); value != "" {
			args = append(args, of, value)
		}
	}
	h.w.s.log.Log(q.Context(), level, "change", append(args, "result", result)...)
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
