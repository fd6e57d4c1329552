package serve

import (
	"crypto/sha256"
	"encoding/hex"
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

// Dir is its directory or URL.
func (t uiThread) Dir() string { return t.t.dir }

// Version counts the notices that it may have changed.
func (t uiThread) Version() int64 { return 1 + t.t.wakes.Load() }

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

// Abort ends the consumer's handler, and reports whether it ran.
func (t uiThread) Abort(consumer string) bool { return t.t.s.runs.Abort(t.t.session(consumer)) }

// entrance is the address of the first page, for a browser of this host. Who reaches a
// unix socket needs none.
func (w *web) entrance() string {
	if u := w.s.opts.External; u != nil {
		return u.Scheme + "://" + u.Host + w.s.opts.Base + w.page.OneTime()
	}
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
	return scheme + net.JoinHostPort(host, strconv.Itoa(at.Port)) + w.s.opts.Base + w.page.OneTime()
}

// formTime is how long the body of a form may take to come.
const formTime = 10 * time.Second

// serveUI answers what is for the pages, and reports whether it did. It comes before the
// checks of other paths: browsers have no Authorization, but a cookie, and forms a body.
func (w *web) serveUI(rw http.ResponseWriter, q *http.Request, from *client) bool {
	if w.page == nil || q.URL.Path == "/healthz" || q.URL.Path == "/metrics" || q.URL.Path == "/events" {
		return false
	}
	if from != nil && (from.Scoped() || !from.rights.Include(api.Read)) || w.clients.open() && !w.ownHost(q) {
		from = nil // the pages are about all threads
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

// logIn returns what stays of a client who gives its token, "" for none, and how long the
// address has to wait after too many wrong ones.
func (w *web) logIn(q *http.Request, token string) (key string, pause time.Duration) {
	c, pause := w.try(q, token)
	if c == nil || c.Scoped() || !c.rights.Include(api.Read) {
		return "", pause
	}
	return string(c.sum[:]), 0
}

// printed says for which clients the one-time address was printed: those there are now.
func (w *web) printed() string {
	if w.s.opts.NoTokens {
		return ""
	}
	sum := sha256.New()
	for _, c := range *w.clients.list.Load() {
		_, _ = sum.Write(c.sum[:])
	}
	return hex.EncodeToString(sum.Sum(nil))
}

// auditPage logs an action of the pages.
func (w *web) auditPage(c page.Change) {
	w.s.log.Info("change", "by", "page", "address", c.From, "verb", c.Do, "thread", c.Thread, "about", c.What, "result", c.Result)
}

// known reports whether who logged in so is still a client, and may change something.
func (w *web) known(key string) (changes, ok bool) {
	c := w.clients.still(key)
	return c != nil && c.rights == api.Admin, c != nil
}
