package page

import (
	"cmp"
	"html/template"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"thread/history"
	"thread/internal/dispatch"
	"thread/internal/jsonform"
)

// sparkRows is up to how many consumers each row has its chart.
const sparkRows = 200

// column is one of the table of consumers; without a name, it sorts nothing.
type column struct{ Name, Text, Class string }

var columns = []column{
	{"state", "State", "w-state"}, {"consumer", "Consumer", "w-name"}, {"lane", "Lane", "w-lane mid"}, {"unread", "Unread", "num w-lag"}, {"oldest", "Oldest", "num w-num"},
	{"rate", "A minute", "num w-num mid"}, {"", "Last hour", "w-spark mid"}, {"last", "Last run", "num w-time mid"}, {"", "Last error", ""},
}

// Consumers are the consumers of a thread. Its JSON is the json of thread info.
type Consumers struct {
	jsonform.Info
	Rows   []ConsumerRow `json:"-"`
	States []StateCount  `json:"-"`
	All    int           `json:"-"`
	Shown  string        `json:"-"` // the state that is chosen, "" for all
	Sort   string        `json:"-"`
	Down   bool          `json:"-"`
	Row    Row           `json:"-"`
}

// StateCount is how many consumers are in a state.
type StateCount struct {
	State State
	Count int
}

// ConsumerRow is a line of the table.
type ConsumerRow struct {
	jsonform.ConsumerState
	Standing
	Lane   string
	Share  int64 // of the stored events that are unread, in percent
	Oldest time.Time
	Rate   int64
	Spark  Spark
	Last   time.Time
	Known  bool // its counts
}

// consumers is the table.
func (p *Page) consumers(q *http.Request) (any, error) {
	t, k, err := p.one(q)
	if err != nil {
		return nil, err
	}
	now, runs := time.Now(), t.Runs()
	c := Consumers{Info: jsonform.NewInfo(&k.info, k.of), All: len(k.of), Shown: q.FormValue("state"), Sort: cmp.Or(q.FormValue("sort"), "state")}
	c.Row.fill(&k, runs)
	counts := map[State]int{}
	for _, s := range worstFirst(k.of, runs, now) {
		row := consumerRow(&s, runOf(runs, s.Consumer), &k, now)
		counts[row.State]++
		if want := strings.ToLower(row.State.String()); c.Shown != "" && want != c.Shown || !matches(&row, q.FormValue("name")) {
			continue
		}
		c.Rows = append(c.Rows, row)
	}
	for s := Stalled; s <= OK; s++ {
		if counts[s] > 0 {
			c.States = append(c.States, StateCount{s, counts[s]})
		}
	}
	if len(c.Rows) > sparkRows {
		for i := range c.Rows {
			c.Rows[i].Spark = Spark{}
		}
	}
	c.Down = q.FormValue("down") != ""
	return c, c.order()
}

func matches(row *ConsumerRow, text string) bool {
	text = strings.ToLower(text)
	return text == "" || strings.Contains(strings.ToLower(row.Consumer), text) || strings.Contains(strings.ToLower(row.Error), text)
}

func consumerRow(s *jsonform.ConsumerState, run *Run, k *summary, now time.Time) ConsumerRow {
	row := ConsumerRow{ConsumerState: *s, Standing: StandingOf(s, run, now), Lane: cmp.Or(s.Lane, "main"), Oldest: parseTime(s.Oldest),
		Known: s.PendingErr == nil, Last: timeOf(s.Handler.LastExitAt)}
	if s.UpdatedAt != nil && row.Last.IsZero() {
		row.Last = parseTime(*s.UpdatedAt)
	}
	if k.info.Stored > 0 {
		row.Share = min(100, 100*s.Pending/k.info.Stored)
	}
	row.Spark = Spark{Width: 60, Height: 20, Flat: true, Label: "nothing read in the last hour"}
	if one := k.past.of[s.Consumer]; one != nil {
		handled := one.handled(s.LastAcked)
		row.Rate = (handled[len(handled)-1] + handled[len(handled)-2] + 3) / 4
		row.Spark = newSpark(handled, 60, 20, count(row.Rate)+" a minute now").mark(one.died(s.Dead))
	}
	return row
}

