package page

import (
	"html/template"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"thread/event"
	"thread/history"
	"thread/internal/address"
)

// cardElements are the cards of threads.
func cardElements(v *view, threads []Row) template.HTML {
	esc := template.HTMLEscapeString
	return keyed(threads, func(r *Row) string { return elementID("card", r.Dir) }, func(put put, r *Row, id string) {
		put(`<li class="card" id="`, id, `"><h3><i class="dot `, r.look(), `"></i><a class="cut" href="`, r.infoPath(), `" title="`, esc(r.Dir), `">`, esc(r.Name), `</a>`)
		switch {
		case r.Error != "":
			put(`<span class="pill unknown"><i class="dot"></i>unknown</span>`)
		case r.Failing > 0:
			put(`<span class="pill fail">`, strconv.Itoa(r.Failing), ` failing</span>`)
		case r.Running > 0:
			put(`<span class="pill run"><i class="dot beat"></i>`, strconv.Itoa(r.Running), ` running</span>`)
		case r.Paused > 0:
			put(`<span class="pill paused"><i class="dot"></i>`, strconv.Itoa(r.Paused), ` paused</span>`)
		}
		amber, red, pending, oldest, dead := "", "", "?", template.HTML("?"), "?"
		if r.State.Class() == Behind.Class() {
			amber = ` class="amber"`
		}
		if r.Dead > 0 {
			red = ` class="red"`
		}
		if r.Pending != nil {
			pending, oldest = count(*r.Pending), "–"
		}
		if r.Oldest != nil {
			oldest = timeElement(parseTime(*r.Oldest), v.Now, "age")
		}
		if r.Stored != nil {
			dead = count(r.Dead)
		}
		put(`</h3>`, string(sparkElement(r.Spark)), `<dl><div><dt>Unread</dt><dd`, amber, `>`, pending, `</dd></div><div><dt>Oldest</dt><dd>`, string(oldest),
			`</dd></div><div><dt>Running</dt><dd>`, strconv.Itoa(r.Running), `</dd></div><div><dt>Dead</dt><dd`, red, `>`, dead, `</dd></div></dl></li>`)
	})
}

// settings is the page of them.
func (p *Page) settings(q *http.Request) (any, error) {
	s := Settings{Changes: !p.readOnly(q)}
	if me := p.sessions.of(q); me.id != "" {
		s.Since = event.FormatTime(me.since)
	}
	return s, nil
}

// logOut ends the session of a browser, or all with the same token.
func (p *Page) logOut(rw http.ResponseWriter, q *http.Request) {
	if !p.ours(rw, q) {
		return
	}
	all := q.PostFormValue("all") != ""
	p.sessions.end(p.sessions.of(q), all)
	if all {
		p.note(q, nil, "sign out everywhere", "", "done", nil)
	}
	http.Redirect(rw, q, "/login", http.StatusSeeOther)
}

// functions are the functions of the templates.
var functions = template.FuncMap{
	"path":  url.PathEscape,
	"query": url.QueryEscape,
	"time":  func(t time.Time, v *view) template.HTML { return timeElement(t, v.Now, "") },
	"age":   func(t time.Time, v *view) template.HTML { return timeElement(t, v.Now, "age") },
	"ago":   func(t time.Time, v *view) template.HTML { return timeElement(t, v.Now, "ago") },
	"in":    func(t time.Time, v *view) template.HTML { return timeElement(t, v.Now, "in") },
	"text": func(s *string) string {
		if s == nil {
			return ""
		}
		return *s
	},
	"parse":  parseTime,
	"short":  short,
	"line":   line,
	"count":  func(n int64) string { return count(n) },
	"number": func(n int) string { return count(int64(n)) },
	"many":   func(n int, one, more string) string { return many(int64(n), one, more) },
	"known": func(n *int64) string {
		if n == nil {
			return "?"
		}
		return count(*n)
	},
	"base":    address.Base,
	"span":    span,
	"code":    highlight,
	"quote":   quote,
	"int":     func(n int64) int { return int(n) },
	"lines":   func(s string) []string { return strings.Split(strings.TrimSuffix(s, "\n"), "\n") },
	"lower":   strings.ToLower,
	"rows":    rowElements,
	"rail":    railElements,
	"cards":   cardElements,
	"spark":   sparkElement,
	"first":   func(s string) string { return strings.ToUpper(s[:1]) + s[1:] },
	"part":    func(v *view, data any) part { return part{v, data} },
	"assets":  assetsVersion,
	"columns": func() []column { return columns },
	"statuses": func() []string {
		return []string{history.Running, history.Queued, history.Waiting, history.Completed, history.Failed, history.TimedOut, history.Cancelled}
	},
	"id":   elementID,
	"mark": func() string { return versionMark },
	// What changes by itself is between key and yek; a list of these, between list and last.
	"key":  func(id string) template.HTML { return template.HTML("\x00(" + id + "\x00") }, //nolint:gosec // an id that was made here
	"yek":  func() template.HTML { return "\x00)" },
	"list": func(id string) template.HTML { return template.HTML("\x00[" + id + "\x00") }, //nolint:gosec // as above
	"last": func() template.HTML { return "\x00]" },
}

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
