package api

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"thread/filter"
	"thread/internal/address"
	"thread/internal/signed"
	"thread/internal/similar"
	"thread/internal/target"
)

// API answers requests. Make one with New.
type API struct {
	host     Host
	partTime time.Duration
	mux      *http.ServeMux
	large    chan struct{} // one place for each body of which a long part is in memory
	counting chan struct{} // one place for each count of events
	repeats  repeats
	key      signed.Key // of the deliveries of directories
	keys     sync.Map   // of the other threads, see signing: from *engine.Thread to signed.Key
}

const (
	countTime    = 20 * time.Second
	countsAtOnce = 2
)

// New returns the API of host. Each 64 KiB of a body have partTime to come. The journal,
// nil for none, keeps the answers of requests with a key over a restart. The key signs
// deliveries of directories.
func New(host Host, partTime time.Duration, journal Journal, key signed.Key) *API {
	a := &API{host: host, partTime: partTime, mux: http.NewServeMux(), large: make(chan struct{}, largeAtOnce), counting: make(chan struct{}, countsAtOnce), repeats: repeats{now: time.Now}, key: key}
	a.repeats.load(journal)
	for _, r := range a.routes() {
		a.mux.HandleFunc(r.method+" "+r.path, func(rw http.ResponseWriter, q *http.Request) {
			err := checkQuery(q, r.query)
			if err == nil && r.method != http.MethodGet {
				err = a.refuseHistory(q)
			}
			if err == nil {
				err = a.answer(r, rw, q)
			}
			if r.method != http.MethodGet {
				host.Audit(q, r.path, err)
			}
			if err != nil && !errors.Is(err, errGone) {
				Refuse(rw, err)
			}
		})
	}
	return a
}

// answer answers a request by its route, and one that is sent again as before. Pushes
// have dedupe keys for that, which last.
func (a *API) answer(r route, rw http.ResponseWriter, q *http.Request) error {
	if r.path == pushPath {
		return r.answer(rw, q) // the bound of its body depends on the type
	}
	q.Body = a.body(rw, q, cmp.Or(r.most, maxAskedBytes))
	if r.method != http.MethodPost {
		return r.answer(rw, q)
	}
	return a.repeats.once(rw, q, r.answer)
}

func (a *API) body(rw http.ResponseWriter, q *http.Request, most int64) *timedBody {
	return &timedBody{ReadCloser: http.MaxBytesReader(rw, q.Body, most), control: http.NewResponseController(rw), time: a.partTime}
}

// route is a path that is answered, as the description names it.
type route struct {
	method, path string
	need         Rights
	answer       func(rw http.ResponseWriter, q *http.Request) error
	query        []string // the parameters that are known
	most         int64    // bytes of the body, 0 for maxAskedBytes
}

const pushPath = "/threads/{name}/events"

func (a *API) routes() []route {
	const consumer = "/threads/{name}/consumers/{consumer}"
	return slices.Concat([]route{
		{"GET", DescriptionPath, None, a.describe, nil, 0},
		{"GET", "/threads/{name}/events", Read, a.events, []string{"after", "limit", "filter"}, 0},
		{"POST", pushPath, Push, a.push, []string{"dedupe_window"}, 0},
		{"POST", consumer + "/next", Write, a.next, nil, 0},
		{"POST", consumer + "/ack", Write, a.ack, nil, 0},
		{"POST", consumer + "/retry", Write, a.retry, nil, 0},
		{"POST", consumer + "/extend", Write, a.extend, nil, 0},
		{"POST", consumer + "/pause", Admin, a.pause, nil, 0},
		{"POST", consumer + "/resume", Admin, a.resume, nil, 0},
	}, a.stateRoutes(), a.outboxRoutes(), a.historyRoutes())
}

// events answers with those after an id, oldest first, or with the stream of them. A page
// ends early when its time or room has ended, and says where to continue.
func (a *API) events(rw http.ResponseWriter, q *http.Request) error {
	t, err := a.host.Thread(q.PathValue("name"))
	if err != nil {
		return err
	}
	if accepts(q, eventStream) {
		a.host.Stream(rw, q, t)
		return nil
	}
	after, err := number(q, "after", 0)
	if err != nil {
		return err
	}
	limit, err := number(q, "limit", pageEvents)
	if err != nil {
		return err
	}
	if limit < 1 || limit > maxPage {
		return badRequest("limit is not from 1 to %d", maxPage)
	}
	where := q.URL.Query().Get("filter")
	if where != "" {
		if _, err := filter.Compile(where); err != nil {
			return err
		}
	}
	p := page{where: where, limit: limit, last: after}
	if err := p.read(q, t.Engine()); err != nil {
		return err
	}
	answering(rw)
	p.write(rw)
	return nil
}

func (a *API) describe(rw http.ResponseWriter, _ *http.Request) error {
	rw.Header().Set("Content-Type", "application/json")
	_, _ = rw.Write(Description()) // who asked may be gone
	return nil
}

// checkQuery refuses a query that cannot be decoded, as a filter with a %, and one with
// other parameters than known: left out, either would change the answer.
func checkQuery(q *http.Request, known []string) error {
	query, err := url.ParseQuery(q.URL.RawQuery)
	if err != nil {
		return badRequest("the query cannot be decoded")
	}
	if text := similar.UnknownParameter(query, known); text != "" {
		return badRequest("%s", text)
	}
	return nil
}

