package page

import (
	"fmt"
	"html/template"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"thread/internal/address"
	"thread/internal/jsonform"
)

// Row is a thread on the first page.
type Row struct {
	Name    string  `json:"name"`
	Dir     string  `json:"thread"`
	Stored  *int64  `json:"stored_count"`  // null: not known yet
	Pending *int64  `json:"pending_count"` // of all consumers; null: not known
	Oldest  *string `json:"oldest_pending_at"`
	Running int     `json:"running_count"`
	Dead    int64   `json:"dead_count"`
	Paused  int     `json:"paused_count"`
	Error   string  `json:"error,omitempty"`
	State   State   `json:"state"`

	Failing   int       `json:"-"` // consumers that do not get on
	Consumers int       `json:"-"`
	Badge     string    `json:"-"` // in the list of threads: what counts there
	BadgeText string    `json:"-"`
	BadgeLook string    `json:"-"`
	Spark     Spark     `json:"-"`
	Rate      int64     `json:"-"`
	Pushed    time.Time `json:"-"` // the newest event, zero for none
}

// Map is the first page.
type Map struct {
	Wrong    string    `json:"summary"` // how many problems there are
	Right    bool      `json:"ok"`
	Problems []Problem `json:"problems"`
	Threads  []Row     `json:"threads"`
	Lanes    []LaneRow `json:"-"`

	Shown         []Problem `json:"-"`
	More          int       `json:"-"` // problems that are not shown
	Consumers     int       `json:"-"`
	Active, Limit int       `json:"-"`
	Rate          int64     `json:"-"`
	Only          string    `json:"-"` // the thread whose overview it is, "" for the first page
	LastEnd       time.Time `json:"-"` // when there was a problem last
}

// shownProblems bounds the problems on a page. Its JSON has all.
const shownProblems = 100

// LaneRow is a lane, and which consumers are in it.
type LaneRow struct {
	Lane
	Now   string    `json:"-"`
	Share int       `json:"-"` // of its places, in percent
	Since time.Time `json:"-"` // since when the first one waits
}

// threads is the first page.
func (p *Page) threads(q *http.Request) (any, error) {
	all := p.host.Threads()
	known := p.summaries.get(all)
	m := Map{Threads: rows(all, known), Lanes: p.laneRows(all)}
	if name := q.PathValue("name"); name != "" {
		t, err := p.named(name)
		if err != nil {
			return nil, err
		}
		m.Only = t.Dir()
	}
	now := time.Now()
	for i := range all {
		if m.Only == "" || m.Only == all[i].Dir() {
			m.Threads[i].chart(&known[i])
			m.Problems = append(m.Problems, threadProblems(&m.Threads[i], &known[i], all[i].Runs(), now)...)
		}
		m.Consumers += m.Threads[i].Consumers
		m.Rate += m.Threads[i].Rate
	}
	if m.Only == "" {
		m.Problems = append(m.Problems, laneProblems(m.Lanes, now)...)
	} else {
		m.Threads = slices.DeleteFunc(m.Threads, func(r Row) bool { return r.Dir != m.Only })
	}
	slices.SortStableFunc(m.Problems, worse)
	for _, l := range m.Lanes {
		m.Active, m.Limit = m.Active+l.Active, m.Limit+l.Limit
	}
	m.Shown = m.Problems[:min(shownProblems, len(m.Problems))]
	m.More = len(m.Problems) - len(m.Shown)
	m.Wrong, m.Right = Headline(len(m.Problems)), len(m.Problems) == 0
	m.LastEnd = p.calm.look(m.Only, m.Right, now)
	return m, nil
}

// look is the class of the dot of a thread.
func (r *Row) look() string {
	if r.State == Dead {
		return Failing.Class()
	}
	return r.State.Class()
}

// infoPath is the address of a thread's consumers, as it is in an attribute.
func (r *Row) infoPath() string {
	return template.HTMLEscapeString("/threads/" + url.PathEscape(r.Name) + "/info")
}