// order sorts as the query asks; the worst are first already.
func (c *Consumers) order() error {
	by := map[string]func(a, b *ConsumerRow) int{
		"state":    func(*ConsumerRow, *ConsumerRow) int { return 0 },
		"consumer": func(a, b *ConsumerRow) int { return strings.Compare(a.Consumer, b.Consumer) },
		"lane":     func(a, b *ConsumerRow) int { return strings.Compare(a.Lane, b.Lane) },
		"unread":   func(a, b *ConsumerRow) int { return cmp.Compare(b.Pending, a.Pending) },
		"oldest":   func(a, b *ConsumerRow) int { return zeroLast(a.Oldest, b.Oldest) },
		"rate":     func(a, b *ConsumerRow) int { return cmp.Compare(b.Rate, a.Rate) },
		"last":     func(a, b *ConsumerRow) int { return zeroLast(b.Last, a.Last) },
	}[c.Sort]
	if by == nil {
		return &Error{http.StatusBadRequest, "sort is state, consumer, lane, unread, oldest, rate or last"}
	}
	slices.SortStableFunc(c.Rows, func(a, b ConsumerRow) int { return by(&a, &b) })
	if c.Down {
		slices.Reverse(c.Rows)
	}
	return nil
}

// one returns the thread of a request and what is known of it.
func (p *Page) one(q *http.Request) (Thread, summary, error) {
	t, err := p.named(q.PathValue("name"))
	if err != nil {
		return nil, summary{}, err
	}
	k := p.summaries.get([]Thread{t})[0]
	switch {
	case k.err != nil:
		return nil, k, k.err
	case k.read.IsZero():
		return nil, k, &Error{http.StatusServiceUnavailable, "this thread is being counted: ask again in a moment"}
	}
	return t, k, nil
}

// Consumer is the page of one.
type Consumer struct {
	Consumer jsonform.Consumer `json:"consumer"`
	Standing Standing          `json:"standing"`
	Runs     []RunRow          `json:"runs"`
	Log      string            `json:"output"`
	LogRun   string            `json:"output_run_id"`

	Row       ConsumerRow `json:"-"`
	Head      int64       `json:"-"`
	Chart     Spark       `json:"-"`
	Unread    string      `json:"-"` // about the chart
	Axis      []time.Time `json:"-"`
	Layout    string      `json:"-"` // of the times of the axis
	Pasts     []Past      `json:"-"`
	Failed    int         `json:"-"` // of the runs
	Run       *Run        `json:"-"` // what the process does for it
	Lane      Lane        `json:"-"`
	Success   time.Time   `json:"-"` // the end of the last run that went well
	Handler   string      `json:"-"`
	Truncated bool        `json:"-"`
}

// Past is how far back a chart can go.
type Past struct {
	Value, Text string // in the query; for people
	On          bool
}

// shownRunsOfOne is how many runs the page of a consumer lists.
const shownRunsOfOne = 7

// logBytes is how much of a log a page shows.
const logBytes = 32 << 10