// refuseHistory refuses to change a thread that is the history of another one: all that is
// in it is written by runs, sessions and messages.
func (a *API) refuseHistory(q *http.Request) error {
	t, err := a.host.Thread(q.PathValue("name"))
	if err != nil {
		return err
	}
	if of := address.Of(t.Dir(), target.HistoryOf); of != "" {
		return &Error{http.StatusForbidden, fmt.Sprintf("%s is the history of %s, which only runs, sessions and messages change", t.Dir(), of)}
	}
	return nil
}

// ServeHTTP answers a request that Needs has a name for, by a client that has the rights.
func (a *API) ServeHTTP(rw http.ResponseWriter, q *http.Request) {
	refusal, pattern := a.mux.Handler(q)
	if pattern != "" {
		a.mux.ServeHTTP(rw, q)
		return
	}
	// What refuses is of net/http: its status and headers count, its text is not JSON.
	out := &muted{header: rw.Header(), status: http.StatusOK}
	refusal.ServeHTTP(out, q)
	if out.status < http.StatusBadRequest {
		rw.WriteHeader(out.status) // a redirection to the clean path
		return
	}
	Refuse(rw, &Error{out.status, fmt.Sprintf("%s %s is not described in %s", q.Method, q.URL.Path, DescriptionPath)})
}

// Refuse answers with an error, as problem details (RFC 9457). The rest of the request is
// not waited for, so the connection ends.
func Refuse(rw http.ResponseWriter, err error) {
	k := kindOf(err)
	if h := rw.Header(); (k.Status == http.StatusServiceUnavailable || k.Status == http.StatusTooManyRequests) && h.Get("Retry-After") == "" {
		h.Set("Retry-After", "1")
	}
	rw.Header().Set("Connection", "close")
	_ = http.NewResponseController(rw).SetReadDeadline(time.Now())
	rw.Header().Set("Content-Type", "application/problem+json")
	put(rw, k.Status, struct {
		Type   string `json:"type"`
		Title  string `json:"title"`
		Status int    `json:"status"`
		Detail string `json:"detail"`
	}{k.Type(), k.Title, k.Status, err.Error()})
}

// muted is an answer without a body.
type muted struct {
	header http.Header
	status int
}

func (m *muted) Header() http.Header { return m.header }

func (m *muted) Write(p []byte) (int, error) { return len(p), nil }

func (m *muted) WriteHeader(status int) { m.status = status }

// DescriptionPath is where the description of the API is.
const DescriptionPath = "/openapi.json"

// Needs returns which rights a request needs. It reports false for one that is not for
// the API. What is read is a page, too, so with pages a GET is for the API when it has a
// token or asks for JSON or a stream.
func Needs(q *http.Request, pages bool) (Rights, bool) {
	if q.URL.Path == DescriptionPath {
		return None, true
	}
	method := q.Method
	if method == http.MethodHead {
		method = http.MethodGet
	}
	if pages && strings.HasSuffix(q.URL.Path, ".json") {
		return None, false
	}
	needs, known := needsOf()
	probe := &http.Request{Method: method, URL: q.URL, Host: q.Host}
	_, pattern := needs.Handler(probe)
	if need, ok := known[pattern]; ok {
		asks := q.Header.Get("Authorization") != "" || accepts(q, "application/json") || accepts(q, eventStream)
		return need, method != http.MethodGet || !pages || asks
	}
	// Other methods and paths next to those are refused by the API, too.
	segments := strings.Split(q.URL.EscapedPath(), "/")
	if method != http.MethodGet && len(segments) > 3 && segments[1] == "threads" && slices.Contains([]string{"events", "consumers", "dead", "schedules", "runs", "sessions", "stats", "outbox"}, segments[3]) {
		return Write, true
	}
	return None, false
}

// needsOf returns what finds the route of a request, and what each needs.
var needsOf = sync.OnceValues(func() (*http.ServeMux, map[string]Rights) {
	mux, known := http.NewServeMux(), map[string]Rights{}
	for _, r := range (&API{}).routes() {
		pattern := r.method + " " + r.path
		mux.HandleFunc(pattern, func(http.ResponseWriter, *http.Request) {})
		known[pattern] = r.need
	}
	return mux, known
})

const eventStream = "text/event-stream"

// accepts reports whether the request asks for that type by its name.
func accepts(q *http.Request, typ string) bool {
	for _, field := range q.Header.Values("Accept") {
		for part := range strings.SplitSeq(field, ",") {
			name, _, _ := strings.Cut(part, ";")
			if strings.EqualFold(strings.TrimSpace(name), typ) {
				return true
			}
		}
	}
	return false
}

func putJSON(rw http.ResponseWriter, status int, data any) {
	rw.Header().Set("Content-Type", "application/json")
	put(rw, status, data)
}

func put(rw http.ResponseWriter, status int, data any) {
	rw.WriteHeader(status)
	e := json.NewEncoder(rw)
	e.SetEscapeHTML(false)
	_ = e.Encode(data) // who asked may be gone
}

// answerTime is how long an answer may take to be taken.
const answerTime = 30 * time.Second

// Routes returns the method and path of all that is answered, in order.
func Routes() (list []string) {
	for _, r := range (&API{}).routes() {
		list = append(list, r.method+" "+r.path)
	}
	slices.Sort(list)
	return list
}
