package page

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"html/template"
	"net/http"
	"net/url"
	"os"
	"strings"
	"sync"
	"time"

	"thread/internal/address"
)

// view is what a template gets.
type view struct {
	Page     string // name of the template
	Title    string
	Name     string // of the thread in addresses, "" for none
	Dir      string
	Base     string // of the thread's directory
	Twin     string
	Self     string // the address of the page
	Version  string // of what it shows, see bases
	Form     string // the form token
	ReadOnly bool
	Query    url.Values
	Now      time.Time
	Host     string
	Crumbs   []Link
	Rail     []Row
	Lanes    []LaneRow
	Tabs     []Tab
	Toast    *Toast
	Data     any
}

// railElements are the entries of the list of threads.
func railElements(v *view) template.HTML {
	esc := template.HTMLEscapeString
	return keyed(v.Rail, func(r *Row) string { return elementID("rt", r.Dir) }, func(put put, r *Row, id string) {
		current := ""
		if r.Dir == v.Dir {
			current = ` aria-current="true"`
		}
		put(`<li id="`, id, `"><a href="`, r.infoPath(), `"`, current, `><i class="dot `, r.look(), `"></i><span class="vh">`, r.State.String(), `: </span><span class="cut" title="`, esc(r.Dir), `">`, esc(r.Name), `</span>`)
		if r.Badge != "" {
			put(`<span class="n `, r.BadgeLook, `" title="`, esc(r.BadgeText), `">`, esc(r.Badge), `</span>`)
		}
		put(`</a></li>`)
	})
}

// Tab is one of the pages of a thread.
type Tab struct {
	Link
	On          bool
	Badge, Look string
}

// section is the tab that a page belongs to.
var section = map[string]string{"overview": "overview", "info": "info", "consumer": "info", "events": "events", "event": "events", "dead": "dead", "confirm": "dead",
	"runs": "runs", "run": "runs", "sessions": "sessions", "session": "sessions", "schedules": "schedules"}

var tabs = []Link{{"Overview", "overview"}, {"Consumers", "info"}, {"Events", "events"}, {"Dead", "dead"}, {"Runs", "runs"}, {"Sessions", "sessions"}, {"Schedules", "schedules"}}

