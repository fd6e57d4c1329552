package page

import (
	"bytes"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"html/template"
	"net/http"
	"net/url"
	"path/filepath"
	"strings"
	"time"

	"thread/engine"
	"thread/event"
	"thread/filter"
	"thread/history"
)

//go:embed assets
var assets embed.FS

// Options are the settings of a Page.
type Options struct {
	ReadOnly bool
	// LogIn returns what is kept of who gives that token, "" for none; Known whether that
	// is still a client, and may change something.
	LogIn func(token string) (key string)
	Known func(key string) (changes, ok bool)
}

// Page answers requests. Make one with New.
type Page struct {
	host      Host
	opts      Options
	templates *template.Template
	summaries *summaries
	sessions  *sessions
	mux       *http.ServeMux
	streams   *Places // of live streams
}

// maxStreams bounds the live streams, one for each tab that is looked at.
const maxStreams = 64

// streamsOfOne bounds those of one browser, which opens no more than six at once.
const streamsOfOne = maxStreams / 4

// New returns the pages of host.
func New(host Host, o Options) (*Page, error) {
	p := &Page{host: host, opts: o, summaries: newSummaries(host), sessions: newSessions(), mux: http.NewServeMux(),
		streams: NewPlaces(maxStreams, streamsOfOne)}
	var err error
	if p.templates, err = template.New("").Funcs(functions).ParseFS(assets, "assets/*.html"); err != nil {
		return nil, err
	}
	p.route()
	return p, nil
}

func (p *Page) route() {
	for name, typ := range map[string]string{"ui.js": "text/javascript; charset=utf-8", "ui.css": "text/css; charset=utf-8"} {
		p.mux.HandleFunc("GET /"+name, func(rw http.ResponseWriter, _ *http.Request) {
			text, _ := assets.ReadFile("assets/" + name) // it is embedded
			rw.Header().Set("Content-Type", typ)
			_, _ = rw.Write(text)
		})
	}
	p.mux.HandleFunc("GET /{$}", p.show("map", p.threads))
	p.mux.HandleFunc("GET /threads.json", p.show("map", p.threads))
	p.mux.HandleFunc("GET /lanes", p.show("lanes", p.lanes))
	p.mux.HandleFunc("GET /lanes.json", p.show("lanes", p.lanes))
	p.mux.HandleFunc("GET /live", p.live)
	p.mux.HandleFunc("GET /threads/{name}", func(rw http.ResponseWriter, q *http.Request) {
		http.Redirect(rw, q, "/threads/"+url.PathEscape(q.PathValue("name"))+"/info", http.StatusSeeOther)
	})
	for tab, get := range map[string]getter{"info": p.info, "events": p.events, "dead": p.dead, "schedules": p.schedules, "runs": p.runs} {
		for _, suffix := range []string{"", ".json"} {
			p.mux.HandleFunc("GET /threads/{name}/"+tab+suffix, p.show(tab, get))
		}
	}
	p.mux.HandleFunc("GET /threads/{name}/events/{id}", p.show("event", p.event))
	p.mux.HandleFunc("GET /threads/{name}/runs/{id}", p.show("run", p.run))
	p.mux.HandleFunc("POST /threads/{name}/act", p.act)
	p.mux.HandleFunc("GET /", func(rw http.ResponseWriter, _ *http.Request) {
		p.refuse(rw, &Error{http.StatusNotFound, "there is no such page"})
	})
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

// getter finds what a page shows: a value whose JSON is that of the twin.
type getter func(q *http.Request) (any, error)

// view is what a template gets.
type view struct {
	Page     string // name of the template
	Title    string
	Name     string // of the thread in addresses, "" for none
	Dir      string
	Twin     string
	Form     string // the form token
	ReadOnly bool
	Query    url.Values
	Now      time.Time
	Data     any
}

// show answers with a page, or its twin when the path ends in .json.
func (p *Page) show(name string, get getter) http.HandlerFunc {
	return func(rw http.ResponseWriter, q *http.Request) {
		asJSON := strings.HasSuffix(q.URL.Path, ".json")
		data, err := get(q)
		if err == nil && asJSON {
			p.putJSON(rw, http.StatusOK, data)
			return
		}
		if err != nil && asJSON {
			p.putJSON(rw, statusOf(err), problem{err.Error()})
			return
		}
		if err != nil {
			p.refuse(rw, err)
			return
		}
		p.render(rw, q, http.StatusOK, name, data)
	}
}

// problem is the JSON of an error.
type problem struct {
	Error string `json:"error"`
}

func (p *Page) putJSON(rw http.ResponseWriter, status int, data any) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false) // as the verbs print it
	if err := e.Encode(data); err != nil {
		b.Reset()
		status = http.StatusInternalServerError
		_ = e.Encode(problem{"the answer cannot be written as JSON"}) // that can
	}
	rw.Header().Set("Content-Type", "application/json")
	rw.WriteHeader(status)
	_, _ = rw.Write(b.Bytes()) // who asked may be gone
}