// consumer is one of them.
func (p *Page) consumer(q *http.Request) (any, error) {
	t, k, err := p.one(q)
	if err != nil {
		return nil, err
	}
	i := slices.IndexFunc(k.of, func(c jsonform.ConsumerState) bool { return c.Consumer == q.FormValue("id") })
	if i < 0 {
		return nil, &Error{http.StatusNotFound, "that consumer is not subscribed"}
	}
	s, now := k.of[i], time.Now()
	runs := t.Runs()
	c := Consumer{Run: runOf(runs, s.Consumer), Head: k.info.Newest, Runs: []RunRow{}, Handler: s.Subscription.Handler}
	c.Row = consumerRow(&s, c.Run, &k, now)
	c.Standing = c.Row.Standing
	c.Consumer = jsonform.NewInfo(&k.info, k.of[i:i+1]).Subscriptions[0]
	for _, l := range p.host.Lanes() {
		if l.Name == c.Row.Lane {
			c.Lane = l
		}
	}
	if err := c.chart(&k, &s, q.FormValue("past")); err != nil {
		return nil, err
	}
	if err := p.consumerRuns(q, t, &c); err != nil {
		return nil, err
	}
	if s.Handler.Running || c.LogRun == "" {
		c.Log, c.LogRun = tail(dispatch.OutputPath(t.Engine().Dir(), s.Consumer), logBytes), s.Handler.RunID
	}
	return c, nil
}

// consumerRuns adds the runs of its handler to the page of a consumer, and the output of
// the last one.
func (p *Page) consumerRuns(q *http.Request, t Thread, c *Consumer) error {
	h, err := p.open(q.Context(), t)
	if h == nil || err != nil {
		return err
	}
	defer h.Close()
	for r, err := range h.HandlerRuns(q.Context(), history.HandlerQuery{Consumer: c.Consumer.Consumer, Limit: shownRunsOfOne}) {
		if err != nil {
			return err
		}
		row := RunRow{r}
		switch row.State() {
		case Failed:
			c.Failed++
		case OK:
			if c.Success.IsZero() {
				c.Success = r.EndedAt
			}
		}
		c.Runs = append(c.Runs, row)
	}
	if len(c.Runs) > 0 {
		out, err := h.Command(q.Context(), c.Runs[0].ID)
		if err == nil {
			c.Log, c.LogRun, c.Truncated = out.Output, c.Runs[0].ID, out.Truncated
		}
	}
	return nil
}

// chart draws what was unread in the last hour, or a longer time.
func (c *Consumer) chart(k *summary, s *jsonform.ConsumerState, long string) error {
	c.Pasts = []Past{{"", "1 h", long == ""}, {"24h", "24 h", long == "24h"}, {"7d", "7 d", long == "7d"}}
	at := slices.IndexFunc(c.Pasts, func(p Past) bool { return p.On })
	if at < 0 {
		return &Error{http.StatusBadRequest, "past is 24h or 7d"}
	}
	words := []string{"the last hour", "the last 24 hours", "the last 7 days"}[at]
	c.Chart = Spark{Width: 600, Height: 130, Class: "chart", Flat: true, Label: "nothing was unread in " + words}
	c.Unread = "remembered from now on"
	var unread *[pastPoints]int64
	if one := k.past.of[s.Consumer]; at == 0 && one != nil {
		unread, c.Axis = &one.unread, axis(k.past.until)
	} else if at > 0 {
		l := k.past.long[at-1]
		unread, c.Axis = l.of[s.Consumer], axisOf(l.until, trailSteps[at-1])
	}
	if c.Layout = "15:04"; at == 2 {
		c.Layout = "2 Jan 15:04"
	}
	if unread == nil {
		return nil
	}
	var values []int64
	known := 0
	for _, n := range unread {
		if n >= 0 {
			known++
		}
		values = append(values, max(0, n))
	}
	values[len(values)-1] = s.Pending
	most := slices.Max(values)
	if known > 1 {
		c.Unread = count(s.Pending) + " now, at most " + count(most) + " in " + words
	}
	c.Chart = newSpark(values, 600, 130, "unread in "+words+": at most "+count(most)+", now "+count(s.Pending))
	c.Chart.Class = "chart"
	return nil
}

// axis are the times under a chart of the last hour.
func axis(until time.Time) []time.Time { return axisOf(until, pastStep) }

// axisOf are the times under a chart with that time between two points.
func axisOf(until time.Time, step time.Duration) (list []time.Time) {
	for i := range 5 {
		list = append(list, until.Add(-step*(pastPoints-1)*time.Duration(4-i)/4))
	}
	return list
}