// rows are the threads, with names that tell them apart.
func rows(all []Thread, known []summary) []Row {
	list, bases := make([]Row, len(all)), map[string]int{}
	for _, t := range all {
		bases[address.Base(t.Dir())]++
	}
	for i, t := range all {
		r := &list[i]
		r.Dir, r.Name = t.Dir(), address.Base(t.Dir())
		if bases[r.Name] > 1 {
			r.Name = r.Dir
		}
		r.fill(&known[i], t.Runs())
	}
	return list
}

func (r *Row) fill(k *summary, runs []Run) {
	for i := range runs {
		if runs[i].State == "running" && runs[i].Event == 0 {
			r.Running++
		}
	}
	r.State, r.Spark = Unknown, Spark{Width: 120, Height: 36, Flat: true, Label: "not known"}
	if k.err != nil {
		r.Error = k.err.Error()
	}
	if k.read.IsZero() || k.err != nil {
		r.badge(k)
		return
	}
	now := time.Now()
	r.Stored, r.Pending, r.State = &k.info.Stored, new(int64), OK
	r.Consumers, r.Pushed, r.Rate = len(k.of), parseTime(k.newest), k.past.rate(k.info.Newest, now)
	for i := range k.of {
		r.add(&k.of[i], runOf(runs, k.of[i].Consumer), now)
	}
	if r.State > Dead && r.Dead > 0 {
		r.State = Dead
	}
	if r.State > Failed && len(k.failed) > 0 {
		r.State = Failed
	}
	r.badge(k)
}

// chart draws what was pushed in the last hour. The list of threads has no charts.
func (r *Row) chart(k *summary) {
	if r.Stored == nil {
		return
	}
	pushed := k.past.pushed(k.info.Newest)
	r.Spark = newSpark(pushed, 120, 36, pushedLabel(pushed)).mark(k.past.died(k))
}

func (r *Row) add(c *jsonform.ConsumerState, run *Run, now time.Time) {
	s := StandingOf(c, run, now)
	if s.State < r.State && s.State != Running && s.State != Queued && s.State != Paused {
		r.State = s.State
	}
	if s.State <= Failing {
		r.Failing++
	}
	if c.Paused {
		r.Paused++
	}
	r.Dead += c.Dead
	if c.PendingErr != nil {
		r.Pending, r.Oldest = nil, nil
	}
	if r.Pending == nil {
		return
	}
	*r.Pending += c.Pending
	if c.Oldest != "" && (r.Oldest == nil || c.Oldest < *r.Oldest) {
		r.Oldest = &c.Oldest
	}
}

// badge sets the number that stands behind the thread's name in the list of threads.
func (r *Row) badge(k *summary) {
	switch {
	case r.Stored == nil:
		r.Badge, r.BadgeText = "?", "not known"
	case r.Dead > 0:
		r.Badge, r.BadgeText, r.BadgeLook = count(r.Dead), many(r.Dead, "dead letter", "dead letters"), "bad"
	case r.Failing > 0:
		r.Badge, r.BadgeText, r.BadgeLook = count(int64(r.Failing)), many(int64(r.Failing), "consumer is failing", "consumers are failing"), "bad"
	case len(k.failed) > 0:
		r.Badge, r.BadgeText, r.BadgeLook = count(int64(len(k.failed))), many(int64(len(k.failed)), "run has failed", "runs have failed"), "bad"
	case r.Pending == nil:
		r.Badge, r.BadgeText = "?", "unread events are not counted yet"
	case r.State == Behind:
		r.Badge, r.BadgeText, r.BadgeLook = count(*r.Pending), count(*r.Pending)+" unread", "warn"
	}
	if r.State == Stalled && r.Badge != "?" {
		r.BadgeLook = "solid"
	}
}

func pushedLabel(list []int64) string {
	if len(list) == 0 || slices.Max(list) == 0 {
		return "nothing was pushed in the last hour"
	}
	return fmt.Sprintf("pushed in the last hour: %s to %s in 2 minutes", count(slices.Min(list)), count(slices.Max(list)))
}