// render writes a page as a whole, or what has changed in it, or, when that fails, only
// the error.
func (p *Page) render(rw http.ResponseWriter, q *http.Request, status int, name string, data any) {
	v := p.newView(q, name, data)
	if q.Header.Get(haveHeader) == "" {
		v.Toast = p.done.take(p.sessions.of(q).id, v.Now)
	}
	b := buffers.Get().(*bytes.Buffer)
	b.Reset()
	defer buffers.Put(b)
	if err := p.execute(b, "page", v); err != nil {
		p.refuse(rw, err)
		return
	}
	parts := split(b.Bytes())
	if have := q.Header.Get(haveHeader); have != "" {
		p.putJSON(rw, q, status, p.bases.changes(have, parts))
		return
	}
	p.bases.keep(parts)
	if at := bytes.Index(parts.page, []byte(versionMark)); at >= 0 {
		copy(parts.page[at:], parts.version)
	}
	write(rw, q, status, "text/html; charset=utf-8", parts.page)
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

// buffers are for pages before they are taken apart, of which some have 1 MB.
var buffers = sync.Pool{New: func() any { return new(bytes.Buffer) }}

func (p *Page) newView(q *http.Request, name string, data any) *view {
	all := p.host.Threads()
	known := make([]summary, len(all))
	for i, t := range all {
		known[i] = p.summaries.peek(t.Dir())
	}
	v := &view{Page: name, Title: "Threads", Name: q.PathValue("name"), Twin: twin(q.URL), Self: q.URL.RequestURI(), Form: p.formToken(q), ReadOnly: p.readOnly(q),
		Query: q.URL.Query(), Now: time.Now(), Host: hostName(), Rail: rows(all, known), Lanes: p.laneRows(all), Data: data}
	if t, err := p.named(v.Name); err == nil {
		v.Dir, v.Base = t.Dir(), address.Base(t.Dir())
		v.inThread(q, data)
	} else {
		v.Title = titles[name]
		if v.Crumbs = []Link{{"Threads", "/"}}; name != "map" {
			v.Crumbs = append(v.Crumbs, Link{Text: titles[name]})
		}
	}
	v.Crumbs[len(v.Crumbs)-1].Address = ""
	return v
}

// titles of pages that belong to no thread.
var titles = map[string]string{"map": "Threads", "settings": "Settings", "audit": "Changes", "search": "Search", "api": "API"}

// inThread sets where in the thread the page is.
func (v *view) inThread(q *http.Request, data any) {
	at := "/threads/" + url.PathEscape(v.Name) + "/"
	v.Crumbs = []Link{{"Threads", "/"}, {v.Base, at + "overview"}}
	for _, t := range tabs {
		tab := Tab{Link: Link{t.Text, at + t.Address}, On: section[v.Page] == t.Address}
		if tab.On && t.Address != "overview" {
			v.Crumbs = append(v.Crumbs, Link{strings.Replace(t.Text, "Dead", "Dead letters", 1), tab.Address})
		}
		for i := range v.Rail {
			if r := &v.Rail[i]; r.Dir == v.Dir && t.Address == "dead" && r.Stored != nil {
				if tab.Badge = count(r.Dead); r.Dead > 0 {
					tab.Look = "bad"
				}
			} else if r.Dir == v.Dir && t.Address == "runs" && r.Running > 0 {
				tab.Badge = fmt.Sprint(r.Running)
			}
		}
		v.Tabs = append(v.Tabs, tab)
	}
	last := ""
	switch v.Page {
	case "consumer":
		last = q.FormValue("id")
	case "event":
		last = fmt.Sprint(data.(OneEvent).Event.ID)
	case "run":
		last = data.(OneRun).Run.ID
	case "session":
		last = data.(OneSession).Session.Called()
	case "confirm":
		last = "Confirm"
	}
	if last != "" {
		v.Crumbs = append(v.Crumbs, Link{Text: last})
	}
	v.Title = v.Crumbs[len(v.Crumbs)-1].Text + " · " + v.Base
}

var hostName = sync.OnceValue(func() string {
	name, err := os.Hostname()
	if err != nil {
		return ""
	}
	name, _, _ = strings.Cut(name, ".")
	return name
})

// leastZipped is from which size on an answer is compressed.
const leastZipped = 1 << 10

// largePage is from which size on an answer is compressed fast.
const largePage = 128 << 10

// write answers, compressed where the browser takes that.
func write(rw http.ResponseWriter, q *http.Request, status int, typ string, text []byte) {
	h := rw.Header()
	h.Set("Content-Type", typ)
	h.Add("Vary", "Accept-Encoding")
	if len(text) >= leastZipped && strings.Contains(q.Header.Get("Accept-Encoding"), "gzip") {
		var b bytes.Buffer
		level := gzip.DefaultCompression
		if len(text) > largePage {
			level = gzip.BestSpeed // in a quarter of the time
		}
		z, _ := gzip.NewWriterLevel(&b, level) // a level that there is
		_, _ = z.Write(text)                   // a buffer takes everything
		_ = z.Close()
		h.Set("Content-Encoding", "gzip")
		text = b.Bytes()
	}
	rw.WriteHeader(status)
	_, _ = rw.Write(text) // who asked may be gone
}

// asset is a file as it is sent.
func asset(name string) []byte {
	text, _ := assets.ReadFile("assets/" + name) // it is embedded
	return []byte(squeeze(string(text), strings.HasSuffix(name, ".js")))
}

// assetsVersion is in the addresses of the stylesheet and the scripts, which browsers keep.
var assetsVersion = sync.OnceValue(func() string {
	h := sha256.New()
	for _, name := range []string{"ui.css", "ui.js", "worker.js"} {
		h.Write(asset(name))
	}
	return hex.EncodeToString(h.Sum(nil))[:12]
})

// part is what a template within a page gets.
type part struct {
	V *view
	D any
}

// elementID is an id for what has a name, which may be any text.
func elementID(kind string, name any) string {
	switch n := name.(type) {
	case int64:
		return fmt.Sprintf("%s-%d", kind, n)
	case int:
		return fmt.Sprintf("%s-%d", kind, n)
	}
	h := fnv.New64a()
	fmt.Fprint(h, name)
	return fmt.Sprintf("%s-%x", kind, h.Sum64())
}