// render writes a page as a whole, or, when that fails, only the error.
func (p *Page) render(rw http.ResponseWriter, q *http.Request, status int, name string, data any) {
	v := view{Page: name, Title: name, Name: q.PathValue("name"), Twin: twin(q.URL), Form: p.formToken(q), ReadOnly: p.readOnly(q),
		Query: q.URL.Query(), Now: time.Now(), Data: data}
	if t, err := p.named(v.Name); err == nil {
		v.Dir, v.Title = t.Dir(), name+" of "+filepath.Base(t.Dir())
	}
	var b bytes.Buffer
	if err := p.templates.ExecuteTemplate(&b, "page", v); err != nil {
		p.refuse(rw, err)
		return
	}
	rw.Header().Set("Content-Type", "text/html; charset=utf-8")
	rw.WriteHeader(status)
	_, _ = rw.Write(b.Bytes())
}

func (p *Page) refuse(rw http.ResponseWriter, err error) {
	var b bytes.Buffer
	if terr := p.templates.ExecuteTemplate(&b, "refused", err.Error()); terr != nil {
		http.Error(rw, err.Error(), statusOf(err))
		return
	}
	rw.Header().Set("Content-Type", "text/html; charset=utf-8")
	rw.WriteHeader(statusOf(err))
	_, _ = rw.Write(b.Bytes())
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
		case filepath.Base(t.Dir()) != name:
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

// functions are those of the templates.
var functions = template.FuncMap{
	"path": url.PathEscape,
	"age":  Age,
	"time": func(t time.Time) string {
		if t.IsZero() {
			return ""
		}
		return event.FormatTime(t)
	},
	"text": func(s *string) string {
		if s == nil {
			return ""
		}
		return *s
	},
	"short": short,
	"int": func(n *int64) string {
		if n == nil {
			return "not known"
		}
		return fmt.Sprint(*n)
	},
	"base": filepath.Base,
	"rows": func(name string, rows []RunRow) any {
		return struct {
			Name string
			Rows []RunRow
		}{name, rows}
	},
}

// shortBytes is how much of a text a row shows.
const shortBytes = 160

// short cuts a text for a row, at the end of a rune.
func short(s string) string {
	if len(s) <= shortBytes {
		return s
	}
	return strings.ToValidUTF8(s[:shortBytes], "") + "…"
}

// Age is how long before now a time of an event was, "" for none.
func Age(now time.Time, at *string) string {
	if at == nil {
		return ""
	}
	ms, ok := event.ParseTime(*at)
	if !ok {
		return *at
	}
	d := max(0, now.Sub(time.UnixMilli(ms)))
	switch {
	case d < time.Minute:
		return fmt.Sprintf("%d s", int(d.Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%d min", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%d h", int(d.Hours()))
	}
	return fmt.Sprintf("%d d", int(d.Hours()/24))
}
