package page

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"thread/engine"
)

// lettersAtOnce bounds how many dead letters are changed in one transaction.
const lettersAtOnce = 500

// Confirm is the page before dead letters are changed: how many there are.
type Confirm struct {
	Do       string
	Consumer string
	Filter   string
	Event    int64
	Error    *string
	Count    int
	Changed  bool // there were as many as another count when it was asked for
}

// selection is which dead letters an action is about. Both strings are compared whole.
type selection struct {
	consumer, filter string
	event            int64   // 0: of any event
	lastError        *string // nil: any
}

// matching returns the letters without the contents of their events.
func (s *selection) matching(ctx context.Context, t *engine.Thread) (list []engine.DeadLetter, err error) {
	for l, err := range t.DeadLetters(ctx, engine.DeadLetterQuery{Consumer: s.consumer, Filter: s.filter, ID: s.event}) {
		if err != nil {
			return nil, err
		}
		if s.lastError != nil && l.LastError != *s.lastError {
			continue
		}
		l.Event.Content = ""
		list = append(list, l)
	}
	return list, nil
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

// to says whose all of the letters are, "" for several.
func to(list []engine.DeadLetter) string {
	if len(list) == 0 || slices.ContainsFunc(list, func(l engine.DeadLetter) bool { return l.Consumer != list[0].Consumer }) {
		return ""
	}
	return " to " + short(list[0].Consumer)
}

// String says which letters they are, for the list of changes.
func (s *selection) String() string {
	var parts []string
	if s.consumer != "" {
		parts = append(parts, s.consumer)
	}
	if s.event != 0 {
		parts = append(parts, fmt.Sprintf("event %d", s.event))
	}
	if s.filter != "" {
		parts = append(parts, "where "+s.filter)
	}
	if s.lastError != nil {
		parts = append(parts, "with the error "+*s.lastError)
	}
	return strings.Join(parts, ", ")
}

// change calls do with some of the letters at a time.
func change(ctx context.Context, list []engine.DeadLetter, do func(context.Context, []engine.DeadLetter) (int64, error)) error {
	for some := range slices.Chunk(list, lettersAtOnce) {
		if _, err := do(ctx, some); err != nil {
			return err
		}
	}
	return nil
}
