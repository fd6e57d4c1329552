package page

import (
	"cmp"
	"context"
	"net/http"
	"slices"
	"strings"
	"time"

	"thread/engine"
	"thread/internal/jsonform"
)

const (
	letterTime   = 40 * time.Millisecond // for the letters of one page
	shownLetters = 6                     // of each group
	mostLetters  = 1000                  // of each group, when all are asked for
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

	First  time.Time `json:"-"` // when the first of them died
	Last   time.Time `json:"-"`
	Spark  Spark     `json:"-"`
	Open   bool      `json:"-"`
	deaths []int64
}

// DeadLetters are the dead letters that were looked at, in groups, the largest first.
type DeadLetters struct {
	Groups  []Group `json:"groups"`
	Count   int64   `json:"count"`
	All     bool    `json:"complete"` // false: the time was over before the last of them
	Problem string  `json:"error,omitempty"`

	Newest    time.Time `json:"-"`
	Consumers []Chip    `json:"-"`
	Owners    int       `json:"-"` // consumers whose letters these are
	Known     int64     `json:"-"` // of all consumers, without the filter
	Consumer  string    `json:"-"` // that is chosen, or the only one; "" for several
}

// dead are the dead letters.
func (p *Page) dead(q *http.Request) (any, error) {
	t, err := p.named(q.PathValue("name"))
	if err != nil {
		return nil, err
	}
	now := time.Now()
	end := now.Add(letterTime)
	shown := shownLetters
	if q.FormValue("all") != "" {
		shown = mostLetters
	}
	d := DeadLetters{Groups: []Group{}, All: true}
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
		g.died(l.DiedAt, now)
		if len(g.Letters) < shown {
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
	k := p.summaries.peek(t.Dir())
	d.dress(&k, q.FormValue("consumer"))
	return d, nil
}

// died notes when a letter of the group died.
func (g *Group) died(at, now time.Time) {
	if g.First.IsZero() || at.Before(g.First) {
		g.First = at
	}
	if at.After(g.Last) {
		g.Last = at
	}
	if g.deaths == nil {
		g.deaths = make([]int64, pastPoints-1)
	}
	if i := len(g.deaths) - 1 - int(now.Sub(at)/pastStep); i >= 0 && i < len(g.deaths) {
		g.deaths[i]++
	}
}

// deadKinds are the kinds of error of a consumer's dead letters.
type deadKinds struct {
	count       int64 // of letters
	newest      string
	first, last time.Time // when letters died
	kinds       []deadKind
}

// deadKind is an error, and how many letters have it.
type deadKind struct {
	err   string
	count int64
}

// mostKinds is of how many dead letters of a consumer the kinds are found, and shownKinds
// how many kinds a line names.
const (
	mostKinds  = 500
	shownKinds = 3
)

// kindsOf returns the kinds by consumer. It reads the letters of those which have others than
// before. Those with many letters, and those for which there is no time, are left out.
func kindsOf(ctx context.Context, t *engine.Thread, of []jsonform.ConsumerState, before map[string]deadKinds) map[string]deadKinds {
	found := map[string]deadKinds{}
	for i := range of {
		c := &of[i]
		if c.Dead == 0 || c.Dead > mostKinds {
			continue
		}
		d, known := before[c.Consumer]
		if !known || d.count != c.Dead || d.newest != c.DeadError {
			var err error
			if d, err = readKinds(ctx, t, c.Consumer); err != nil {
				continue
			}
			d.count, d.newest = c.Dead, c.DeadError
		}
		found[c.Consumer] = d
	}
	return found
}

func readKinds(ctx context.Context, t *engine.Thread, consumer string) (d deadKinds, err error) {
	at := map[string]int{}
	for l, err := range t.DeadLetters(ctx, engine.DeadLetterQuery{Consumer: consumer}) {
		if err != nil {
			return d, err
		}
		i, known := at[l.LastError]
		if !known {
			i = len(d.kinds)
			at[l.LastError], d.kinds = i, append(d.kinds, deadKind{err: l.LastError})
		}
		d.kinds[i].count++
		if d.first.IsZero() || l.DiedAt.Before(d.first) {
			d.first = l.DiedAt
		}
		if l.DiedAt.After(d.last) {
			d.last = l.DiedAt
		}
	}
	slices.SortStableFunc(d.kinds, func(a, b deadKind) int { return cmp.Compare(b.count, a.count) })
	return d, nil
}

// String is the errors, the most frequent first.
func (d *deadKinds) String() string {
	if len(d.kinds) == 1 {
		return d.kinds[0].err
	}
	var parts []string
	for _, k := range d.kinds[:min(shownKinds, len(d.kinds))] {
		parts = append(parts, count(k.count)+" × "+line(k.err))
	}
	return strings.Join(parts, " · ")
}

// dress adds what only people look at.
func (d *DeadLetters) dress(k *summary, chosen string) {
	owners := map[string]bool{}
	for i := range d.Groups {
		g := &d.Groups[i]
		owners[g.Consumer] = true
		g.Open = i < 2
		g.Spark = newBars(g.deaths, 60, 20, many(g.Count, "dead letter", "dead letters"))
		g.Spark.Marks, g.Spark.Line, g.Spark.Class = g.Spark.Line, "", "mid"
		if g.Last.After(d.Newest) {
			d.Newest = g.Last
		}
		d.Consumer = g.Consumer
	}
	if d.Owners = len(owners); d.Owners > 1 {
		d.Consumer = ""
	}
	for i := range k.of {
		if c := &k.of[i]; c.Dead > 0 {
			d.Known += c.Dead
			d.Consumers = append(d.Consumers, Chip{Text: c.Consumer, Filter: c.Consumer, Count: count(c.Dead), On: c.Consumer == chosen})
		}
	}
}
