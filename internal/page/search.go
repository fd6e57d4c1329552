package page

import (
	"context"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"thread/engine"
	"thread/filter"
	"thread/history"
)

// Found is what a search has found.
type Found struct {
	Kind    string `json:"kind"` // event, consumer, run, session, source, type or filter
	Name    string `json:"name"`
	Thread  string `json:"thread"`
	Address string `json:"address"`
}

// Search is a text and what it may mean.
type Search struct {
	Text  string  `json:"text"`
	Found []Found `json:"found"`
}

// mostFound bounds what a search finds.
const mostFound = 100

// search finds an id, a consumer, a run, a session, a source, a type, or events by a filter.
func (p *Page) search(q *http.Request) (any, error) {
	s := Search{Text: strings.TrimSpace(q.FormValue("q")), Found: []Found{}}
	all := p.host.Threads()
	list := rows(all, make([]summary, len(all)))
	if in := q.FormValue("in"); in != "" {
		t, err := p.named(in)
		if err != nil {
			return nil, err
		}
		first := func(t1 Thread) int {
			if t1.Dir() == t.Dir() {
				return 0
			}
			return 1
		}
		slices.SortStableFunc(all, func(a, b Thread) int { return first(a) - first(b) })
		list = rows(all, make([]summary, len(all)))
	}
	ctx, cancel := context.WithTimeout(q.Context(), searchTime)
	defer cancel()
	for i, t := range all {
		if s.Text == "" || len(s.Found) >= mostFound || ctx.Err() != nil {
			break
		}
		s.in(ctx, p, t, list[i].Name)
	}
	if in := q.FormValue("in"); s.Text != "" && isFilter(s.Text) && len(all) > 0 {
		if in == "" {
			in = list[0].Name
		}
		s.add("filter", s.Text, in, "events?filter="+url.QueryEscape(s.Text))
	}
	return s, nil
}

func (s *Search) add(kind, name, thread, address string) {
	s.Found = append(s.Found, Found{kind, name, thread, "/threads/" + url.PathEscape(thread) + "/" + address})
}

// in looks in one thread.
func (s *Search) in(ctx context.Context, p *Page, t Thread, name string) {
	if id, err := strconv.ParseInt(s.Text, 10, 64); err == nil && id > 0 {
		_ = t.Engine().View(ctx, func(tx *engine.Tx) error {
			if _, ok, err := tx.Event(id); ok && err == nil {
				s.add("event", s.Text, name, "events/"+s.Text)
			}
			return nil
		})
		return
	}
	k := p.summaries.peek(t.Dir())
	for i := range k.of {
		if c := &k.of[i]; strings.Contains(strings.ToLower(c.Consumer), strings.ToLower(s.Text)) && len(s.Found) < mostFound {
			s.add("consumer", c.Consumer, name, "consumer?id="+url.QueryEscape(c.Consumer))
		}
	}
	s.records(ctx, t, name)
	counts, err := t.Engine().Counts(ctx, engine.Query{})
	if err != nil {
		return
	}
	seen := map[string]bool{}
	for series := range counts {
		for column, value := range map[string]string{"source": series.Source, "type": series.Type} {
			if strings.Contains(strings.ToLower(value), strings.ToLower(s.Text)) && !seen[column+value] && len(s.Found) < mostFound {
				seen[column+value] = true
				s.add(column, value, name, "events?filter="+url.QueryEscape(column+" = "+quote(value)))
			}
		}
	}
}

// quote is a text as a filter has it.
func quote(s string) string { return "'" + strings.ReplaceAll(s, "'", "''") + "'" }

// records looks for a run or a session of that id.
func (s *Search) records(ctx context.Context, t Thread, name string) {
	h, err := history.Open(ctx, t.Dir(), history.LeaveRuns())
	if err != nil {
		return
	}
	defer h.Close()
	var run history.RunRow
	if h.Get(ctx, &run, s.Text) == nil {
		s.add("run", run.ID, name, "runs/"+url.PathEscape(run.ID))
	}
	var session history.SessionRow
	if h.Get(ctx, &session, s.Text) == nil {
		s.add("session", SessionRow{session}.Called(), name, "session?id="+url.QueryEscape(session.ID))
	}
}

// isFilter reports whether a text is a filter that is more than a word or a number.
func isFilter(text string) bool {
	_, err := filter.Compile(text)
	return err == nil && strings.ContainsAny(text, " =<>'")
}

// sought answers a search: with the only thing that was found, or with all.
func (p *Page) sought(show http.HandlerFunc) http.HandlerFunc {
	return func(rw http.ResponseWriter, q *http.Request) {
		if data, err := p.search(q); err == nil && len(data.(Search).Found) == 1 && q.Header.Get(haveHeader) == "" {
			http.Redirect(rw, q, data.(Search).Found[0].Address, http.StatusSeeOther)
			return
		}
		show(rw, q)
	}
}
