package page

import (
	"bytes"
	"context"
	"embed"
	"errors"
	"fmt"
	"html/template"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"thread/engine"
	"thread/event"
	"thread/filter"
	"thread/history"
	"thread/internal/address"
	"thread/internal/signed"
	"thread/internal/similar"
)

//go:embed assets
var assets embed.FS

// Change is an action on the pages.
type Change struct {
	Number int64     `json:"number"`
	At     time.Time `json:"at"`
	From   string    `json:"from"` // the address of the browser
	Do     string    `json:"action"`
	Thread string    `json:"thread"`
	What   string    `json:"about"`
	Result string    `json:"result"`
	Failed bool      `json:"failed"`
}

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

// changes remembers the last ones.
type changes struct {
	mu   sync.Mutex
	last []Change // the oldest first
	n    int64
}

// calm remembers when there was a problem last.
type calm struct {
	mu   sync.Mutex
	last map[string]time.Time
}

// look notes whether all is well with what is called so, and returns when it was not, zero
// for never.
func (c *calm) look(what string, well bool, now time.Time) time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.last == nil {
		c.last = map[string]time.Time{}
	}
	if !well {
		c.last[what] = now
	}
	return c.last[what]
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

func again(ctx context.Context, t *engine.Thread, id int64) (e event.Event, err error) {
	stored := false
	err = t.View(ctx, func(tx *engine.Tx) (err error) {
		e, stored, err = tx.Event(id)
		return err
	})
	if err != nil {
		return e, err
	}
	if !stored {
		return e, &Error{http.StatusNotFound, fmt.Sprintf("event %d is not stored", id)}
	}
	d := event.Draft{Source: e.Source, Type: e.Type, Subtype: e.Subtype, Content: e.Content}
	d.ToValidUTF8() // an imported event may have any text
	return t.Push(ctx, d)
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

// refuse answers with an error as a page.
func (p *Page) refuse(rw http.ResponseWriter, err error) {
	var b bytes.Buffer
	if terr := p.execute(&b, "refused", err.Error()); terr != nil {
		http.Error(rw, err.Error(), statusOf(err))
		return
	}
	rw.Header().Set("Content-Type", "text/html; charset=utf-8")
	rw.WriteHeader(statusOf(err))
	_, _ = rw.Write(b.Bytes())
}
