package page

import (
	"bytes"
	"embed"
	"encoding/json"
	"errors"
	"html/template"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"thread/engine"
	"thread/filter"
	"thread/history"
	"thread/internal/address"
	"thread/internal/signed"
	"thread/internal/similar"
)

//go:embed assets
var assets embed.FS

// Options are the settings of a Page.
type Options struct {
	ReadOnly bool
	// Audit gets each action, nil: none.
	Audit func(Change)
	// LogIn returns what is kept of who gives that token, "" for none; Known whether that
	// is still a client, and may change something.
	LogIn func(q *http.Request, token string) (key string, pause time.Duration)
	Known func(key string) (changes, ok bool)
	// Base is before the path of each page where a proxy has them below one, as "/thread".
	Base string
	// Origin is the origin of the pages as browsers know it, "" for the Host of a request.
	Origin string
	// Printed says for which clients the one-time address was printed: when it changes,
	// the browsers that came by it are logged out. nil: it does not.
	Printed func() string
	// Secure reports whether a request came encrypted to a proxy, nil: none does.
	Secure func(q *http.Request) bool
	Keeper signed.Keeper // nil: all browsers are logged out when the process ends
	API    []byte        // the description of the API, in OpenAPI
}

// Page answers requests. Make one with New.
type Page struct {
	host      Host
	opts      Options
	templates *template.Template
	based     *strings.Replacer // puts Base before addresses; nil: there is none
	summaries *summaries
	calm      calm
	sessions  *sessions
	bases     bases
	done      done
	made      changes
	reference *Reference
	mux       *http.ServeMux
	streams   *Places // of live streams
}

// maxStreams bounds the live streams, one for each tab that is looked at.
const maxStreams = 64

// streamsOfOne bounds the streams of one browser, which opens no more than six at once.
const streamsOfOne = maxStreams / 4

// New returns the pages of host.
func New(host Host, o Options) (*Page, error) {
	p := &Page{host: host, opts: o, summaries: newSummaries(host.Done()), sessions: newSessions(o.Keeper), mux: http.NewServeMux(),
		streams: NewPlaces(maxStreams, streamsOfOne)}
	var err error
	if p.templates, err = template.New("").Funcs(functions).ParseFS(assets, "assets/*.html"); err != nil {
		return nil, err
	}
	if p.reference, err = readReference(o.API); err != nil {
		return nil, err
	}
	if o.Base != "" {
		p.based = strings.NewReplacer(basePairs(o.Base)...)
	}
	p.summaries.failures = failures
	p.route()
	go p.summaries.watch(host.Threads)
	return p, nil
}

func (p *Page) route() {
	for name, typ := range map[string]string{"ui.js": "text/javascript; charset=utf-8", "worker.js": "text/javascript; charset=utf-8", "ui.css": "text/css; charset=utf-8"} {
		p.mux.HandleFunc("GET /"+name, func(rw http.ResponseWriter, q *http.Request) {
			if q.URL.RawQuery == assetsVersion() {
				rw.Header().Set("Cache-Control", "private, max-age=31536000, immutable")
			}
			write(rw, q, http.StatusOK, typ, asset(name))
		})
	}
	p.mux.HandleFunc("GET /{$}", p.show("map", p.threads))
	p.mux.HandleFunc("GET /threads.json", p.show("map", p.threads))
	p.mux.HandleFunc("GET /lanes", func(rw http.ResponseWriter, q *http.Request) { http.Redirect(rw, q, "/#lanes", http.StatusSeeOther) })
	p.mux.HandleFunc("GET /lanes.json", p.show("lanes", p.lanes))
	p.mux.HandleFunc("GET /live", p.live)
	p.mux.HandleFunc("GET /threads/{name}", func(rw http.ResponseWriter, q *http.Request) {
		http.Redirect(rw, q, "/threads/"+url.PathEscape(q.PathValue("name"))+"/info", http.StatusSeeOther)
	})
	for tab, get := range map[string]getter{"overview": p.threads, "info": p.consumers, "consumer": p.consumer, "events": p.events, "dead": p.dead,
		"schedules": p.schedules, "runs": p.runs, "sessions": p.sessionList, "session": p.oneSession} {
		for _, suffix := range []string{"", ".json"} {
			p.mux.HandleFunc("GET /threads/{name}/"+tab+suffix, p.show(tab, get))
		}
	}
	p.mux.HandleFunc("GET /threads/{name}/events/{id}", p.show("event", p.event))
	p.mux.HandleFunc("GET /threads/{name}/runs/{id}", p.show("run", p.run))
	p.mux.HandleFunc("POST /threads/{name}/act", p.act)
	p.mux.HandleFunc("POST /undo", p.undo)
	p.mux.HandleFunc("POST /logout", p.logOut)
	for name, get := range map[string]getter{"settings": p.settings, "audit": p.audit, "api": p.api} {
		p.mux.HandleFunc("GET /"+name, p.show(name, get))
		p.mux.HandleFunc("GET /"+name+".json", p.show(name, get))
	}
	p.mux.HandleFunc("GET /search", p.sought(p.show("search", p.search)))
	p.mux.HandleFunc("GET /search.json", p.show("search", p.search))
	p.mux.HandleFunc("GET /", func(rw http.ResponseWriter, _ *http.Request) {
		p.refuse(rw, &Error{http.StatusNotFound, "there is no such page"})
	})
}

