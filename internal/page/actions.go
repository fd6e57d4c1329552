package page

import (
	"cmp"
	"context"
	"crypto/subtle"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"thread/engine"
	"thread/history"
	"thread/internal/address"
	"thread/internal/dispatch"
	"thread/internal/target"
)

// field returns a text of a form. It is escaped as in an address, as browsers change
// the line breaks of what they send.
func field(q *http.Request, name string) string {
	text, err := url.PathUnescape(q.PostFormValue(name))
	if err != nil {
		return ""
	}
	return text
}

// allowed reports whether a form may change something, and answers if not.
func (p *Page) allowed(rw http.ResponseWriter, q *http.Request) bool {
	if p.readOnly(q) {
		p.refuse(rw, &Error{http.StatusForbidden, "this server was started with --read-only, or your token has not the right admin"})
		return false
	}
	return p.ours(rw, q)
}

// ours reports whether a form is one of this server, and answers if not.
func (p *Page) ours(rw http.ResponseWriter, q *http.Request) bool {
	if subtle.ConstantTimeCompare([]byte(q.PostFormValue("form")), []byte(p.formToken(q))) != 1 {
		p.refuse(rw, &Error{http.StatusForbidden, "this form is not of this server, or from before it was started: load the page again"})
		return false
	}
	return true
}

// act carries out one form of a page, and goes back to that page.
func (p *Page) act(rw http.ResponseWriter, q *http.Request) {
	if !p.allowed(rw, q) {
		return
	}
	t, err := p.named(q.PathValue("name"))
	if err != nil {
		p.refuse(rw, err)
		return
	}
	if of := address.Of(t.Dir(), target.HistoryOf); of != "" {
		p.refuse(rw, &Error{http.StatusForbidden, fmt.Sprintf("%s is the history of %s, which only runs, sessions and messages change", t.Dir(), of)})
		return
	}
	do := q.PostFormValue("do")
	if do == "retry" || do == "drop" {
		p.letters(rw, q, t, do)
		return
	}
	a := action{Page: p, q: q, t: t, do: do, consumer: field(q, "consumer")}
	carry := actions[do]
	if carry == nil {
		p.refuse(rw, &Error{http.StatusBadRequest, "there is no such action"})
		return
	}
	err = carry(&a, q.Context())
	p.note(q, t, do, a.what, cmp.Or(a.said.Text, "done"), err)
	if err != nil {
		p.refuse(rw, err)
		return
	}
	p.done.say(p.sessions.of(q).id, a.said, time.Now())
	p.back(rw, q, a.tab, a.fixed)
}

// letters retries or drops all dead letters that match, when the form has their
// number, and else asks.
func (p *Page) letters(rw http.ResponseWriter, q *http.Request, t Thread, do string) {
	s := selection{consumer: field(q, "consumer"), filter: field(q, "filter")}
	if q.PostForm.Has("error") {
		text := field(q, "error")
		s.lastError = &text
	}
	if text := q.PostFormValue("event"); text != "" {
		var err error
		if s.event, err = strconv.ParseInt(text, 10, 64); err != nil {
			p.refuse(rw, &Error{http.StatusBadRequest, "event is not a number"})
			return
		}
	}
	list, err := s.matching(q.Context(), t.Engine())
	if err != nil {
		p.refuse(rw, err)
		return
	}
	c := Confirm{Do: do, Consumer: s.consumer, Filter: s.filter, Event: s.event, Error: s.lastError, Count: len(list)}
	if asked := q.PostFormValue("count"); asked != strconv.Itoa(len(list)) {
		status := http.StatusOK
		if c.Changed = asked != ""; c.Changed {
			status = http.StatusConflict
		}
		p.render(rw, q, status, "confirm", c)
		return
	}
	ctx := context.WithoutCancel(q.Context()) // all of it, even if the browser leaves
	what := s.String()
	said := Toast{Text: fmt.Sprintf("%s sent back%s", many(int64(len(list)), "dead letter", "dead letters"), to(list))}
	if do == "retry" {
		err = change(ctx, list, t.Engine().RetryDead)
		t.Wake()
	} else {
		said.Text = many(int64(len(list)), "dead letter", "dead letters") + " dropped"
		err = change(ctx, list, t.Engine().DropDead)
	}
	p.note(q, t, do, what, said.Text, err)
	if err != nil {
		p.refuse(rw, err)
		return
	}
	if s.consumer != "" {
		said.Link = Link{"Watch", "/threads/" + url.PathEscape(q.PathValue("name")) + "/consumer?id=" + url.QueryEscape(s.consumer)}
	}
	p.done.say(p.sessions.of(q).id, said, time.Now())
	p.back(rw, q, "dead", false)
}

