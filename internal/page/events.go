package page

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"thread/engine"
	"thread/event"
	"thread/filter"
	"thread/internal/dispatch"
	"thread/internal/jsonform"
)

// Event is one in the form of docs/reference/json.md.
type Event struct{ event.Event }

// MarshalJSON is the event's one form.
func (e Event) MarshalJSON() ([]byte, error) { return e.AppendJSON(nil), nil }

// Events is a page of events, newest first.
type Events struct {
	Events []Event        `json:"events"`
	From   int64          `json:"first_id"` // the ids that were searched
	To     int64          `json:"last_id"`
	Next   *int64         `json:"before"` // where the next page begins, null for the end
	All    bool           `json:"complete"`
	Parts  []filter.Part  `json:"parts"`
	Plan   *jsonform.Plan `json:"plan"` // null unless asked for
	Error  string         `json:"error,omitempty"`

	Rows    []EventRow  `json:"-"`
	Types   []Chip      `json:"-"`
	Sources []Chip      `json:"-"`
	Hist    Spark       `json:"-"`
	Axis    []time.Time `json:"-"`
	Took    string      `json:"-"`
	Times   []Chip      `json:"-"`
	Hint    string      `json:"-"` // a filter that may have been meant
	Stored  int64       `json:"-"`
}

// EventRow is a line of the table.
type EventRow struct {
	Event
	At    time.Time
	State State
	Text  string // of the state
	JSON  bool
}

// Chip is a filter that is a link.
type Chip struct {
	Text, Filter string
	Count        string
	On           bool
}

// events is a page of them: those that match filter, with ids below before.
func (p *Page) events(q *http.Request) (_ any, err error) {
	t, err := p.named(q.PathValue("name"))
	if err != nil {
		return nil, err
	}
	limit, err := number(q, "limit", pageEvents)
	if err != nil {
		return nil, err
	}
	before, err := number(q, "before", 0)
	if err != nil {
		return nil, err
	}
	page := Events{Events: []Event{}, Parts: []filter.Part{}}
	where := q.FormValue("filter")
	if !strings.HasSuffix(q.URL.Path, ".json") {
		defer func() { p.dress(q.Context(), t, where, &page) }()
	}
	if where != "" {
		f, err := filter.Compile(where)
		if err != nil && !strings.HasSuffix(q.URL.Path, ".json") {
			page.Error = err.Error() // next to the text, to be corrected
			return &page, nil
		}
		if err != nil {
			return nil, err
		}
		page.Parts = f.Explain().Parts
	}
	var head int64
	err = t.Engine().View(q.Context(), func(tx *engine.Tx) error {
		head = tx.Head()
		return nil
	})
	if err != nil {
		return nil, err
	}
	if before == 0 || before > head {
		before = head + 1
	}
	s := search{t: t.Engine(), where: where, limit: min(max(limit, 1), maxPage)}
	if err := s.run(q.Context(), before, &page); err != nil {
		if statusOf(err) != http.StatusBadRequest || strings.HasSuffix(q.URL.Path, ".json") {
			return nil, err
		}
		page.Error = err.Error()
	}
	if q.FormValue("explain") != "" && page.To >= page.From {
		plan, err := s.t.Explain(q.Context(), s.query(page.From, page.To+1, s.limit))
		if err != nil {
			return nil, err
		}
		form := jsonform.NewPlan(plan)
		page.Plan = &form
	}
	return &page, nil
}

// search looks for events from the newest on, in pieces, so that it can end when its
// time has ended and say where.
type search struct {
	t     *engine.Thread
	where string
	limit int64
}

// query selects the events with first ≤ id < before. The filter is valid by itself, so
// that the parentheses hold it together.
func (s *search) query(first, before, limit int64) engine.Query {
	where := fmt.Sprintf("id < %d", before)
	if s.where != "" {
		where += " AND (" + s.where + "\n)" // behind a comment, too
	}
	return engine.Query{After: first - 1, Filter: where, Limit: limit, Reverse: true}
}

