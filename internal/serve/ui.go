package serve

import (
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"thread/engine"
	"thread/internal/api"
	"thread/internal/page"
)

// uiHost is the server as the pages know it.
type uiHost struct{ w *web }

// Threads returns those that are served.
func (h uiHost) Threads() []page.Thread {
	all := h.w.s.all()
	list := make([]page.Thread, len(all))
	for i, t := range all {
		list[i] = uiThread{t}
	}
	return list
}

// Lanes returns the global ones.
func (h uiHost) Lanes() (list []page.Lane) {
	for _, l := range h.w.s.lanes() {
		list = append(list, page.Lane(l))
	}
	return list
}

// Changed is closed when one of the threads may have changed.
func (h uiHost) Changed() <-chan struct{} { return h.w.s.changes.wait() }

// Done is closed when the draining begins.
func (h uiHost) Done() <-chan struct{} { return h.w.ctx.Done() }

// uiThread is a thread as the pages know it.
type uiThread struct{ t *thread }

// Dir is its directory.
func (t uiThread) Dir() string { return t.t.dir }

// Engine is its handle.
func (t uiThread) Engine() *engine.Thread { return t.t.t }

// Runs are the consumers on their way.
func (t uiThread) Runs() []page.Run {
	list := t.t.list(nil)
	out := make([]page.Run, len(list))
	for i := range list {
		out[i] = page.Run(list[i])
	}
	return out
}

// Wake starts what is due, as after a push.
func (t uiThread) Wake() { t.t.wake(wakeUp{set: true, push: true}) }

// entrance is the address of the first page, for a browser of this host. Who reaches a
// unix socket needs none.
func (w *web) entrance() string {
	at, ok := w.listener.Addr().(*net.TCPAddr)
	if !ok {
		return w.s.opts.Listen
	}
	host := at.IP.String()
	if at.IP.IsUnspecified() {
		host = "127.0.0.1"
	}
	scheme := "http://"
	if w.s.opts.TLS != nil {
		scheme = "https://"
	}
	return scheme + net.JoinHostPort(host, strconv.Itoa(at.Port)) + w.page.OneTime()
}

// formTime is how long the body of a form may take to come.
const formTime = 10 * time.Second

// serveUI answers what is for the pages, and reports whether it did. It comes before the
// checks of other paths: browsers have no Authorization, but a cookie, and forms a body.
func (w *web) serveUI(rw http.ResponseWriter, q *http.Request) bool {
	if w.page == nil || q.URL.Path == "/healthz" || q.URL.Path == "/metrics" || q.URL.Path == "/events" {
		return false
	}
	from := w.clients.of(q)
	if w.clients.open() && !w.ownHost(q) {
		from = nil
	}
	known := from != nil || w.page.Known(q)
	post := q.Method == http.MethodPost
	switch {
	case !known && !w.ownHost(q):
		return false // a name that is made to lead here; also to a unix socket that is forwarded
	case !known && !page.Public(q.URL.Path):
		if post || strings.HasSuffix(q.URL.Path, ".json") || q.URL.Path == "/live" {
			return false
		}
		w.page.Ask(rw, "")
		return true
	case q.ContentLength != 0 && !post:
		return false
	case post:
		_ = http.NewResponseController(rw).SetReadDeadline(time.Now().Add(formTime))
	}
	if !post && q.Method != http.MethodGet && q.Method != http.MethodHead {
		rw.Header().Set("Allow", "GET, HEAD, POST")
		refuse(rw, &httpError{http.StatusMethodNotAllowed, "GET, HEAD and POST are answered"})
		return true
	}
	w.page.ServeHTTP(rw, q, from != nil && from.rights == api.Admin)
	return true
}

// logIn returns what stays of a client who gives its token, "" for none.
func (w *web) logIn(token string) string {
	if c := w.clients.find(token); c != nil {
		return string(c.key[:])
	}
	return ""
}

// known reports whether who logged in so is still a client, and may change something.
func (w *web) known(key string) (changes, ok bool) {
	c := w.clients.still(key)
	return c != nil && c.rights == api.Admin, c != nil
}
