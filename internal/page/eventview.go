package page

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"thread/engine"
	"thread/filter"
	"thread/internal/dispatch"
)

const (
	shownChips = 4    // types, and sources, that are offered as filters
	mostChecks = 5000 // of events against filters, for the states in the list
)

// dress adds what only people look at to a page of events.
func (p *Page) dress(ctx context.Context, t Thread, where string, page *Events) {
	k := p.summaries.peek(t.Dir())
	page.Stored = k.info.Stored
	page.Rows = make([]EventRow, len(page.Events))
	for i, e := range page.Events {
		page.Rows[i] = EventRow{Event: e, At: parseTime(e.CreatedAt), State: OK, Text: "all acked", JSON: looksJSON(e.Content)}
	}
	standings(page.Rows, &k, t.Runs())
	pushed := k.past.pushed(k.info.Newest)
	page.Hist = newBars(pushed, 480, 40, pushedLabel(pushed))
	page.Axis = axis(k.past.until)
	page.Times = timeChips(where)
	if page.Error != "" || where != "" && len(page.Rows) == 0 {
		page.Hint = quoted(where)
	}
	few, cancel := context.WithTimeout(ctx, quickTime/2)
	defer cancel()
	counts, err := t.Engine().Counts(few, engine.Query{})
	if err != nil {
		return
	}
	types, sources := map[string]int64{}, map[string]int64{}
	for s, n := range counts {
		types[s.Type] += n
		sources[s.Source] += n
	}
	page.Types, page.Sources = chips("type", types, where), chips("source", sources, where)
}

// standings says for each event how it is with the consumer that is worst off with it.
func standings(rows []EventRow, k *summary, runs []Run) {
	if len(rows)*len(k.of) > mostChecks {
		return
	}
	now := time.Now()
	for i := range k.of {
		c := &k.of[i]
		f, err := filter.Compile(c.Where())
		if err != nil {
			continue
		}
		state := StandingOf(c, runOf(runs, c.Consumer), now).State
		if state == OK {
			state = Queued
		}
		for j := range rows {
			r := &rows[j]
			if r.ID <= c.LastAcked || state >= r.State {
				continue
			}
			row := filter.RowOf(&r.Event.Event)
			if ok, err := f.Matcher().Match(&row); ok && err == nil {
				r.State, r.Text = state, c.Consumer+" is "+state.String()
				if state == Queued {
					r.Text = "unread by " + c.Consumer
				}
			}
		}
	}
}

// chips are filters for the most frequent values of a column.
func chips(column string, counts map[string]int64, where string) (list []Chip) {
	values := slices.SortedFunc(maps.Keys(counts), func(a, b string) int {
		return cmp.Or(cmp.Compare(counts[b], counts[a]), strings.Compare(a, b))
	})
	for _, v := range values[:min(len(values), shownChips)] {
		f := column + " = " + quote(v)
		list = append(list, Chip{Text: v, Filter: f, Count: count(counts[v]), On: f == where})
	}
	return list
}

// timeChips are filters for the last minutes and hours. One that was chosen stays on, as
// its filter begins a while ago.
func timeChips(where string) []Chip {
	list := []Chip{}
	now := time.Now()
	at, chosen := strings.CutPrefix(where, "created_at >= '")
	from, err := time.Parse("2006-01-02T15:04Z07:00", strings.TrimSuffix(at, "'")+"Z")
	for _, c := range []struct {
		text string
		span time.Duration
	}{{"15 min", 15 * time.Minute}, {"1 h", time.Hour}, {"24 h", 24 * time.Hour}} {
		begin := now.Add(-c.span).UTC()
		on := chosen && err == nil && now.Sub(from) >= c.span && now.Sub(from) < c.span+c.span/4+time.Minute
		list = append(list, Chip{Text: c.text, Filter: "created_at >= '" + begin.Format("2006-01-02T15:04") + "'", On: on})
	}
	return append(list, Chip{Text: "all", On: where == ""})
}

// quoted guesses a filter from one whose text is not in quotes, "" for no guess.
func quoted(where string) string {
	column, value, ok := strings.Cut(where, "=")
	column, value = strings.TrimSpace(column), strings.Trim(strings.TrimSpace(value), `"`)
	if !ok || strings.ContainsAny(value, `'"<>=()`) || value == "" || !slices.Contains([]string{"type", "source", "subtype"}, column) {
		return ""
	}
	guess := column + " = " + quote(value)
	if _, err := filter.Compile(guess); err != nil {
		return ""
	}
	return guess
}

// sort puts the consumers for which the event needs attention first, and those whose
// filters do not match elsewhere.
func (one *OneEvent) sort() {
	states := map[dispatch.Place]State{dispatch.PlaceStalled: Stalled, dispatch.PlaceBroken: Stalled, dispatch.PlaceRetrying: Failing, dispatch.PlaceStopped: Behind,
		dispatch.PlacePaused: Paused, dispatch.PlaceRunning: Running, dispatch.PlacePending: Queued, dispatch.PlaceAcked: OK}
	words := map[dispatch.Place]string{dispatch.PlaceBroken: "bad filter", dispatch.PlaceRetrying: "failing", dispatch.PlacePending: "unread", dispatch.PlaceAcked: "acked", dispatch.PlaceStopped: "left"}
	for _, w := range one.Where {
		place := dispatch.Place(strings.ReplaceAll(w.Place, "_", " "))
		state, known := states[place]
		switch {
		case place == dispatch.PlaceUnmatched:
			one.Others = append(one.Others, w)
			continue
		case !known:
			state = Unknown
		}
		one.Rows = append(one.Rows, WhereRow{w, state, cmp.Or(words[place], string(place))})
	}
	slices.SortStableFunc(one.Rows, func(a, b WhereRow) int { return cmp.Compare(a.State, b.State) })
}