func runOf(runs []Run, consumer string) *Run {
	for i := range runs {
		if runs[i].Consumer == consumer && runs[i].Event == 0 {
			return &runs[i]
		}
	}
	return nil
}

// threadProblems are the problems of a thread and its consumers.
func threadProblems(r *Row, k *summary, runs []Run, now time.Time) (list []Problem) {
	if k.err != nil {
		list = append(list, Problem{State: Unknown, Name: r.Name, Kind: "thread", Thread: r.Name, Text: "cannot be read", Why: k.err.Error(), Since: k.at})
	}
	for i := range k.of {
		list = append(list, k.problems(r.Name, &k.of[i], runOf(runs, k.of[i].Consumer), now)...)
	}
	for i := range k.failed {
		f := &k.failed[i]
		why := f.ErrorMessage
		if !strings.HasPrefix(why, f.ErrorCode) { // as in "exit 1" of exit
			why = f.ErrorCode + " " + why
		}
		list = append(list, Problem{State: Failed, Name: f.AgentName, Kind: "run", Thread: r.Name, Run: f.ID, Since: f.EndedAt,
			Text: "run " + short(f.ID) + " has failed, and is not tried again", Why: line(why)})
	}
	return list
}

// problems are the problems of a consumer.
func (k *summary) problems(thread string, c *jsonform.ConsumerState, run *Run, now time.Time) (list []Problem) {
	s := StandingOf(c, run, now)
	one := Problem{State: s.State, Name: c.Consumer, Kind: "consumer", Thread: thread, Text: s.Text, Next: s.Next, Why: line(s.Error), Since: s.Since}
	switch {
	case s.State == Behind:
		one.Text, one.Why = s.Text+k.past.growth(c, now), "the oldest unread event is older than "+span(behindAfter)
		fallthrough
	case s.State.Problem() && s.State != Unknown:
		list = append(list, one)
	}
	if c.Dead > 0 {
		dead := Problem{State: Dead, Count: c.Dead, Name: c.Consumer, Kind: "consumer", Thread: thread,
			Text: many(c.Dead, "event was given up", "events were given up"), Why: line(c.DeadError)}
		if d, known := k.dead[c.Consumer]; known {
			dead.Text, dead.Why = many(int64(len(d.kinds)), "kind", "kinds")+" of error", line(d.String())
			dead.Since, dead.Newest = d.first, d.last
		}
		list = append(list, dead)
	}
	return list
}

func laneProblems(lanes []LaneRow, now time.Time) (list []Problem) {
	for _, l := range lanes {
		if l.Queued == 0 || l.Active < l.Limit || now.Sub(l.Since) < laneWait {
			continue
		}
		list = append(list, Problem{State: Full, Name: "lane " + l.Name, Kind: "lane", Text: many(int64(l.Queued), "consumer waits", "consumers wait"),
			Why: fmt.Sprintf("all %d places are taken: %s", l.Limit, l.Now), Since: l.Since})
	}
	return list
}

// laneWait is how long a consumer waits in a full lane until that is a problem.
const laneWait = 2 * time.Second

func (p *Page) laneRows(all []Thread) []LaneRow {
	in := map[string][]string{}
	for _, t := range all {
		for _, r := range t.Runs() {
			if r.State == "running" && r.Event == 0 {
				in[r.Lane] = append(in[r.Lane], r.Consumer)
			}
		}
	}
	var list []LaneRow
	for _, l := range p.host.Lanes() {
		row := LaneRow{Lane: l, Now: line(strings.Join(in[l.Name], ", "))}
		if l.Limit > 0 {
			row.Share = 100 * min(l.Active, l.Limit) / l.Limit
		}
		if l.Queued > 0 {
			row.Since = time.Now().Add(-time.Duration(l.OldestMS) * time.Millisecond)
		}
		list = append(list, row)
	}
	return list
}

// lanes are the lanes of the process.
func (p *Page) lanes(*http.Request) (any, error) {
	list := p.host.Lanes()
	if list == nil {
		list = []Lane{}
	}
	return list, nil
}