func (s *search) run(ctx context.Context, before int64, page *Events) error {
	begin := time.Now()
	end := begin.Add(searchTime)
	defer func() { page.Took = fmt.Sprintf("%d ms", time.Since(begin).Milliseconds()) }()
	page.To, page.From = before-1, before
	bytes := 0
	for piece := int64(firstPiece); before > 1; piece *= 2 {
		first := max(1, before-piece)
		for e, err := range s.t.Events(ctx, s.query(first, before, s.limit-int64(len(page.Events)))) {
			if err != nil {
				return err
			}
			bytes += len(e.Content)
			page.Events, page.From = append(page.Events, Event{e}), e.ID
			if int64(len(page.Events)) == s.limit || bytes >= pageBytes {
				if e.ID > 1 {
					page.Next = &page.Events[len(page.Events)-1].ID
				}
				page.All = e.ID <= 1
				return nil
			}
		}
		before, page.From = first, first
		if before > 1 && time.Now().After(end) {
			page.Next = &before
			return nil
		}
	}
	page.All = true
	return nil
}

func number(q *http.Request, name string, otherwise int64) (int64, error) {
	text := q.FormValue(name)
	if text == "" {
		return otherwise, nil
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 0 {
		return 0, &Error{http.StatusBadRequest, name + " is not a number"}
	}
	return n, nil
}

// Where is where an event is for a consumer.
type Where struct {
	Consumer string `json:"consumer_id"`
	jsonform.Why
}

// OneEvent is an event and where it is.
type OneEvent struct {
	Event Event   `json:"event"`
	Where []Where `json:"consumers"`
	Left  int     `json:"not_asked"` // consumers for which the time was over
	Lines string  `json:"-"`         // the content, with line breaks where it is JSON

	At         time.Time  `json:"-"`
	Bytes      string     `json:"-"`
	Prev, Next int64      `json:"-"` // ids that are stored, 0 for none
	Rows       []WhereRow `json:"-"` // the worst first
	Others     []Where    `json:"-"` // whose filters do not match
	Plain      bool       `json:"-"` // as it is stored
}

// WhereRow is a line of where an event is.
type WhereRow struct {
	Where
	State State
	Word  string
}

// event is one of them.
func (p *Page) event(q *http.Request) (any, error) {
	t, err := p.named(q.PathValue("name"))
	if err != nil {
		return nil, err
	}
	id, err := strconv.ParseInt(strings.TrimSuffix(q.PathValue("id"), ".json"), 10, 64)
	if err != nil {
		return nil, &Error{http.StatusNotFound, "an event has a number"}
	}
	one := OneEvent{Where: []Where{}}
	var names []string
	info, err := t.Engine().Info(q.Context())
	if err != nil {
		return nil, err
	}
	for i := range info.Subscriptions {
		names = append(names, info.Subscriptions[i].Consumer)
	}
	stored := false
	err = t.Engine().View(q.Context(), func(tx *engine.Tx) (err error) {
		one.Event.Event, stored, err = tx.Event(id)
		return err
	})
	if err != nil {
		return nil, err
	}
	if !stored {
		return nil, &Error{http.StatusNotFound, fmt.Sprintf("event %d is not stored", id)}
	}
	one.Plain = q.FormValue("plain") != ""
	if one.Lines = one.Event.Content; !one.Plain {
		one.Lines = indented(one.Event.Content)
	}
	one.At, one.Bytes = parseTime(one.Event.CreatedAt), many(int64(len(one.Event.Content)), "byte", "bytes")
	if id < info.Newest {
		one.Next = id + 1
	}
	if id > 1 {
		one.Prev = id - 1
	}
	ctx, cancel := context.WithTimeout(q.Context(), whyTime)
	defer cancel()
	for i, c := range names {
		a, err := dispatch.Why(ctx, t.Engine(), c, id)
		if ctx.Err() != nil {
			one.Left = len(names) - i
			break
		}
		if errors.Is(err, engine.ErrNoSubscription) {
			continue // it has just gone
		}
		if err != nil {
			return nil, err
		}
		one.Where = append(one.Where, Where{c, jsonform.NewWhy(&a)})
	}
	one.sort()
	return one, nil
}
