package page

import (
	"cmp"
	"context"
	"net/http"
	"slices"
	"time"

	"thread/engine"
	"thread/internal/jsonform"
)

const (
	letterTime    = 40 * time.Millisecond // for the letters of one page
	lettersAtOnce = 500                   // in one transaction
	shownLetters  = 20                    // of each group
)

// Letter is a dead letter with its event.
type Letter struct {
	jsonform.Letter
	Event *Event `json:"event"` // null when it is not stored any more
}

// Group is the dead letters of a consumer with the same last error.
type Group struct {
	Consumer string   `json:"consumer_id"`
	Error    string   `json:"last_error"`
	Count    int64    `json:"count"`
	Letters  []Letter `json:"letters"` // the first of them
}

// Dead is the dead letters that were looked at, in groups, the largest first.
type Dead struct {
	Groups  []Group `json:"groups"`
	Count   int64   `json:"count"`
	All     bool    `json:"complete"` // false: the time was over before the last of them
	Problem string  `json:"error,omitempty"`
}

// dead are the dead letters.
func (p *Page) dead(q *http.Request) (any, error) {
	t, err := p.named(q.PathValue("name"))
	if err != nil {
		return nil, err
	}
	end := time.Now().Add(letterTime)
	d := Dead{Groups: []Group{}, All: true}
	type kind struct{ consumer, err string }
	places := map[kind]int{}
	for l, err := range t.Engine().DeadLetters(q.Context(), engine.DeadLetterQuery{Consumer: q.FormValue("consumer"), Filter: q.FormValue("filter")}) {
		if err != nil {
			return nil, err
		}
		k := kind{l.Consumer, l.LastError}
		at, known := places[k]
		if !known {
			at = len(d.Groups)
			places[k] = at
			d.Groups = append(d.Groups, Group{Consumer: l.Consumer, Error: l.LastError, Letters: []Letter{}})
		}
		g := &d.Groups[at]
		g.Count++
		d.Count++
		if len(g.Letters) < shownLetters {
			one := Letter{Letter: jsonform.NewLetter(&l)}
			if l.Stored {
				one.Event = &Event{l.Event}
			}
			g.Letters = append(g.Letters, one)
		}
		if time.Now().After(end) {
			d.All = false
			break
		}
	}
	slices.SortStableFunc(d.Groups, func(a, b Group) int { return cmp.Compare(b.Count, a.Count) })
	return d, nil
}

// selection is which dead letters an action is about. Both strings are compared whole.
type selection struct {
	consumer, filter string
	lastError        *string // nil: whatever it is
}

// matching returns the letters without the contents of their events.
func (s *selection) matching(ctx context.Context, t *engine.Thread) (list []engine.DeadLetter, err error) {
	for l, err := range t.DeadLetters(ctx, engine.DeadLetterQuery{Consumer: s.consumer, Filter: s.filter}) {
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

// change calls do with some of the letters at a time.
func change(ctx context.Context, list []engine.DeadLetter, do func(context.Context, []engine.DeadLetter) (int64, error)) error {
	for some := range slices.Chunk(list, lettersAtOnce) {
		if _, err := do(ctx, some); err != nil {
			return err
		}
	}
	return nil
}