// back goes to the page that a form came from, or, when it has none, to a tab.
func (p *Page) back(rw http.ResponseWriter, q *http.Request, tab string, fixed bool) {
	to := "/threads/" + url.PathEscape(q.PathValue("name")) + "/" + tab
	if back := q.PostFormValue("back"); !fixed && ownPath(back) {
		to = back
	}
	http.Redirect(rw, q, to, http.StatusSeeOther)
}

// ownPath reports whether an address is a path of this server.
func ownPath(address string) bool {
	u, err := url.Parse(address)
	return err == nil && u.Scheme == "" && u.Host == "" && u.User == nil && strings.HasPrefix(address, "/") && !strings.HasPrefix(address, "//") && !strings.Contains(address, `\`)
}

// action is one form that is carried out.
type action struct {
	*Page
	q        *http.Request
	t        Thread
	do       string
	consumer string

	what  string // it is about
	said  Toast
	tab   string // where that is seen
	fixed bool   // there only
}

// actions are what needs no count.
var actions = map[string]func(a *action, ctx context.Context) error{
	"pause": (*action).pause, "resume": (*action).resume, "run": (*action).run, "abort": (*action).abort, "seek": (*action).seek,
	"cancel": (*action).cancel, "cancel-delayed": (*action).cancelDelayed, "push": (*action).push,
	"cancel-run": (*action).cancelRun, "requeue": (*action).requeue, "approve": (*action).answer, "deny": (*action).answer,
}

func (a *action) pause(ctx context.Context) error {
	a.what, a.tab = a.consumer, "info"
	a.said = Toast{Text: short(a.consumer) + " is paused", undo: func(ctx context.Context) error {
		defer a.t.Wake()
		return a.t.Engine().Resume(ctx, a.consumer)
	}}
	if err := a.t.Engine().Pause(ctx, a.consumer); err != nil {
		return err
	}
	dispatch.WakeServer(a.t.Engine())
	return nil
}

func (a *action) resume(ctx context.Context) error {
	a.what, a.tab = a.consumer, "info"
	a.said = Toast{Text: short(a.consumer) + " is resumed", undo: func(ctx context.Context) error { return a.t.Engine().Pause(ctx, a.consumer) }}
	defer a.t.Wake()
	return a.t.Engine().Resume(ctx, a.consumer)
}

func (a *action) run(ctx context.Context) error {
	a.what, a.tab = a.consumer, "info"
	a.said.Text = short(a.consumer) + " runs as soon as its lane has a place"
	info, err := a.t.Engine().Info(ctx)
	if err != nil {
		return err
	}
	i := slices.IndexFunc(info.Subscriptions, func(c engine.ConsumerInfo) bool { return c.Consumer == a.consumer })
	switch {
	case i < 0:
		return engine.ErrNoSubscription
	case info.Subscriptions[i].Paused:
		return &Error{http.StatusConflict, "that consumer is paused: resume it first"}
	}
	a.t.Wake()
	return nil
}

func (a *action) abort(context.Context) error {
	a.what, a.tab, a.said.Text = a.consumer, "info", short(a.consumer)+" is being ended"
	if !a.t.Abort(a.consumer) {
		return &Error{http.StatusConflict, "that consumer does not run now"}
	}
	return nil
}

// seek moves a consumer to the newest event, to an id, or to a time.
func (a *action) seek(ctx context.Context) (err error) {
	a.tab = "info"
	var id int64
	switch a.q.PostFormValue("to") {
	case "newest":
		err = a.t.Engine().View(ctx, func(tx *engine.Tx) error {
			id = tx.Head()
			return nil
		})
	case "id":
		if id, err = strconv.ParseInt(a.q.PostFormValue("id"), 10, 64); err != nil || id < 0 {
			return &Error{http.StatusBadRequest, "the id is not a number"}
		}
	default:
		at, terr := seekTime(a.q.PostFormValue("at"))
		if terr != nil {
			return terr
		}
		id, err = a.t.Engine().Before(ctx, at)
	}
	if err != nil {
		return err
	}
	a.what, a.said.Text = fmt.Sprintf("%s to %d", a.consumer, id), fmt.Sprintf("%s continues after event %d", short(a.consumer), id)
	defer a.t.Wake()
	return a.t.Engine().Seek(ctx, a.consumer, id)
}

func seekTime(text string) (time.Time, error) {
	for _, layout := range []string{time.RFC3339, "2006-01-02T15:04:05", "2006-01-02T15:04", "2006-01-02 15:04", time.DateOnly} {
		if at, err := time.Parse(layout, strings.TrimSpace(text)); err == nil {
			return at, nil
		}
	}
	return time.Time{}, &Error{http.StatusBadRequest, "the time is not one such as 2006-01-02T15:04, in UTC"}
}

func (a *action) cancelDelayed(ctx context.Context) error {
	a.tab = "schedules"
	id, err := a.number("delayed")
	if err != nil {
		return err
	}
	a.said.Text = fmt.Sprintf("Delayed event %d is cancelled", id)
	list, err := a.t.Engine().Delayed(ctx, shownDelayed)
	if err != nil {
		return err
	}
	for _, d := range list {
		if d.ID == id {
			a.said.undo = func(ctx context.Context) error {
				_, _, err := a.t.Engine().DelayUntil(ctx, d.Draft, d.At)
				return err
			}
		}
	}
	return a.t.Engine().Cancel(ctx, id)
}

func (a *action) cancel(ctx context.Context) error {
	name := field(a.q, "schedule")
	a.tab, a.what, a.said.Text = "schedules", name, fmt.Sprintf("Schedule “%s” is cancelled", short(name))
	list, err := a.t.Engine().Schedules(ctx)
	if err != nil {
		return err
	}
	for _, s := range list {
		if s.Name == name {
			a.said.undo = func(ctx context.Context) error {
				_, err := a.t.Engine().AddSchedule(ctx, s)
				return err
			}
		}
	}
	return a.t.Engine().RemoveSchedule(ctx, name)
}

// push pushes an event with the fields of another one.
func (a *action) push(ctx context.Context) error {
	id, err := a.number("event")
	if err != nil {
		return err
	}
	e, err := again(ctx, a.t.Engine(), id)
	if err != nil {
		return err
	}
	a.t.Wake()
	a.tab, a.fixed, a.said.Text = fmt.Sprintf("events/%d", e.ID), true, fmt.Sprintf("Pushed again as event %d", e.ID)
	return nil
}

func (a *action) cancelRun(ctx context.Context) error {
	id := a.q.PostFormValue("run")
	a.what, a.tab, a.said.Text = id, "runs/"+url.PathEscape(id), "The run is asked to end"
	h, err := a.open(ctx, a.t)
	if h == nil || err != nil {
		return cmp.Or[error](err, errNoRuns)
	}
	defer h.Close()
	_, err = h.Cancel(ctx, id)
	return err
}

// answer approves or denies what a run waits for. The key is the one that the page showed, as
// the run may wait for something else meanwhile.
func (a *action) answer(ctx context.Context) error {
	from, _, _ := net.SplitHostPort(a.q.RemoteAddr) // "" over a socket
	id, answer := a.q.PostFormValue("run"), history.Answer{Result: history.Approved, By: from}
	a.what, a.tab, a.said.Text = id, "runs/"+url.PathEscape(id), "Approved: the run is queued"
	if a.do == "deny" {
		answer.Result, answer.Reason, a.said.Text = history.Denied, a.q.PostFormValue("reason"), "Denied: the run is queued"
	}
	h, err := a.open(ctx, a.t)
	if h == nil || err != nil {
		return cmp.Or[error](err, errNoRuns)
	}
	defer h.Close()
	err = h.Answer(ctx, id, field(a.q, "key"), answer)
	if errors.Is(err, history.ErrState) {
		return &Error{http.StatusConflict, "that was answered, or the run does not wait for it any more: load the page again"}
	}
	return err
}

func (a *action) requeue(ctx context.Context) error {
	id := a.q.PostFormValue("run")
	a.what, a.tab, a.said.Text = id, "runs/"+url.PathEscape(id), "The run is queued again"
	h, err := a.open(ctx, a.t)
	if h == nil || err != nil {
		return cmp.Or[error](err, errNoRuns)
	}
	defer h.Close()
	_, err = h.Requeue(ctx, id)
	return err
}

var errNoRuns = &Error{http.StatusNotFound, "this thread has no recorded runs"}

func (a *action) number(name string) (int64, error) {
	n, err := strconv.ParseInt(a.q.PostFormValue(name), 10, 64)
	if err != nil {
		return 0, &Error{http.StatusBadRequest, name + " is not a number"}
	}
	a.what = strings.TrimSpace(a.what + " " + strconv.FormatInt(n, 10))
	return n, nil
}

// undo takes back what the browser did a moment ago.
func (p *Page) undo(rw http.ResponseWriter, q *http.Request) {
	if !p.allowed(rw, q) {
		return
	}
	id := p.sessions.of(q).id
	t := p.done.undoing(id, q.PostFormValue("undo"), time.Now())
	if t == nil {
		p.refuse(rw, &Error{http.StatusConflict, "it is too late to undo that"})
		return
	}
	err := t.undo(q.Context())
	p.note(q, nil, "undo", t.Text, "done", err)
	if err != nil {
		p.refuse(rw, err)
		return
	}
	p.done.say(id, Toast{Text: "Undone: " + t.Text}, time.Now())
	to := "/"
	if back := q.PostFormValue("back"); ownPath(back) {
		to = back
	}
	http.Redirect(rw, q, to, http.StatusSeeOther)
}
