package api

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"thread/engine"
	"thread/filter"
	"thread/internal/dispatch"
)

// API answers requests. Make one with New.
type API struct {
	host     Host
	partTime time.Duration
	mux      *http.ServeMux
	large    chan struct{} // one place for each body of which a long part is in memory
}

// New returns the API of host. Each 64 KiB of a body have partTime to come.
func New(host Host, partTime time.Duration) *API {
	a := &API{host: host, partTime: partTime, mux: http.NewServeMux(), large: make(chan struct{}, largeAtOnce)}
	for _, r := range a.routes() {
		a.mux.HandleFunc(r.method+" "+r.path, func(rw http.ResponseWriter, q *http.Request) {
			_, err := url.ParseQuery(q.URL.RawQuery)
			if err != nil { // what cannot be read of it, as a filter with a %, must not be left out
				err = badRequest("the query cannot be decoded")
			} else {
				err = r.answer(rw, q)
			}
			if err != nil {
				Refuse(rw, err)
			}
		})
	}
	return a
}

// route is a path that is answered, as the description names it.
type route struct {
	method, path string
	answer       func(rw http.ResponseWriter, q *http.Request) error
}

func (a *API) routes() []route {
	return []route{
		{"GET", descriptionPath, a.describe},
		{"GET", "/threads/{name}/events", a.events},
		{"POST", "/threads/{name}/events", a.push},
		{"POST", "/threads/{name}/consumers/{consumer}/next", a.next},
		{"POST", "/threads/{name}/consumers/{consumer}/ack", a.ack},
		{"POST", "/threads/{name}/consumers/{consumer}/retry", a.retry},
		{"POST", "/threads/{name}/consumers/{consumer}/extend", a.extend},
		{"POST", "/threads/{name}/consumers/{consumer}/pause", a.pause},
		{"POST", "/threads/{name}/consumers/{consumer}/resume", a.resume},
	}
}

// ServeHTTP answers a request that Needs has a name for, by somebody who has the rights.
func (a *API) ServeHTTP(rw http.ResponseWriter, q *http.Request) { a.mux.ServeHTTP(rw, q) }

const descriptionPath = "/openapi.json"

// Needs returns which rights a request needs. It reports false for one that is not for
// the API: GET of the events is a page, too, so with pages it is for the API when it
// has a token or asks for JSON or a stream.
func Needs(q *http.Request, pages bool) (Rights, bool) {
	if q.URL.Path == descriptionPath {
		return None, true
	}
	segments := strings.Split(strings.TrimPrefix(q.URL.EscapedPath(), "/"), "/")
	read := q.Method == http.MethodGet || q.Method == http.MethodHead
	switch {
	case segments[0] != "threads":
	case len(segments) == 3 && segments[2] == "events":
		if read {
			return Read, !pages || q.Header.Get("Authorization") != "" || accepts(q, "application/json") || accepts(q, eventStream)
		}
		return Write, true
	case len(segments) == 5 && segments[2] == "consumers":
		if segments[4] == "pause" || segments[4] == "resume" {
			return Admin, true
		}
		return Write, true
	}
	return None, false
}

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

func (a *API) describe(rw http.ResponseWriter, _ *http.Request) error {
	rw.Header().Set("Content-Type", "application/json")
	_, _ = rw.Write(description) // who asked may be gone
	return nil
}

// Error is a refusal: the status, and a reason.
type Error struct {
	Status int
	Reason string
}

func (e *Error) Error() string { return e.Reason }

func badRequest(format string, args ...any) error {
	return &Error{http.StatusBadRequest, fmt.Sprintf(format, args...)}
}

// statusOf returns the status for an error.
func statusOf(err error) int {
	var refused *Error
	var bad *filter.Error
	var tooLong *http.MaxBytesError
	var leased *engine.LeasedError
	switch {
	case errors.As(err, &refused):
		return refused.Status
	case errors.As(err, &tooLong):
		return http.StatusRequestEntityTooLarge
	case errors.As(err, &bad), errors.Is(err, filter.ErrRuntime), errors.Is(err, engine.ErrInvalid):
		return http.StatusBadRequest
	case errors.Is(err, engine.ErrNoSubscription), errors.Is(err, engine.ErrNotThread):
		return http.StatusNotFound
	case errors.As(err, &leased), errors.Is(err, engine.ErrStale), errors.Is(err, engine.ErrNotPull), errors.Is(err, engine.ErrPaused), errors.Is(err, engine.ErrOut), errors.Is(err, dispatch.ErrHandled):
		return http.StatusConflict
	case errors.Is(err, engine.ErrBusy):
		return http.StatusServiceUnavailable
	}
	return http.StatusInternalServerError
}

// Refuse answers with an error. The rest of the request is not waited for, so the
// connection ends.
func Refuse(rw http.ResponseWriter, err error) {
	status := statusOf(err)
	if status == http.StatusServiceUnavailable || status == http.StatusTooManyRequests {
		rw.Header().Set("Retry-After", "1")
	}
	rw.Header().Set("Connection", "close")
	_ = http.NewResponseController(rw).SetReadDeadline(time.Now())
	putJSON(rw, status, struct {
		Error string `json:"error"`
	}{err.Error()})
}

func putJSON(rw http.ResponseWriter, status int, data any) {
	rw.Header().Set("Content-Type", "application/json")
	rw.WriteHeader(status)
	e := json.NewEncoder(rw)
	e.SetEscapeHTML(false)
	_ = e.Encode(data) // who asked may be gone
}

// answerTime is how long an answer may take to be taken.
const answerTime = 30 * time.Second

// answering gives an answer its time, whatever was waited for before.
func answering(rw http.ResponseWriter) {
	_ = http.NewResponseController(rw).SetWriteDeadline(time.Now().Add(answerTime))
}

// Routes returns the method and path of all that is answered, in order.
func Routes() (list []string) {
	for _, r := range (&API{}).routes() {
		list = append(list, r.method+" "+r.path)
	}
	slices.Sort(list)
	return list
}
