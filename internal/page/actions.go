package page

import (
	"context"
	"crypto/subtle"
	"fmt"
	"net/http"
	"net/url"
	"strconv"

	"thread/engine"
	"thread/event"
)

// Confirm is the page before dead letters are changed: how many there are.
type Confirm struct {
	Do       string
	Consumer string
	Filter   string
	Error    *string
	Count    int
	Changed  bool // there were as many as another count when it was asked for
}

// field returns a text of a form. It is escaped as in an address, as browsers change
// the line breaks of what they send.
func field(q *http.Request, name string) string {
	text, err := url.PathUnescape(q.PostFormValue(name))
	if err != nil {
		return ""
	}
	return text
}

// act carries out one form of a page, and goes back to that page.
func (p *Page) act(rw http.ResponseWriter, q *http.Request) {
	if p.readOnly(q) {
		p.refuse(rw, &Error{http.StatusForbidden, "this server was started with --read-only, or your token has not the right admin"})
		return
	}
	if subtle.ConstantTimeCompare([]byte(q.PostFormValue("form")), []byte(p.formToken(q))) != 1 {
		p.refuse(rw, &Error{http.StatusForbidden, "this form is not of this server, or from before it was started: load the page again"})
		return
	}
	t, err := p.named(q.PathValue("name"))
	if err != nil {
		p.refuse(rw, err)
		return
	}
	do := q.PostFormValue("do")
	if do == "retry" || do == "drop" {
		p.letters(rw, q, t, do)
		return
	}
	back, err := p.carryOut(q, t, do)
	if err != nil {
		p.refuse(rw, err)
		return
	}
	p.back(rw, q, back)
}

func (p *Page) back(rw http.ResponseWriter, q *http.Request, tab string) {
	http.Redirect(rw, q, "/threads/"+url.PathEscape(q.PathValue("name"))+"/"+tab, http.StatusSeeOther)
}

// carryOut does what needs no count, and returns where that is seen.
func (p *Page) carryOut(q *http.Request, t Thread, do string) (back string, err error) {
	ctx, consumer := q.Context(), field(q, "consumer")
	switch do {
	case "pause":
		return "info", t.Engine().Pause(ctx, consumer)
	case "resume":
		if err = t.Engine().Resume(ctx, consumer); err == nil {
			t.Wake()
		}
		return "info", err
	case "cancel-delayed":
		id, err := strconv.ParseInt(q.PostFormValue("delayed"), 10, 64)
		if err != nil {
			return "", &Error{http.StatusBadRequest, "delayed is not a number"}
		}
		return "schedules", t.Engine().Cancel(ctx, id)
	case "cancel":
		return "schedules", t.Engine().RemoveSchedule(ctx, field(q, "schedule"))
	case "push":
		id, err := strconv.ParseInt(q.PostFormValue("event"), 10, 64)
		if err != nil {
			return "", &Error{http.StatusBadRequest, "event is not a number"}
		}
		e, err := again(ctx, t.Engine(), id)
		if err != nil {
			return "", err
		}
		t.Wake()
		return fmt.Sprintf("events/%d", e.ID), nil
	}
	return "", &Error{http.StatusBadRequest, "there is no such action"}
}

// again pushes an event with the fields of another one.
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

// letters retries or drops all dead letters that match, when the form has their
// number, and else asks.
func (p *Page) letters(rw http.ResponseWriter, q *http.Request, t Thread, do string) {
	s := selection{consumer: field(q, "consumer"), filter: field(q, "filter")}
	if q.PostForm.Has("error") {
		text := field(q, "error")
		s.lastError = &text
	}
	list, err := s.matching(q.Context(), t.Engine())
	if err != nil {
		p.refuse(rw, err)
		return
	}
	c := Confirm{Do: do, Consumer: s.consumer, Filter: s.filter, Error: s.lastError, Count: len(list)}
	count := q.PostFormValue("count")
	if count != strconv.Itoa(len(list)) {
		status := http.StatusOK
		if c.Changed = count != ""; c.Changed {
			status = http.StatusConflict
		}
		p.render(rw, q, status, "confirm", c)
		return
	}
	ctx := context.WithoutCancel(q.Context()) // all of it, whoever goes meanwhile
	if do == "retry" {
		err = change(ctx, list, t.Engine().RetryDead)
		t.Wake()
	} else {
		err = change(ctx, list, t.Engine().DropDead)
	}
	if err != nil {
		p.refuse(rw, err)
		return
	}
	p.back(rw, q, "dead")
}