// basePairs are the attributes with an address, without and with its base. What is in an
// event has no quotation mark: html/template escapes it.
func basePairs(base string) (pairs []string) {
	for _, attribute := range []string{`href="`, `action="`, `src="`, `data-worker="`, `;url=`} {
		pairs = append(pairs, attribute+"/", attribute+base+"/")
	}
	return pairs
}

// execute writes what a template makes of data.
func (p *Page) execute(to io.Writer, name string, data any) error {
	if p.based == nil {
		return p.templates.ExecuteTemplate(to, name, data)
	}
	var b strings.Builder
	if err := p.templates.ExecuteTemplate(&b, name, data); err != nil {
		return err
	}
	_, err := p.based.WriteString(to, b.String())
	return err
}

// Error is a refusal: the status, and a reason.
type Error struct {
	Status int
	Reason string
}

func (e *Error) Error() string { return e.Reason }

// statusOf returns the status for an error.
func statusOf(err error) int {
	var refused *Error
	var bad *filter.Error
	switch {
	case errors.As(err, &refused):
		return refused.Status
	case errors.As(err, &bad), errors.Is(err, filter.ErrRuntime), errors.Is(err, engine.ErrInvalid):
		return http.StatusBadRequest
	case errors.Is(err, history.ErrNotFound), errors.Is(err, engine.ErrNoSubscription), errors.Is(err, engine.ErrNoSchedule), errors.Is(err, engine.ErrNoDelayed), errors.Is(err, engine.ErrNotThread):
		return http.StatusNotFound
	case errors.Is(err, engine.ErrBusy):
		return http.StatusServiceUnavailable
	}
	return http.StatusInternalServerError
}

// getter finds what a page shows: a value whose JSON is the json of the twin.
type getter func(q *http.Request) (any, error)

// show answers with a page, or its twin when the path ends in .json.
func (p *Page) show(name string, get getter) http.HandlerFunc {
	return func(rw http.ResponseWriter, q *http.Request) {
		asJSON := strings.HasSuffix(q.URL.Path, ".json")
		var data any
		err := checkQuery(q, name)
		if err == nil {
			data, err = get(q)
		}
		if err == nil && asJSON {
			p.putJSON(rw, q, http.StatusOK, data)
			return
		}
		if err != nil && asJSON {
			p.putJSON(rw, q, statusOf(err), problem{err.Error()})
			return
		}
		if err != nil {
			p.refuse(rw, err)
			return
		}
		p.render(rw, q, http.StatusOK, name, data)
	}
}

// checkQuery refuses a parameter that the page does not know: left out, it would change
// what is shown.
func checkQuery(q *http.Request, page string) error {
	known := map[string][]string{"events": {"filter", "before", "limit", "explain"}, "event": {"plain"}, "dead": {"consumer", "filter", "all"},
		"info": {"state", "name", "sort", "down"}, "consumer": {"id", "past"}, "runs": {"status"}, "session": {"id", "show"}, "search": {"q", "in"}}[page]
	if text := similar.UnknownParameter(q.URL.Query(), known); text != "" {
		return &Error{http.StatusBadRequest, text}
	}
	return nil
}

// problem is the JSON of an error.
type problem struct {
	Error string `json:"error"`
}

func (p *Page) putJSON(rw http.ResponseWriter, q *http.Request, status int, data any) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false) // as the verbs print it
	if err := e.Encode(data); err != nil {
		b.Reset()
		status = http.StatusInternalServerError
		_ = e.Encode(problem{"the answer cannot be written as JSON"}) // that can
	}
	write(rw, q, status, "application/json", b.Bytes())
}

// twin is the address of the JSON of a page.
func twin(u *url.URL) string {
	path := u.EscapedPath() + ".json"
	if u.Path == "/" {
		path = "/threads.json"
	}
	if u.RawQuery != "" {
		path += "?" + u.RawQuery
	}
	return path
}

// named returns the thread that is called so.
func (p *Page) named(name string) (Thread, error) {
	var found Thread
	for _, t := range p.host.Threads() {
		switch {
		case t.Dir() == name:
			return t, nil
		case address.Base(t.Dir()) != name:
		case found != nil:
			return nil, &Error{http.StatusNotFound, "there are several threads of that name: give the whole path"}
		default:
			found = t
		}
	}
	if found == nil {
		return nil, &Error{http.StatusNotFound, "that thread is not served here"}
	}
	return found, nil
}