// rowElements are the rows of consumers, with the marks of their parts. They are written here
// and not by a template, which takes several times as long: a page may have 1,000 rows.
func rowElements(v *view, rows []ConsumerRow) template.HTML {
	return keyed(rows, func(c *ConsumerRow) string { return elementID("c", c.Consumer) }, func(put put, c *ConsumerRow, id string) { putRow(put, v, c, id) })
}

// putRow writes the row of a consumer.
func putRow(put put, v *view, c *ConsumerRow, id string) {
	esc, at := template.HTMLEscapeString, template.HTMLEscapeString("/threads/"+url.PathEscape(v.Name))
	name, query := esc(c.Consumer), esc(url.QueryEscape(c.Consumer))
	class, beat := c.State.Class(), ""
	if class == "run" {
		beat = " beat"
	}
	put(`<tr id="`, id, `" data-s="`, class, `"><td class="st"><span class="pill `, class, `"><i class="dot`, beat, `"></i>`, esc(c.State.String()), `</span></td>`,
		`<td class="first"><div class="cut"><a class="who" href="`, at, `/consumer?id=`, query, `" title="`, name, `">`, name, `</a></div></td>`,
		`<td class="soft mid" data-l="Lane"><div class="cut" title="`, esc(c.Lane), `">`, esc(c.Lane), `</div></td><td class="num" data-l="Unread">`)
	share, oldest := "0", template.HTML("?")
	switch {
	case c.Known:
		share, oldest = strconv.FormatInt(c.Share, 10), timeElement(c.Oldest, v.Now, "age")
		put(count(c.Pending))
	case c.CountedAt.IsZero():
		put(`<span title="not counted yet">?</span>`)
	default:
		put(`<span title="`, count(c.Pending), ` at `, c.CountedAt.UTC().Format(time.TimeOnly), `">?</span>`)
	}
	look := ""
	switch {
	case c.State < Dead:
		look = ` class="b"`
	case c.State < Unknown:
		look = ` class="w"`
	}
	put(`<svg class="lag" aria-hidden="true"><rect width="`, share, `%" height="4"`, look, `/></svg></td><td class="num" data-l="Oldest">`, string(oldest), `</td>`,
		`<td class="num mid" data-l="A minute" title="events that it has gone past">`, count(c.Rate), `</td><td class="opt mid">`)
	if c.Spark.Width != 0 {
		put(string(sparkElement(c.Spark)))
	}
	put(`</td><td class="num mid" data-l="Last run">`, string(timeElement(c.Last, v.Now, "ago")), `</td>`)
	look = "soft"
	if c.State < Dead {
		look = "err"
	}
	put(`<td class="full"><div class="cut `, look, `" title="`, esc(c.Error), `">`)
	if c.Dead != 0 {
		put(`<a class="pill dead" href="`, at, `/dead?consumer=`, query, `">`, count(c.Dead), ` dead</a> `)
	}
	put(esc(line(c.Error)), `</div></td><td class="open"><span class="acts">`)
	if !v.ReadOnly {
		do, style, label, text := "pause", "btn plain", "Pause "+name, "Pause"
		switch {
		case c.Paused:
			do, label, text = "resume", "Resume "+name, "Resume"
		case c.State == Stalled:
			do, style, label, text = "run", "btn", "Run "+name+" now", "Run now"
		}
		put(`<form method="post" action="`, at, `/act"><input type="hidden" name="form" value="`, esc(v.Form), `"><input type="hidden" name="back" value="`, esc(v.Self),
			`"><input type="hidden" name="consumer" value="`, esc(url.PathEscape(c.Consumer)), `"><button class="`, style, `" name="do" value="`, do, `" aria-label="`, label, `">`, text, `</button></form>`)
	}
	put(`</span></td></tr>`)
}
